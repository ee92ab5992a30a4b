//! Finds out which of the addresses of a name takes a connection, and which says nothing.

use crate::commands::doctor::verdicts::Reached;
use crate::shell::http::happy_eyeballs::tries;
use futures_util::StreamExt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a connection may take.
const TCP: Duration = Duration::from_secs(4);
/// How long the other addresses of a name may take when one takes a connection.
const OTHERS: Duration = Duration::from_millis(500);

/// Connects to all addresses at once, and waits for the others a little when one takes a connection.
pub(super) async fn reach_any(addresses: &[SocketAddr]) -> Result<Reached, ErrorKind> {
    let mut tries = pin!(tries(addresses.to_vec(), Duration::ZERO));
    let mut silent = addresses.to_vec();
    let (mut reached, mut kind) = (None, ErrorKind::AddrNotAvailable);
    let mut until = Instant::now() + TCP;
    while let Ok(Some((address, tried))) = timeout_at(until, tries.next()).await {
        silent.retain(|other| *other != address);
        match tried {
            Ok(_) => {
                reached.get_or_insert(address);
                until = until.min(Instant::now() + OTHERS);
            }
            Err(error) => kind = error.kind(),
        }
    }
    match reached {
        Some(address) => Ok((address, silent)),
        None if silent.is_empty() => Err(kind),
        None => Err(ErrorKind::TimedOut),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::shell::http::happy_eyeballs::tests::silent;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn an_address_that_says_nothing_does_not_hide_one_that_answers() {
        let (its, _kept) = silent().await;
        let talks = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = talks.local_addr().unwrap();
        assert_eq!(reach_any(&[its, address]).await, Ok((address, vec![its])));
        assert_eq!(reach_any(&[address]).await, Ok((address, Vec::new())));
        drop(talks);
        assert_eq!(reach_any(&[address]).await, Err(ErrorKind::ConnectionRefused));
    }
}
