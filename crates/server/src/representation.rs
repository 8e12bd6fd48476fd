//! The answer with a property or an entry: its headers, and its bytes in a form that the client accepts.

use std::ops::Range;

use axum::{body::Body as HttpBody, response::Response};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use rashomon_clock::http_date;
use rashomon_pages::rewriting::Transformed;
use rashomon_pages::{
    Body, Chunk, ChunkedBody, Headers, Parent, Property, PropertyName, StoredHeaders, Title,
};
use rashomon_protocol::{
    conditional::{self, Modified, Verdict},
    negotiate::{self, ContentEncoding},
    range::{self, Selection},
    spec_version::Profile,
};

use crate::{
    caching::Caching,
    extract::encode_title,
    no_body::no_body,
    problem::{Kind, Problem, Result, header_value},
};

/// The content security policy of stored bodies. Stored HTML comes from the origin of this server but is not
/// trusted, so it may only be displayed: `sandbox` disables scripts, and gives the document an origin of its
/// own. Images, styles, fonts and media may be loaded.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "sandbox; default-src 'none'; img-src * data:; style-src * 'unsafe-inline'; font-src * data:; media-src *; \
     form-action 'none'",
);

/// The content type that is sent if the stored one is not a valid value of a header.
const UNKNOWN_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");

const MEMENTO_DATETIME: HeaderName = HeaderName::from_static("memento-datetime");

/// The URL under which a property is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Address {
    /// As the latest.
    Latest,
    /// Under its tid.
    Tid,
}

/// The headers of a property or an entry, ready to be sent.
#[derive(Debug)]
pub(crate) struct Representation {
    /// The quoted entity tag without a suffix.
    etag: String,
    /// The last change.
    modified: Modified,
    size: u64,
    /// All headers of the plain body.
    identity: HeaderMap,
    /// The entity tag of the compressed body.
    compressed_etag: HeaderValue,
}

impl Representation {
    /// Makes the headers of a property. `has_versions`: whether other spec versions of the property can be returned.
    pub(crate) fn new(
        title: &Title,
        name: &PropertyName,
        property: &Property,
        address: Address,
        rule: &StoredHeaders,
        has_versions: bool,
    ) -> Self {
        let etag = conditional::etag(&property.version);
        let size = property.info.size;
        let modified = property.info.rewritten_at.unwrap_or_else(|| property.version.tid.time());
        let headers = common_headers(title, name, property, address, rule);
        // For the latest, an equal date does not prove that nothing changed: the latest can change twice
        // within a second, or to a render with an earlier time.
        let modified = Modified { at: modified, is_exact: address == Address::Tid };
        let mut representation = Self::with_headers(headers, etag, modified, size);
        if has_versions {
            representation.vary_by_version();
        }
        representation
    }

    /// Makes the headers of another spec version of a property.
    pub(crate) fn of_version(
        title: &Title,
        name: &PropertyName,
        property: &Property,
        address: Address,
        rule: &StoredHeaders,
        version: &Transformed,
    ) -> Self {
        let mut headers = common_headers(title, name, property, address, rule);
        headers.insert(header::CONTENT_TYPE, content_type_of(&version.content_type));
        let spec = Profile::of_content_type(&version.content_type);
        let etag = conditional::etag(&property.version);
        // A later version of a transformer may make other bytes of the same document.
        let hash = xxhash_rust::xxh3::xxh3_64(&version.body);
        let flavor = spec.as_ref().map_or_else(|| "other", Profile::version);
        let etag = format!("{};{flavor}-{hash:016x}\"", &etag[..etag.len() - 1]);
        let modified = property.info.rewritten_at.unwrap_or_else(|| property.version.tid.time());
        // An equal date does not prove that the transformer is the same.
        let modified = Modified { at: modified, is_exact: false };
        let mut representation = Self::with_headers(headers, etag, modified, version.body.len() as u64);
        representation.vary_by_version();
        representation
    }

    fn vary_by_version(&mut self) {
        self.identity.insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    }

    /// Adds the headers of a body to other headers. `etag` is quoted and has no suffix.
    pub(crate) fn with_headers(mut headers: HeaderMap, etag: String, modified: Modified, size: u64) -> Self {
        headers.insert(header::ETAG, header_value(&etag));
        headers.insert(header::LAST_MODIFIED, header_value(&http_date::format(modified.at)));
        headers.insert(header::CONTENT_LENGTH, size.into());
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        let compressed_etag = header_value(&conditional::etag_in(&etag, ContentEncoding::Zstd));
        Self { etag, modified, size, identity: headers, compressed_etag }
    }

