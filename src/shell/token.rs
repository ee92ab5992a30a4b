//! Decides what proves that a caller of the loopback API may call (A5): 32 bytes of the system's
//! chance, written in hex.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use subtle::ConstantTimeEq;

/// The characters of a token.
const LENGTH: usize = 64;

/// The secret of one process. Never shown.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// A new one.
    pub(super) fn fresh() -> io::Result<Self> {
        let bytes: [u8; LENGTH / 2] = random()?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// What a caller sends.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Whether `given` is this token. Takes the same time for every `given`.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        let mut padded = [0; LENGTH];
        let length = given.len().min(LENGTH);
        padded[..length].copy_from_slice(&given[..length]);
        (padded.ct_eq(self.0.as_bytes()) & given.len().ct_eq(&LENGTH)).into()
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let chance = rustls::crypto::ring::default_provider().secure_random;
    chance.fill(&mut bytes).map_err(|_| io::Error::other("the system gives no chance"))?;
    Ok(bytes)
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a5_only_the_whole_token_is_the_token() {
        let token = Token::fresh().unwrap();
        let secret = token.secret().to_owned();
        assert_eq!(secret.len(), LENGTH);
        assert!(token.is(secret.as_bytes()));
        let longer = format!("{secret}0");
        let other = Token::fresh().unwrap();
        for given in ["", &secret[..20], &secret[1..], &longer, other.secret()] {
            assert!(!token.is(given.as_bytes()), "{}", given.len());
        }
        let padded = [secret.as_bytes(), &[0]].concat();
        assert!(!token.is(&padded));
    }

    #[test]
    fn x1_a_token_is_not_shown() {
        let token = Token::fresh().unwrap();
        assert!(!format!("{token:?}").contains(&token.secret()[..4]));
    }
}
