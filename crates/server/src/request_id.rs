//! The id of a request, in its answer and in the log.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header with the id.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is accepted from a client.
const MAX_BYTES: usize = 128;

/// Makes ids from the seed of the process and a number.
#[derive(Debug)]
pub(crate) struct RequestIds {
    seed: u32,
    last: AtomicU64,
}

impl RequestIds {
    /// `seed` must be random, so that the ids of two processes differ.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed: (seed ^ (seed >> 32)) as u32, last: AtomicU64::new(0) }
    }

    /// Returns the id in the headers of a request if the id is usable, or else a new id.
    pub(crate) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        match headers.get(&REQUEST_ID) {
            Some(id) if is_sane(id.as_bytes()) => id.clone(),
            _ => self.next(),
        }
    }

    fn next(&self) -> HeaderValue {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let mut text = [b'0'; 25];
        write_hex(&mut text[..8], u64::from(self.seed));
        text[8] = b'-';
        write_hex(&mut text[9..], number);
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("unnamed"))
    }
}

/// Fills `digits` with the lowest digits of a number.
fn write_hex(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// Whether an id is harmless in a log and in a header.
fn is_sane(id: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte);
    !id.is_empty() && id.len() <= MAX_BYTES && id.iter().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_show_their_process() {
        let ids = RequestIds::new(0x0123_4567_0000_0000);
        assert_eq!(ids.of(&HeaderMap::new()), "01234567-0000000000000000");
        assert_eq!(ids.of(&HeaderMap::new()), "01234567-0000000000000001");
    }

    #[test]
    fn usable_id_of_a_client_is_kept() {
        let ids = RequestIds::new(1);
        for (name, kept) in [
            ("abc-123.def:7", true),
            ("", false),
            ("a b", false),
            ("a\"b", false),
            ("é", false),
            (&"a".repeat(128), true),
            (&"a".repeat(129), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(name.as_bytes()).unwrap());
            assert_eq!(ids.of(&headers) == name, kept, "{name}");
        }
    }
}
