//! Random numbers.

use crate::{Result, TransportError};

/// A random number that nobody can guess: for the boundary of a form, which no content may contain, and for the key of
/// an increment.
pub(crate) fn number() -> Result<u128> {
    number_from(getrandom::fill)
}

fn number_from(fill: impl FnOnce(&mut [u8]) -> std::result::Result<(), getrandom::Error>) -> Result<u128> {
    let mut bytes = [0_u8; 16];
    fill(&mut bytes).map_err(|error| TransportError::Random(error.into()))?;
    Ok(u128::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn missing_random_numbers_are_not_an_error_of_the_body() {
        let error = number_from(|_| Err(getrandom::Error::UNEXPECTED)).unwrap_err();
        let Error::Transport(error) = &error else { panic!("{error}") };
        assert!(matches!(error, TransportError::Random(_)), "{error}");
        assert!(error.is_unsent());
        assert!(error.to_string().starts_with("cannot read a random number"), "{error}");
    }
}
