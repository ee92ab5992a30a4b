//! Reads of a certificate what people want to know of it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Who issued it, and until when it is valid; `None` where it cannot be read.
pub fn read(der: &[u8]) -> Option<(String, SystemTime)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let names = certificate.issuer().iter_common_name();
    let names = names.chain(certificate.issuer().iter_organization());
    let name = names.filter_map(|name| name.as_str().ok()).next();
    let issuer = name.map_or_else(|| certificate.issuer().to_string(), str::to_owned);
    let until = certificate.validity().not_after.timestamp();
    Some((issuer, UNIX_EPOCH + Duration::from_secs(until.try_into().unwrap_or(0))))
}
