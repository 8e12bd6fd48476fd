//! Random numbers.

use crate::{Result, TransportError};

/// A random number that nobody can guess: for the boundary of a form, which no content may contain, and for the key of
/// an increment.
pub(crate) fn number() -> Result<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| TransportError::Source(format!("no random number: {error}").into()))?;
    Ok(u128::from_ne_bytes(bytes))
}
