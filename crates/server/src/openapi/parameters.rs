//! The variables in the templates of URLs, and the headers, each with its meaning.

use serde_json::Value;
use utoipa::openapi::{
    KnownFormat, Object, ObjectBuilder, SchemaFormat, Type,
    header::{Header, HeaderBuilder},
};

/// A tid, in examples.
pub(crate) const TID: &str = "8f545ba0-2601-11e3-885c-4160918f0fb9";

/// The id of a token, in examples.
pub(crate) const TOKEN_ID: &str = "6a4e7f30a1b2c3d4e5f6";

/// The pattern of a tid: a UUID of version 1, in lower case.
const TID_PATTERN: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$";

/// The pattern of the numbers from 1 to 2^63 - 1.
const REVISION_PATTERN: &str = "^([1-9][0-9]{0,17}|[1-8][0-9]{18}|9[0-1][0-9]{17}|92[0-1][0-9]{16}|922[0-2][0-9]{15}|\
     9223[0-2][0-9]{14}|92233[0-6][0-9]{13}|922337[0-1][0-9]{12}|92233720[0-2][0-9]{10}|\
     922337203[0-5][0-9]{9}|9223372036[0-7][0-9]{8}|92233720368[0-4][0-9]{7}|\
     922337203685[0-3][0-9]{6}|9223372036854[0-6][0-9]{5}|92233720368547[0-6][0-9]{4}|\
     922337203685477[0-4][0-9]{3}|9223372036854775[0-7][0-9]{2}|922337203685477580[0-6]|\
     9223372036854775807)$";

/// A variable in the template of a path or a query, where its name is in braces.
#[derive(Debug)]
pub(crate) struct UrlVariable {
    /// The name.
    pub name: &'static str,
    /// The meaning of the values, and their form.
    pub meaning: &'static str,
    /// An example of a value.
    pub example: &'static str,
    /// The regular expression of the values, if there is one.
    pattern: Option<&'static str>,
}

impl UrlVariable {
    /// The schema of the values.
    pub(crate) fn schema(&self) -> Object {
        let schema = ObjectBuilder::new().schema_type(Type::String).pattern(self.pattern);
        match self.name {
            "tid" => schema.format(Some(SchemaFormat::Custom("uuid".to_owned()))),
            "time" => schema.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))),
            _ => schema,
        }
        .build()
    }
}

/// All variables in the templates of paths and queries.
pub(crate) const URL_VARIABLES: [UrlVariable; 9] = [
    UrlVariable {
        name: "domain",
        meaning: "The name of a domain, which is one wiki.",
        example: "enwiki",
        pattern: Some("^(?!(batch|tokens|changes|admin)$)[a-z0-9][a-z0-9._-]{0,127}$"),
    },
    UrlVariable {
        name: "title",
        meaning: "The title of a page: UTF-8, at most 1,024 bytes. Slashes are part of it. A space is written as `_`. \
                  Letters, digits and `-_.~;:@$!*(),/` are written as they are. Everything else is percent-encoded, such \
                  as `?` as `%3F`. The characters `&'+=` are accepted in both forms. A GET with any other spelling \
                  is redirected (301) to the canonical URL.",
        example: "Main_Page",
        // No control character, and no segment of one or two dots.
        pattern: Some(r"^(?!\.{1,2}(/|$))(?!.*/\.{1,2}(/|$))[^\u0000-\u001f\u007f-\u009f]{1,1024}$"),
    },
    UrlVariable {
        name: "rev",
        meaning: "A revision: a number from 1 to 9223372036854775807, without leading zeros, unique in its page.",
        example: "12345",
        pattern: Some(REVISION_PATTERN),
    },
    UrlVariable {
        name: "tid",
        meaning: "A render: a UUID of version 1, in lower case. It carries the render's time.",
        example: TID,
        pattern: Some(TID_PATTERN),
    },
    UrlVariable {
        name: "time",
        meaning: "A time, as in RFC 3339, with at most six digits after the seconds. The `+` of an offset may be written as \
                  `%2B`. A date alone, such as `2013-09-26`, means the end of that day in UTC.",
        example: "2013-09-26T00:00:00Z",
        pattern: None,
    },
    UrlVariable {
        name: "property",
        meaning: "A property: one named body of bytes, such as `html`, `wikitext`, `data-parsoid`.",
        example: "html",
        pattern: Some("^[a-z][a-z0-9_-]{0,63}$"),
    },
    UrlVariable {
        name: "bucket",
        meaning: "The name of a bucket: 1 to 64 of a-z, 0-9 and '-', beginning with a letter. `page` is the bucket of \
                  pages; `import`, `export`, `changes`, `digest` and `timeline` are reserved.",
        example: "math-png",
        pattern: Some("^(?!(page|import|export|changes|digest|timeline)$)[a-z][a-z0-9-]{0,63}$"),
    },
    UrlVariable {
        name: "key",
        meaning: "The key of an entry or a counter: UTF-8, at most 1,024 bytes. It is written like a title, except that a space is \
                  written as `%20`, and differs from `_`.",
        example: "a.png",
        pattern: Some(r"^(?!\.{1,2}(/|$))(?!.*/\.{1,2}(/|$))[^\u0000-\u001f\u007f-\u009f]{1,1024}$"),
    },
    UrlVariable {
        name: "id",
        meaning: "The id of a token, as the list of tokens has it. It is no secret.",
        example: TOKEN_ID,
        pattern: Some("^[0-9a-f]{20}$"),
    },
];

