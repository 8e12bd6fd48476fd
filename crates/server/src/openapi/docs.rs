//! The page `/docs`: every request with its answers, the limits of this server, and the kinds of problems.

use crate::access::{BucketKind, Right};
use askama::Template;
use axum::{
    extract::{Request, State},
    response::Response,
};
use rashomon_clock::rfc3339;
use rashomon_entries::{KeyRange, Order};
use rashomon_pages::{Definitions, DomainName, Page, PropertyName, Render, Title, Versions};
use rashomon_protocol::TYPE_BASE;
use utoipa::openapi::{Object, RefOr, Schema};

use super::{
    answer_schemas,
    operation::{Chapter, Content, Operation, RequestBody, Verb},
    operations::operations,
    parameters::{self, ANSWER_HEADERS, REQUEST_HEADERS, URL_VARIABLES, UrlVariable},
    schemas,
};
use crate::{
    Api, Settings,
    authorize::caller_of,
    extract::{MAX_LIMIT, encode_key, encode_title},
    handlers::{
        batch::{MAX_CONCURRENT, MAX_REQUESTS},
        bucket::MAX_DEFINITION_BYTES,
        form::MAX_PROPERTIES,
        write::MAX_COMMENT_BYTES,
    },
    pages::{base_url, html},
    problem::{Kind, Result},
    staging::max_batch_bytes,
};

/// A part of a sentence.
struct Span {
    text: String,
    is_code: bool,
}

/// A name and its meaning.
struct Item {
    name: String,
    meaning: Vec<Span>,
}

struct OperationView {
    id: &'static str,
    verb: &'static str,
    url: String,
    summary: &'static str,
    description: Vec<Span>,
    /// The inputs: parameters, headers, fields.
    inputs: Vec<Item>,
    answers: Vec<AnswerView>,
    curl: String,
}

struct AnswerView {
    status: u16,
    meaning: Vec<Span>,
    content: Option<String>,
    headers: &'static [&'static str],
}

struct ChapterView {
    name: &'static str,
    title: &'static str,
    operations: Vec<OperationView>,
}

struct DocumentView {
    name: &'static str,
    example: String,
    members: Vec<Item>,
}

struct PropertyView {
    name: String,
    content_type: String,
    versions: &'static str,
    max_size: String,
}

struct ProblemView {
    name: &'static str,
    status: u16,
    title: &'static str,
}

