//! Selects the encoding in which a client gets a body (RFC 9110, section 12.5.3).

use http::{HeaderMap, header::ACCEPT_ENCODING};

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentEncoding {
    /// Without compression.
    Identity,
    /// As the zstd frames in which the body is stored.
    Zstd,
    /// As gzip.
    Gzip,
}

/// Chooses zstd if the client names zstd with a weight above 0, and does not prefer `identity`; else gzip under the
/// same conditions. Bodies are stored as zstd, so zstd costs least, whatever weight gzip has.
///
/// `*` alone does not count, since clients that do not know zstd send it. A client that refuses all encodings gets the
/// plain bytes, as the RFC allows.
pub fn content_encoding(headers: &HeaderMap) -> ContentEncoding {
    let mut zstd = 0;
    let mut gzip = 0;
    let mut identity = 0;
    for value in headers.get_all(ACCEPT_ENCODING) {
        for item in value.to_str().unwrap_or_default().split(',') {
            let (coding, parameters) = item.split_once(';').unwrap_or((item, ""));
            let coding = coding.trim();
            if coding.eq_ignore_ascii_case("zstd") {
                zstd = quality(parameters);
            } else if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
                gzip = quality(parameters);
            } else if coding.eq_ignore_ascii_case("identity") {
                identity = quality(parameters);
            }
        }
    }
    if zstd > 0 && zstd >= identity {
        ContentEncoding::Zstd
    } else if gzip > 0 && gzip >= identity {
        ContentEncoding::Gzip
    } else {
        ContentEncoding::Identity
    }
}

/// Returns the weight in thousandths: 1000 if there is none, and 0 if it is malformed.
fn quality(parameters: &str) -> u16 {
    for parameter in parameters.split(';') {
        let Some((name, value)) = parameter.split_once('=') else { continue };
        if name.trim().eq_ignore_ascii_case("q") {
            let weight = value.trim().parse::<f32>().ok().filter(|weight| (0.0..=1.0).contains(weight));
            return weight.map_or(0, |weight| (weight * 1000.0) as u16);
        }
    }
    1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_the_encoding_that_they_accept() {
        let cases = [
            ("zstd", ContentEncoding::Zstd),
            ("gzip, deflate, br, zstd", ContentEncoding::Zstd),
            ("ZSTD;q=0.5", ContentEncoding::Zstd),
            ("zstd ; Q=1.000, identity", ContentEncoding::Zstd),
            ("zstd;q=0", ContentEncoding::Identity),
            ("zstd;q=0.000", ContentEncoding::Identity),
            ("zstd;q=much", ContentEncoding::Identity),
            ("zstd;q=7", ContentEncoding::Identity),
            ("zstd;q=0.4, identity;q=0.5", ContentEncoding::Identity),
            ("gzip, zstd;q=0.5", ContentEncoding::Zstd),
            ("gzip, br", ContentEncoding::Gzip),
            ("X-GZIP", ContentEncoding::Gzip),
            ("gzip;q=0.001", ContentEncoding::Gzip),
            ("zstd;q=0, gzip;q=0.1, identity;q=0.1", ContentEncoding::Gzip),
            ("zstd;q=0.4, identity;q=0.5, gzip", ContentEncoding::Gzip),
            ("gzip;q=0", ContentEncoding::Identity),
            ("gzip;q=0.4, identity", ContentEncoding::Identity),
            ("gzip;q=x", ContentEncoding::Identity),
            ("br, deflate", ContentEncoding::Identity),
            ("gzipx", ContentEncoding::Identity),
            ("*", ContentEncoding::Identity),
            ("identity;q=0", ContentEncoding::Identity),
            ("", ContentEncoding::Identity),
        ];
        for (value, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, value.parse().unwrap());
            assert_eq!(content_encoding(&headers), expected, "{value}");
        }
        assert_eq!(content_encoding(&HeaderMap::new()), ContentEncoding::Identity);
    }

    #[test]
    fn several_accept_encoding_headers_are_read_as_one_list() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT_ENCODING, "gzip".parse().unwrap());
        headers.append(ACCEPT_ENCODING, "zstd".parse().unwrap());
        assert_eq!(content_encoding(&headers), ContentEncoding::Zstd);
    }
}
