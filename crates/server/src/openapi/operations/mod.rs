//! Every request that the service accepts. The descriptions are tested: `crates/server/tests/http/openapi.rs` provokes
//! each answer through the router.

mod batches;
mod buckets;
mod reading;
mod service;
mod writing;

use crate::openapi::operation::{
    Answer, Chapter,
    Content::{self, Empty, Problem, Property},
    Operation,
    Verb::Get,
};

/// All operations, in the order of the documentation.
pub(crate) fn operations() -> impl Iterator<Item = &'static Operation> {
    (reading::READING.iter())
        .chain(reading::TIME_TRAVEL)
        .chain(writing::WRITING)
        .chain(batches::BATCHES)
        .chain(buckets::BUCKETS)
        .chain(service::ACCESS)
        .chain(service::SERVICE)
}

/// The path of a page.
pub(crate) const PAGE: &str = "/v1/{domain}/page/{title}";

const CONDITIONS: &[&str] = &["If-None-Match", "If-Match"];

/// The request headers for a body whose URL names exactly one property or entry: `rev/{tid}/{property}`, or an entry.
/// For an entry, the service ignores `If-Modified-Since`, as it does under `rev/latest/`: the content can change twice
/// in a second.
const BODY_REQUEST_HEADERS: &[&str] = &[
    "If-None-Match",
    "If-Match",
    "If-Modified-Since",
    "If-Unmodified-Since",
    "Range",
    "If-Range",
    "Accept-Encoding",
];

const fn answer(
    status: u16,
    content: Content,
    headers: &'static [&'static str],
    meaning: &'static str,
) -> Answer {
    Answer { status, meaning, content, headers }
}

const CACHED_HEADERS: &[&str] = &["ETag", "Cache-Control"];

const fn problem(status: u16, meaning: &'static str) -> Answer {
    answer(status, Problem, &[], meaning)
}

const fn redirect(meaning: &'static str) -> Answer {
    answer(302, Empty, &["Location", "Cache-Control"], meaning)
}

const NOT_MODIFIED: Answer = answer(304, Empty, CACHED_HEADERS, "The client has this version already.");
const PART: Answer = answer(
    206,
    Property,
    &["Content-Range", "ETag"],
    "The requested range of the bytes without content encoding.",
);
const BAD_RANGE: Answer = answer(416, Problem, &["Content-Range"], "The range begins after the last byte.");
const NO_MATCH: Answer = problem(412, "If-Match does not name the current version.");
const NO_MATCH_OR_CHANGED: Answer = problem(
    412,
    "If-Match does not name the current version. Or there is no If-Match, and the property was changed after the time \
     in If-Unmodified-Since.",
);

/// A GET of a page with a query. Callers overwrite the members that differ, such as the method.
const fn get(
    id: &'static str,
    chapter: Chapter,
    query: &'static str,
    summary: &'static str,
    answers: &'static [Answer],
) -> Operation {
    Operation {
        id,
        verb: Get,
        path: PAGE,
        query: Some(query),
        parameters: &[],
        summary,
        description: "",
        headers: &[],
        body: None,
        answers,
        curl: "",
        chapter,
    }
}

/// Like [`get`], for another path and without a query.
const fn plain(
    id: &'static str,
    chapter: Chapter,
    path: &'static str,
    summary: &'static str,
    answers: &'static [Answer],
) -> Operation {
    Operation { path, query: None, ..get(id, chapter, "", summary, answers) }
}
