//! The token of a request: in the `Authorization` header (RFC 6750), and nowhere else.

use std::borrow::Cow;

use crate::access::{MAX_TOKEN_BYTES, TokenText};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, Uri, header};
use percent_encoding::percent_decode_str;

use crate::problem::{Problem, Result};

/// The scheme of the header.
const BEARER: &str = "bearer";

/// Names of query parameters in which clients of other services send tokens.
const TOKEN_PARAMETERS: [&str; 4] = ["access_token", "bearer_token", "id_token", "jwt"];

/// Returns the token of a request, if the request has one. `is_open`: whether every client may do everything. In that
/// case the header may be meant for a proxy, so other schemes are ignored.
///
/// # Errors
///
/// Returns 400 for several headers, and 401 for a header without a well-formed token.
pub(crate) fn token_of(headers: &HeaderMap, is_open: bool) -> Result<Option<&str>> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::malformed("the request has several Authorization headers: send one"));
    }
    let (scheme, token) = match value.to_str() {
        Ok(text) => text.trim().split_once(' ').unwrap_or((text.trim(), "")),
        Err(_) if is_open => return Ok(None),
        Err(_) => return Err(unreadable()),
    };
    if !scheme.eq_ignore_ascii_case(BEARER) {
        return if is_open { Ok(None) } else { Err(unreadable()) };
    }
    let token = token.trim_start();
    if token.len() > MAX_TOKEN_BYTES {
        return Err(Problem::invalid_token(format!(
            "a token must have at most {MAX_TOKEN_BYTES} bytes, not {}",
            token.len()
        )));
    }
    if token.is_empty() || !token.bytes().all(is_token_byte) {
        return Err(unreadable());
    }
    Ok(Some(token))
}

/// Whether a byte may be in a token (RFC 6750, section 2.1).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

/// The problem for a header that has no well-formed token.
fn unreadable() -> Problem {
    Problem::invalid_token("the Authorization header must be the word Bearer, a space and a token")
}

/// Whether a URL seems to contain a token.
pub(crate) fn has_token(uri: &Uri) -> bool {
    uri.query().is_some_and(has_parameter)
        || has_service_token(uri.path())
        || has_web_token(uri.path())
        || uri.query().is_some_and(has_service_token)
}

/// Returns the path of a URL without its query. Returns `*` if the path seems to contain a token.
pub(crate) fn without_token(uri: &Uri) -> Uri {
    let is_in_path = has_service_token(uri.path()) || has_web_token(uri.path());
    let path = if is_in_path { "*" } else { uri.path() };
    path.parse().unwrap_or(Uri::from_static("*"))
}

/// Whether a query has a parameter that is meant for a token, or a parameter whose value is a JSON Web Token.
fn has_parameter(query: &str) -> bool {
    query.split(['&', ';']).any(|part| {
        let (name, value) = part.split_once('=').unwrap_or(("", part));
        let name = decoded(name).to_ascii_lowercase();
        TOKEN_PARAMETERS.contains(&name.as_str()) || is_web_token(&decoded(value))
    })
}

