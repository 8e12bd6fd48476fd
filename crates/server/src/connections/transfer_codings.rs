//! Checks the transfer codings of a request (RFC 9112, section 6.1). The server decodes `chunked` only: a body with
//! another coding would be taken for the bytes that the client means.

use http::{HeaderMap, header};

use crate::connections::Refusal;

/// The error of the HTTP library for a request whose last transfer coding is not `chunked`.
pub(crate) const NOT_CHUNKED: &str = "invalid transfer-encoding parsed";

/// Returns the reason to refuse a request because of its transfer codings. `None` for `chunked` alone, and for none.
pub(crate) fn refusal(headers: &HeaderMap) -> Option<Refusal> {
    let (mut chunked, mut others) = (0, 0);
    for value in headers.get_all(header::TRANSFER_ENCODING) {
        for coding in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            match coding {
                [] => {}
                _ if coding.eq_ignore_ascii_case(b"chunked") => chunked += 1,
                _ => others += 1,
            }
        }
    }
    if chunked > 1 {
        let reason = "the transfer coding chunked is applied more than once".to_owned();
        return Some(Refusal::Malformed { reason });
    }
    (others > 0).then_some(Refusal::TransferCoding)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_chunked_alone_is_accepted() {
        let refusal = |values: &[&str]| {
            let headers =
                values.iter().map(|value| (header::TRANSFER_ENCODING, HeaderValue::from_str(value).unwrap()));
            refusal(&headers.collect())
        };
        for accepted in [&[][..], &["chunked"], &["Chunked"], &[", chunked ,"]] {
            assert_eq!(refusal(accepted), None, "{accepted:?}");
        }
        for other in [
            &["gzip, chunked"][..],
            &["gzip", "chunked"],
            &["identity, chunked"],
            &["chunked, gzip"],
            &["xchunked"],
            &["chunked;a=b"],
        ] {
            assert_eq!(refusal(other), Some(Refusal::TransferCoding), "{other:?}");
        }
        for twice in [&["chunked, chunked"][..], &["chunked", "CHUNKED"], &["chunked, gzip, chunked"]] {
            assert!(matches!(refusal(twice), Some(Refusal::Malformed { .. })), "{twice:?}");
        }
    }
}
