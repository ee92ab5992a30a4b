//! Decides which address of a name is tried first: the one that answered last. A client gives each its time,
//! one after the other, for every connection.

use crate::lock::lock;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use tokio::net::lookup_host;

/// The addresses of names, in the order in which they are to be tried.
#[derive(Clone)]
pub(super) struct Addresses {
    lookup: Arc<dyn Resolve>,
    answered: Arc<Mutex<Option<IpAddr>>>,
}

impl Addresses {
    /// As this knows them; none has answered yet.
    pub(super) fn of(lookup: impl Resolve + 'static) -> Self {
        Self { lookup: Arc::new(lookup), answered: Arc::default() }
    }

    /// This one answered.
    pub(super) fn answered(&self, address: SocketAddr) {
        *lock(&self.answered) = Some(address.ip());
    }
}

impl Resolve for Addresses {
    fn resolve(&self, name: Name) -> Resolving {
        let (addresses, answered) = (self.lookup.resolve(name), Arc::clone(&self.answered));
        Box::pin(async move {
            let mut addresses: Vec<SocketAddr> = addresses.await?.collect();
            let first = *lock(&answered);
            addresses.sort_by_key(|address| Some(address.ip()) != first);
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Addresses")
            .field("answered", &self.answered)
            .finish_non_exhaustive()
    }
}

/// The names as the system knows them.
#[derive(Debug)]
pub(super) struct System;

impl Resolve for System {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The port comes from the URL.
            let addresses: Vec<SocketAddr> = lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