/// Whether a text has the form of a signed JSON Web Token: three parts separated by dots. The first part is a JSON
/// object with an algorithm, in base64.
fn is_web_token(text: &str) -> bool {
    let text = text.trim_start_matches("Bearer").trim_start();
    let mut parts = text.split('.');
    let (Some(header), Some(_), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let json = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    serde_json::from_slice::<serde_json::Value>(&json).is_ok_and(|header| header.get("alg").is_some())
}

/// Whether a segment of a path is a JSON Web Token.
fn has_web_token(path: &str) -> bool {
    // Every signed web token is longer than 40 characters; the check saves the decoding of most paths.
    path.len() > 40 && path.split('/').any(|segment| is_web_token(&decoded(segment)))
}

/// Whether a part of a URL contains a token of this service at any position.
fn has_service_token(part: &str) -> bool {
    // Most URLs are shorter than a token.
    part.len() >= TokenText::BYTES && TokenText::is_in(&decoded(part))
}

fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// The problem for a URL with a token: 400.
pub(crate) fn token_in_url() -> Problem {
    Problem::malformed(
        "a token in a URL gets into the logs of proxies and browsers: send it in the header 'Authorization: Bearer \
         TOKEN', and revoke this one if it is valid",
    )
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::problem::Kind;

    fn headers(values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    fn kind(values: &[&[u8]]) -> Kind {
        token_of(&headers(values), false).unwrap_err().kind()
    }

    #[test]
    fn token_comes_after_the_scheme() {
        for value in ["Bearer abc", "bearer abc", "BEARER   abc", "Bearer abc "] {
            let headers = headers(&[value.as_bytes()]);
            assert_eq!(token_of(&headers, false).unwrap(), Some("abc"), "{value}");
        }
        assert_eq!(token_of(&HeaderMap::new(), false).unwrap(), None);
    }

    #[test]
    fn malformed_headers_are_refused() {
        let long = [b"Bearer ".as_slice(), &b"a".repeat(MAX_TOKEN_BYTES + 1)].concat();
        for value in [
            &b"Bearer"[..],
            b"Bearer ",
            b"",
            b"abc",
            b"Basic YTpi",
            b"Bearer a b",
            b"Bearer a,b",
            b"Bearer \xe9",
            b"Bearer \"a\"",
            b"Bearer a, Bearer b",
            &long,
        ] {
            assert_eq!(kind(&[value]), Kind::Unauthorized, "{}", String::from_utf8_lossy(value));
        }
        assert_eq!(kind(&[b"Bearer a", b"Bearer a"]), Kind::Malformed);
    }

    #[test]
    fn open_server_ignores_other_schemes() {
        for value in [&b"Basic YTpi"[..], b"Digest \xe9", b"x"] {
            assert_eq!(token_of(&headers(&[value]), true).unwrap(), None);
        }
        assert!(token_of(&headers(&[b"Bearer a b"]), true).is_err());
    }

    #[test]
    fn tokens_in_urls_are_recognized() {
        let ours = format!("rashomon_{}_{}", "0".repeat(20), "a".repeat(64));
        let encoded = ours.replace('_', "%5f").replace('r', "%72");
        for url in [
            format!("/v1/tokens/{ours}"),
            format!("/v1/tokens/{encoded}"),
            format!("/v1/a/page/x{ours}y?rev/"),
            format!("/v1/a/page/rashomon_{ours}"),
            format!("/v1/a/page/B?rev/{ours}/html"),
            format!("/v1/a/page/B?rev/&limit={encoded}"),
        ] {
            let uri = url.parse().unwrap();
            assert!(has_token(&uri), "{url}");
            let kept = without_token(&uri);
            assert!(!has_token(&kept) && kept.query().is_none(), "{kept}");
        }
        for url in [
            format!("/v1/tokens/{}", "0".repeat(20)),
            format!("/v1/a/page/{}", "rashomon_".repeat(20)),
            format!("/v1/a/page/{}", &ours[..ours.len() - 1]),
        ] {
            assert!(!has_token(&url.parse().unwrap()), "{url}");
        }
        for query in [
            "access_token=x",
            "rev/latest/html&access_token=x",
            "rev/latest/html&Access%5FToken=",
            "rev/&jwt=x",
            &ours,
            &format!("rev/&page={ours}"),
            "limit=eyJhbGciOiJFUzI1NiJ9.e30.c2ln",
            // With a space in the header's JSON.
            "rev/&x=eyAiYWxnIjogIkVTMjU2In0.e30.c2ln",
        ] {
            assert!(has_token(&format!("/v1/a/page/B?{query}").parse().unwrap()), "{query}");
        }
        for query in [
            "",
            "rev/latest/html",
            "rev/&page=eyJhIjoxfQ",
            "rev/latest/token",
            "rev/2013-02-23T22:23:24Z/html",
        ] {
            assert!(!has_token(&format!("/v1/a/page/B?{query}").parse().unwrap()), "{query}");
        }
    }
}