    /// The approximate size in memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        const HEADER_OVERHEAD: usize = 150;
        let headers =
            self.identity.iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER_OVERHEAD);
        size_of::<Self>() + 2 * self.etag.len() + headers.sum::<usize>()
    }

    /// Answers a request for the body, with the whole body, a part of the body, the compressed body, or no body.
    pub(crate) fn answer(&self, request: &HeaderMap, body: &Body) -> Result<Response> {
        match conditional::evaluate(request, &self.etag, Some(self.modified)) {
            Verdict::Proceed => {}
            Verdict::NotModified { encoding } => return Ok(self.not_modified(encoding)),
            Verdict::Failed => {
                return Err(Problem::new(
                    Kind::PreconditionFailed,
                    format!(
                        "the content has changed: If-Match names another version, or If-Unmodified-Since an \
                         earlier time; the current version is {}",
                        self.etag.trim_matches('"')
                    ),
                ));
            }
        }
        match range::select(request, self.size, &self.etag) {
            Selection::Whole => {}
            Selection::Bytes { first, last } => return Ok(self.part(body, first, last)),
            Selection::Unsatisfiable => {
                let problem = Problem::new(
                    Kind::RangeNotSatisfiable,
                    format!("the body has {} bytes: request a range that begins before its end", self.size),
                );
                let content_range = header_value(&format!("bytes */{}", self.size));
                return Err(problem.with_header(header::CONTENT_RANGE, content_range));
            }
        }
        let compressed = match (negotiate::content_encoding(request), body) {
            // The middleware makes gzip of the plain bytes.
            (ContentEncoding::Identity | ContentEncoding::Gzip, _) => None,
            (ContentEncoding::Zstd, Body::Inline(body)) => {
                body.zstd().map(|frames| (Some(frames.len()), HttpBody::from(frames)))
            }
            // The size is not known before the whole body has been read.
            (ContentEncoding::Zstd, Body::Chunked(body)) => Some((None, zstd_stream(body))),
        };
        let (headers, bytes) = match (compressed, body) {
            (Some((size, frames)), _) => (self.compressed(size), frames),
            (None, Body::Inline(body)) => (self.identity.clone(), HttpBody::from(body.plain.clone())),
            (None, Body::Chunked(body)) => (self.identity.clone(), plain_stream(body, 0, self.size)),
        };
        let mut response = Response::new(bytes);
        *response.headers_mut() = headers;
        Ok(response)
    }

    /// All headers of the compressed body.
    fn compressed(&self, size: Option<usize>) -> HeaderMap {
        let mut headers = self.identity.clone();
        headers.insert(header::ETAG, self.compressed_etag.clone());
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("zstd"));
        headers.remove(header::ACCEPT_RANGES);
        match size {
            Some(size) => headers.insert(header::CONTENT_LENGTH, size.into()),
            None => headers.remove(header::CONTENT_LENGTH),
        };
        headers
    }

    fn not_modified(&self, encoding: ContentEncoding) -> Response {
        let mut response = no_body(StatusCode::NOT_MODIFIED);
        let mut headers = self.identity.clone();
        for of_the_body in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::ACCEPT_RANGES] {
            headers.remove(of_the_body);
        }
        // The client has the compressed form under this tag; another tag would not be found in its cache.
        if encoding != ContentEncoding::Identity {
            headers.insert(header::ETAG, header_value(&conditional::etag_in(&self.etag, encoding)));
        }
        *response.headers_mut() = headers;
        response
    }

    /// The answer with a part of the body. The positions of a range count uncompressed bytes.
    fn part(&self, body: &Body, first: u64, last: u64) -> Response {
        let length = last - first + 1;
        let bytes = match body {
            Body::Inline(body) => HttpBody::from(body.plain.slice(first as usize..=last as usize)),
            Body::Chunked(body) => plain_stream(body, first, length),
        };
        let mut response = Response::new(bytes);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        *response.headers_mut() = self.identity.clone();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, length.into());
        headers.insert(header::CONTENT_RANGE, header_value(&format!("bytes {first}-{last}/{}", self.size)));
        response
    }
}