#[derive(Template)]
#[template(path = "docs.html")]
struct DocsPage {
    version: &'static str,
    names: Vec<Item>,
    chapters: Vec<ChapterView>,
    documents: Vec<DocumentView>,
    headers: Vec<Item>,
    properties: Vec<PropertyView>,
    limits: Vec<(&'static str, String)>,
    type_base: &'static str,
    problems: Vec<ProblemView>,
}

/// The documents that the page describes.
const DOCUMENTS: [&str; 11] = [
    "Render",
    "Revision",
    "RevisionList",
    "Written",
    "Bucket",
    "BucketList",
    "EntryList",
    "NewToken",
    "TokenList",
    "BatchAnswer",
    "Problem",
];

/// `/docs`
pub(super) async fn show(State(api): State<Api>, request: Request) -> Result<Response> {
    api.check_operator(caller_of(request.extensions()))?;
    let base = base_url(&request, &api.settings.proxies);
    let sample = Sample::find(&api).await;
    let definitions = &api.buckets.settings().definitions;
    let page = DocsPage::new(&base, &sample, definitions, &api.settings);
    Ok(api.restrict_operator(html(&page)?))
}

impl DocsPage {
    /// The page of a server with these settings. `base` is the beginning of its URLs.
    fn new(base: &str, sample: &Sample, definitions: &Definitions, settings: &Settings) -> Self {
        let chapter = |chapter: Chapter| ChapterView {
            name: chapter.name(),
            title: chapter.title(),
            operations: (operations())
                .filter(|operation| operation.chapter == chapter)
                .map(|operation| view(operation, base, sample))
                .collect(),
        };
        Self {
            version: env!("CARGO_PKG_VERSION"),
            names: URL_VARIABLES
                .iter()
                .map(|UrlVariable { name, meaning, .. }| item(name, meaning))
                .collect(),
            chapters: Chapter::ALL.map(chapter).into(),
            documents: DOCUMENTS.map(document).into(),
            headers: ANSWER_HEADERS.map(|(name, meaning, _)| item(name, meaning)).into(),
            properties: properties(definitions),
            limits: limits(settings),
            type_base: TYPE_BASE,
            problems: (Kind::ALL.iter())
                .map(|kind| {
                    let (status, name, title) = kind.describe();
                    ProblemView { name, status: status.as_u16(), title }
                })
                .collect(),
        }
    }
}

/// Splits a text at backticks, which enclose code.
fn spans(text: &str) -> Vec<Span> {
    let pieces = text.split('`').enumerate();
    pieces
        .filter(|(_, text)| !text.is_empty())
        .map(|(index, text)| Span { text: text.to_owned(), is_code: index % 2 == 1 })
        .collect()
}

fn item(name: &str, meaning: &str) -> Item {
    Item { name: name.to_owned(), meaning: spans(meaning) }
}

fn view(operation: &Operation, base: &str, sample: &Sample) -> OperationView {
    OperationView {
        id: operation.id,
        verb: operation.verb.name(),
        url: operation.url_template(),
        summary: operation.summary,
        description: spans(operation.description),
        inputs: inputs(operation),
        answers: (operation.answers.iter())
            .map(|answer| AnswerView {
                status: answer.status,
                meaning: spans(answer.meaning),
                // The type of problems is stated once for the whole page.
                content: answer.content.media_type().filter(|_| answer.content != Content::Problem),
                headers: answer.headers,
            })
            .collect(),
        curl: curl(operation, base, sample),
    }
}

fn inputs(operation: &Operation) -> Vec<Item> {
    let mut inputs: Vec<_> = (operation.parameters.iter())
        .map(|name| item(&format!("&{name}="), parameters::list_parameter(name)))
        .collect();
    let headers = REQUEST_HEADERS.iter().filter(|(name, ..)| operation.headers.contains(name));
    inputs.extend(headers.map(|(name, meaning, _)| item(name, meaning)));
    match operation.body {
        Some(RequestBody::NewRevision) => inputs.extend(members(&schemas::new_revision())),
        Some(RequestBody::NewRender) => inputs.extend(members(&schemas::new_render())),
        Some(RequestBody::BucketDefinition) => inputs.extend(members(&schemas::bucket_definition())),
        Some(RequestBody::Increment) => inputs.extend(members(&schemas::increment())),
        Some(RequestBody::TokenRequest) => inputs.extend(members(&schemas::token_request())),
        Some(RequestBody::Batch) => inputs.extend(members(&schemas::batch_request())),
        Some(RequestBody::Bytes | RequestBody::Export) | None => {}
    }
    inputs
}

/// The members of an object, with their descriptions.
fn members(object: &Object) -> Vec<Item> {
    (object.properties.iter())
        .map(|(name, schema)| {
            let meaning = match schema {
                RefOr::T(Schema::Object(member)) => member.description.as_deref(),
                RefOr::T(Schema::Array(member)) => member.description.as_deref(),
                // Another document, or null.
                RefOr::T(Schema::OneOf(member)) => match member.items.first() {
                    Some(RefOr::Ref(document)) => Some(document.description.as_str()),
                    _ => member.description.as_deref(),
                },
                RefOr::T(_) => None,
                RefOr::Ref(member) => Some(member.description.as_str()),
            };
            item(name, meaning.unwrap_or_default())
        })
        .collect()
}

fn document(name: &'static str) -> DocumentView {
    let example = schemas::example(name).map(|example| format!("{example:#}")).unwrap_or_default();
    let schema = answer_schemas::schemas().into_iter().find(|(known, _)| known == name);
    let members = match schema {
        Some((_, RefOr::T(Schema::Object(object)))) => members(&object),
        _ => Vec::new(),
    };
    DocumentView { name, example, members }
}

/// The values of all variables in the URLs of the examples. If possible, they name stored pages and entries, so that
/// the examples work when they are pasted.
struct Sample([(&'static str, String); URL_VARIABLES.len()]);

impl Default for Sample {
    fn default() -> Self {
        Self(URL_VARIABLES.map(|UrlVariable { name, example, .. }| (name, example.to_owned())))
    }
}

impl Sample {
    async fn find(api: &Api) -> Self {
        // If no page is found, or the store does not answer, the examples have made-up names.
        let found = api.read(find_render(api)).await.ok().flatten();
        let Some((page, render)) = found else { return Self::default() };
        let entry = api.read(find_entry(api, &page.domain)).await.ok().flatten();
        let of_entry = |name| parameters::url_variable(name).example.to_owned();
        let (bucket, key) = entry.unwrap_or_else(|| (of_entry("bucket"), of_entry("key")));
        let html = render.properties.keys().find(|name| name.as_str() == "html");
        let property = html.or_else(|| render.properties.keys().next());
        Self([
            ("domain", page.domain.to_string()),
            ("title", encode_title(&page.title)),
            ("rev", render.record.rev.to_string()),
            ("tid", render.tid.to_string()),
            ("time", rfc3339::format(render.record.timestamp)),
            ("property", property.map_or("html", PropertyName::as_str).to_owned()),
            ("bucket", bucket),
            ("key", key),
            ("id", parameters::TOKEN_ID.to_owned()),
        ])
    }

    /// Fills in a URL template.
    fn fill(&self, template: &str) -> String {
        let variables = self.0.iter();
        variables.fold(template.to_owned(), |url, (name, value)| url.replace(&format!("{{{name}}}"), value))
    }
}

/// Finds the first entry of a domain's first bucket of type `blob` or `ordered-blob` that everybody may read. Returns
/// the name of the bucket, and the spelling of the entry's key in a URL.
async fn find_entry(api: &Api, domain: &DomainName) -> Option<(String, String)> {
    let buckets = api.key_value.buckets(domain, None, MAX_LIMIT).await.ok()?.items;
    let bucket =
        buckets.iter().find(|bucket| bucket.bucket_type().has_bodies() && api.is_public_bucket(bucket))?;
    let entries = api.key_value.list(bucket, &KeyRange::all(), Order::Ascending, None, 1).await.ok()?.items;
    entries.first().map(|entry| (bucket.name.to_string(), encode_key(&entry.key)))
}

/// Finds the latest render of the main page, or of the first page, in the first domain.
async fn find_render(api: &Api) -> Option<(Page, Render)> {
    let catalog = api.buckets.catalog();
    let domain = catalog.domain_list(None, 1).await.ok()?.items.into_iter().next()?;
    // The examples are shown to all clients, so they must not name pages that only some clients may read.
    if !api.access.anybody_may(Right::Read, &domain, &api.page_bucket, BucketKind::Revisioned) {
        return None;
    }
    let titles = catalog.titles(&domain, &api.page_bucket, None, 1).await.ok()?.items;
    for title in Title::new("Main_Page").into_iter().chain(titles) {
        let page = Page { domain: domain.clone(), bucket: api.page_bucket.clone(), title };
        if let Ok(render) = api.buckets.latest_render(&page).await {
            return Some((page, render));
        }
    }
    None
}

fn curl(operation: &Operation, base: &str, sample: &Sample) -> String {
    let template = operation.url_template();
    // An example that is pasted without reading must not write to a real page.
    let url = match operation.verb {
        Verb::Get | Verb::Options => sample.fill(&template),
        Verb::Post | Verb::Put | Verb::Delete => Sample::default().fill(&template),
    };
    let redirects = operation.answers.first().is_some_and(|answer| answer.status == 302);
    let option = match operation.verb {
        Verb::Options => " -i -X OPTIONS",
        Verb::Post if operation.body == Some(RequestBody::Export) => " -X POST",
        Verb::Get if redirects => " -L",
        Verb::Delete => " -X DELETE",
        Verb::Get | Verb::Post | Verb::Put => "",
    };
    let space = if operation.curl.is_empty() { "" } else { " " };
    format!("curl{option} '{base}{url}'{space}{}", operation.curl)
}

fn properties(definitions: &Definitions) -> Vec<PropertyView> {
    (definitions.iter())
        .map(|(name, definition)| PropertyView {
            name: name.to_string(),
            content_type: definition.content_type.clone(),
            versions: match definition.versions {
                Versions::Render => "one per render",
                Versions::Revision => "one per revision",
            },
            max_size: bytes(definition.max_size),
        })
        .collect()
}

fn limits(settings: &Settings) -> Vec<(&'static str, String)> {
    let seconds = |seconds: u64| format!("{seconds} s");
    vec![
        ("A request's URL", bytes(settings.max_url_bytes as u64)),
        ("A title, after decoding", bytes(Title::MAX_BYTES as u64)),
        ("A key, after decoding", bytes(Title::MAX_BYTES as u64)),
        ("A body", bytes(settings.max_body_bytes)),
        ("The definition of a bucket", bytes(MAX_DEFINITION_BYTES)),
        ("The time that a body may take", seconds(settings.body_seconds)),
        ("The time that a body may go without a byte", seconds(settings.body_idle_seconds)),
        (
            "The minimum rate of a body in bytes per second, averaged over 60 s",
            bytes(settings.min_upload_rate),
        ),
        ("The time that a request may wait for memory for its body", seconds(settings.staging_wait_seconds)),
        ("Properties of one write", MAX_PROPERTIES.to_string()),
        ("_comment and _user, each", bytes(MAX_COMMENT_BYTES as u64)),
        ("Entries of a list", MAX_LIMIT.to_string()),
        ("Requests in a batch", MAX_REQUESTS.to_string()),
        ("Requests of a batch at once; more wait", MAX_CONCURRENT.to_string()),
        ("The time that the requests of a batch may take together", seconds(settings.batch_seconds)),
        ("The body of a batch", bytes(max_batch_bytes(settings))),
        ("Imports at once; more are refused", settings.max_imports.to_string()),
        ("7z archives that wait on the disk, altogether", bytes(settings.max_spool_bytes)),
        ("Writes at once; more wait", settings.max_writes.to_string()),
        (
            "The time that a write may wait for others, and a read for an archived block",
            format!("{} ms", settings.overload_milliseconds),
        ),
        ("The time that a read may wait for the store", seconds(settings.read_seconds)),
    ]
}

/// A size in the largest unit that divides it.
fn bytes(size: u64) -> String {
    match size {
        size if size >= 1 << 20 && size % (1 << 20) == 0 => format!("{} MiB", size >> 20),
        size if size >= 1 << 10 && size % (1 << 10) == 0 => format!("{} KiB", size >> 10),
        size => format!("{size} bytes"),
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_unit_that_divides_them() {
        for (size, text) in [
            (10, "10 bytes"),
            (1024, "1 KiB"),
            (1025, "1025 bytes"),
            (64 << 20, "64 MiB"),
            (1536 << 10, "1536 KiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn code_is_between_backticks() {
        let pieces: Vec<_> =
            spans("`a` and `b`.").into_iter().map(|span| (span.text, span.is_code)).collect();
        let expected = [("a", true), (" and ", false), ("b", true), (".", false)];
        assert_eq!(pieces, expected.map(|(text, is_code)| (text.to_owned(), is_code)));
    }
}