/// Returns the variable of this name.
///
/// # Panics
///
/// Panics if there is no such variable.
#[must_use]
pub(crate) fn url_variable(name: &str) -> &'static UrlVariable {
    let found = URL_VARIABLES.iter().find(|known| known.name == name);
    found.unwrap_or_else(|| panic!("the table of operations has a variable without a description: {name}"))
}

/// The meaning of a parameter that may follow the query of a list, after `&`.
///
/// # Panics
///
/// Panics if there is no such parameter.
#[must_use]
pub(crate) fn list_parameter(name: &str) -> &'static str {
    match name {
        "limit" => "Maximum number of entries.",
        "page" => "Position in the list: opaque, taken from `next`.",
        other => panic!("the table of operations has a parameter without a description: {other}"),
    }
}

/// The schema of a parameter of a list (see [`list_parameter`]). A list has at most `max_entries` entries.
pub(crate) fn list_parameter_schema(name: &str, max_entries: usize) -> Object {
    let schema = ObjectBuilder::new();
    match name {
        "limit" => schema.schema_type(Type::Integer).minimum(Some(1)).maximum(Some(max_entries)).build(),
        "page" => schema.schema_type(Type::String).pattern(Some("^[A-Za-z0-9_-]+$")).build(),
        other => panic!("the table of operations has a parameter without a schema: {other}"),
    }
}

/// The headers of requests: name, meaning, example.
pub(crate) const REQUEST_HEADERS: [(&str, &str, &str); 13] = [
    (
        "If-None-Match",
        "Entity tags of versions that the client has; `*` is any version. If one of them is current, a read is answered \
         with 304, and a write with 412. So a PUT with `*` only creates.",
        "\"12345/8f545ba0-2601-11e3-885c-4160918f0fb9\"",
    ),
    (
        "If-Match",
        "Entity tags of the expected versions: 412 if none of them is current.",
        "\"12345/8f545ba0-2601-11e3-885c-4160918f0fb9\"",
    ),
    (
        "If-Modified-Since",
        "304 if the content has not changed since. Used only for URLs with a tid: the latest, and an entry, can \
         change twice in a second.",
        "Wed, 25 Sep 2013 16:43:09 GMT",
    ),
    (
        "If-Unmodified-Since",
        "Without If-Match: 412 if the content has changed since.",
        "Wed, 25 Sep 2013 16:43:09 GMT",
    ),
    ("Range", "One range of bytes.", "bytes=0-1023"),
    (
        "If-Range",
        "The entity tag to which Range applies; for another version, the whole body is sent.",
        "\"12345/8f545ba0-2601-11e3-885c-4160918f0fb9\"",
    ),
    (
        "Accept-Encoding",
        "With `zstd`, the body is sent compressed, as it is stored. With `gzip` and without `zstd`, it is sent as gzip.",
        "zstd",
    ),
    ("Accept-Datetime", "The requested time (RFC 7089).", "Wed, 25 Sep 2013 16:43:09 GMT"),
    (
        "Content-Type",
        "Stored, and returned with the body. Without it, a property keeps its type, and an entry gets the type that its \
         bucket defines.",
        "text/html; charset=utf-8",
    ),
    ("Content-Language", "Stored, and returned with the body.", "en"),
    (
        "Idempotency-Key",
        "A text that marks the repeats of one request: 1 to 255 visible ASCII characters. Every other request with this \
         header is 400.",
        "b5d2ad26-7d0c-4a2e-9f0e-6f1c0a5b8a11",
    ),
    ("Content-Disposition", "Stored, and returned with the entry.", "attachment; filename=a.png"),
    ("Cache-Control", "Stored, and returned with the entry.", "max-age=3600"),
];