fn common_headers(
    title: &Title,
    name: &PropertyName,
    property: &Property,
    address: Address,
    rule: &StoredHeaders,
) -> HeaderMap {
    let title = encode_title(title);
    let version = &property.version;
    let mut headers = HeaderMap::with_capacity(16);
    let Headers { content_type, other } = &property.info.headers;
    // Headers that are not stored any more may have been stored before. They are not sent.
    insert_stored(&mut headers, other.iter().filter(|(name, _)| rule.keep(name)));
    headers.insert(header::CONTENT_TYPE, content_type_of(content_type));
    headers.insert(header::CONTENT_LOCATION, header_value(&format!("?rev/{}/{name}", version.tid)));
    headers.insert("x-rev", header_value(&format!("{title}?rev/{}", version.rev)));
    if let Some(Parent::Revision(parent)) = property.parent {
        headers.insert("x-parent", header_value(&format!("{title}?rev/{parent}")));
    }
    if address == Address::Tid {
        headers.insert(MEMENTO_DATETIME, header_value(&http_date::format(version.tid.time())));
    }
    let caching = match address {
        Address::Latest => Caching::Mutable,
        Address::Tid => Caching::Tid,
    };
    headers.insert(header::CACHE_CONTROL, caching.header());
    headers
}

/// Adds stored headers, except those whose name or value is not valid in HTTP.
pub(crate) fn insert_stored<'a>(
    headers: &mut HeaderMap,
    stored: impl Iterator<Item = (&'a String, &'a String)>,
) {
    for (name, value) in stored {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
}

/// Makes the header of a stored content type.
pub(crate) fn content_type_of(stored: &str) -> HeaderValue {
    HeaderValue::try_from(stored).unwrap_or(UNKNOWN_TYPE)
}

/// Streams a part of a large body. Each chunk is read when the previous one has been sent.
fn plain_stream(body: &ChunkedBody, first: u64, length: u64) -> HttpBody {
    let size = body.chunk_size();
    let end = first + length;
    // The number of chunks of a body fits into 32 bits.
    let pieces = chunks(body, (first / size) as u32..end.div_ceil(size) as u32);
    let mut begin = first - first % size;
    HttpBody::from_stream(pieces.map_ok(move |chunk| {
        let skipped = first.saturating_sub(begin) as usize;
        let wanted = chunk.plain.len().min((end - begin) as usize);
        begin += chunk.plain.len() as u64;
        chunk.plain.slice(skipped.min(wanted)..wanted)
    }))
}

/// Streams a whole large body as the zstd frames in which it is stored.
fn zstd_stream(body: &ChunkedBody) -> HttpBody {
    HttpBody::from_stream(chunks(body, 0..body.chunks()).map_ok(|chunk| chunk.zstd))
}

fn chunks(
    body: &ChunkedBody,
    indexes: Range<u32>,
) -> impl Stream<Item = std::result::Result<Chunk, rashomon_pages::Error>> + Send + 'static {
    let body = body.clone();
    stream::iter(indexes).then(move |index| {
        let body = body.clone();
        async move {
            let chunk = body.chunk(index).await;
            chunk.inspect_err(|error| {
                tracing::error!(%error, index, "cannot send the rest of a body: a chunk cannot be read");
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rashomon_pages::{InlineBody, PropertyInfo, PropertyVersion, Sha1};

    use super::*;

    #[test]
    fn stored_headers_that_a_write_may_not_have_are_not_returned() {
        let other = [("x-review", "done"), ("set-cookie", "a=b"), ("x-rev", "7"), ("x-broken", "a\nb")];
        let version =
            PropertyVersion { rev: "7".parse().unwrap(), tid: TID.parse().unwrap(), rewritten_at: None };
        let headers = Headers {
            content_type: "text/\nhtml".to_owned(),
            other: other.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        let info = PropertyInfo { headers, size: 1, sha1: Sha1([0; 20]), rewritten_at: None };
        let body = Body::Inline(InlineBody::new(Bytes::from_static(b"x")));
        let property = Property { version, parent: None, info, body };
        let (title, name) = (Title::new("A").unwrap(), PropertyName::new("html").unwrap());
        let headers =
            Representation::new(&title, &name, &property, Address::Tid, &StoredHeaders::default(), false)
                .identity;
        assert_eq!(headers["x-review"], "done");
        assert_eq!(headers["x-rev"], "A?rev/7");
        assert_eq!(headers["content-type"], "application/octet-stream");
        assert!(!headers.contains_key("set-cookie") && !headers.contains_key("x-broken"), "{headers:?}");
    }

    const TID: &str = "8f545ba0-2601-11e3-885c-4160918f0fb9";
}