/// The headers of answers: name, meaning, example.
pub(crate) const ANSWER_HEADERS: [(&str, &str, &str); 16] = [
    (
        "ETag",
        "The version of the bytes. For a property: `\"{rev}/{tid}\"`, or `\"{rev}/{tid}/{microseconds}\"` once it \
         was replaced, with the time of the replacement since 1970. For an entry: another one after each PUT. The tag of a compressed body ends with `;zstd\"` or `;gzip\"`.",
        "\"12345/8f545ba0-2601-11e3-885c-4160918f0fb9\"",
    ),
    (
        "Last-Modified",
        "The time at which the property was last replaced. If it was never replaced, the time of the render. For an \
         entry, the time of its last PUT.",
        "Wed, 25 Sep 2013 16:43:09 GMT",
    ),
    (
        "Content-Location",
        "The permanent URL of the bytes (by tid), relative to the page.",
        "?rev/8f545ba0-2601-11e3-885c-4160918f0fb9/html",
    ),
    ("Content-Range", "The range of the sent bytes, and the total.", "bytes 0-1023/7021"),
    (
        "Location",
        "The redirect's target, or the written render: an absolute path, with the prefix of a proxy before it.",
        "/v1/enwiki/page/Main_Page?rev/8f545ba0-2601-11e3-885c-4160918f0fb9/",
    ),
    (
        "Link",
        "The original, its latest version, its timegate and its timemap (RFC 7089). In the redirect of a page also the \
         newest state, in the redirect of a timegate the selected state, with the first, the previous, the next and the \
         last one. The links are absolute URLs, in which a semicolon is `%3B`.",
        "<https://en.example.org/wiki/Main_Page?timegate/html>; rel=\"timegate\"",
    ),
    (
        "Memento-Datetime",
        "The time at which the render was made (RFC 7089).",
        "Wed, 25 Sep 2013 16:43:09 GMT",
    ),
    ("x-rev", "The revision, with the page's title.", "Main_Page?rev/12345"),
    ("x-parent", "The parent revision, if it is known.", "Main_Page?rev/12344"),
    ("Vary", "The request headers that the answer depends on.", "accept-encoding"),
    (
        "Cache-Control",
        "Which caches may keep the answer, and for how long.",
        "public, max-age=3600, s-maxage=3600",
    ),
    ("Allow", "The methods of the resource.", "GET, HEAD, POST, OPTIONS"),
    ("Retry-After", "Seconds after which to try again.", "2"),
    ("Content-Security-Policy", "Forbids scripts in browsers.", "sandbox; default-src 'none'"),
    ("X-Content-Type-Options", "Forbids browsers to guess the type.", "nosniff"),
    (
        "x-request-id",
        "The identifier of the request, which is also in the log; taken from the request if it has one.",
        "5f0c3c6b00000001",
    ),
];

/// Makes the description of a header of an answer.
pub(crate) fn header(meaning: &str, example: &str) -> Header {
    HeaderBuilder::new()
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .description(Some(meaning))
        .example(Some(Value::from(example)))
        .build()
}
