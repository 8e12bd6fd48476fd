//! The list of the entries or counters of a bucket.

use std::{fmt::Write as _, ops::Bound};

use axum::response::Response;
use http::{HeaderValue, header, request::Parts};
use rashomon_clock::rfc3339;
use rashomon_entries::{Bucket, BucketType, CounterSummary, EntryKey, EntrySummary, KeyRange, Order};

use crate::{
    Api,
    answer::{check_version, json_type, of_type},
    caching::Caching,
    collecting,
    entry_answer::quoted,
    extract::{Parameters, encode_parameter},
    json::{CounterSummaryJson, EntryListJson, EntrySummaryJson, ListItemJson},
    problem::{Kind, Problem, Result},
};

/// The default number of entries in a list.
const DEFAULT_LIMIT: usize = 50;

/// The parameters of the lists of all buckets.
const COMMON_PARAMETERS: [&str; 2] = ["limit", "after"];

/// The further parameters of the lists of buckets of type `ordered-blob`.
const ORDERED_PARAMETERS: [&str; 6] = ["gt", "ge", "lt", "le", "prefix", "order"];

/// Answers a request for the list of the entries or counters. The right to read the bucket has been checked.
pub(crate) async fn list(api: &Api, bucket: &Bucket, head: &Parts) -> Result<Response> {
    let known = [&COMMON_PARAMETERS[..], &ORDERED_PARAMETERS].concat();
    let parameters = Parameters::parse(head.uri.query(), &known)?;
    let limit = parameters.limit()?.unwrap_or(DEFAULT_LIMIT);
    let after = parameters.get("after").map(EntryKey::new).transpose()?;
    let (range, order) = (range(&parameters)?, order(&parameters)?);
    check_version(&head.headers, &json_type("entry-list"))?;
    let ordered = ORDERED_PARAMETERS.into_iter().find(|name| parameters.get(name).is_some());
    if let Some(name) = ordered
        && bucket.bucket_type() != BucketType::OrderedBlob
    {
        return Err(Problem::malformed(format!(
            "{name}= is only for buckets of type ordered-blob, and this bucket has the type {}: leave the parameter \
             out",
            bucket.bucket_type()
        )));
    }
    let is_counter = bucket.bucket_type() == BucketType::Counter;
    let _permit =
        api.collecting.take(if is_counter { collecting::OF_ROWS } else { collecting::OF_ENTRIES }).await?;
    let (entries, next) = if is_counter {
        let listing = api.key_value.list_counters(bucket, after.as_ref(), limit);
        let listing = api.read_key_value(listing).await?;
        (listing.items.into_iter().map(counter).collect(), listing.next)
    } else {
        let listing = api.key_value.list(bucket, &range, order, after.as_ref(), limit);
        let listing = api.read_key_value(listing).await?;
        (listing.items.into_iter().map(summary).collect(), listing.next)
    };
    let next = next.map(|last| next_query(&parameters, &last));
    let body = serde_json::to_vec(&EntryListJson { entries, next }).map_err(|error| {
        Problem::new(Kind::Internal, format!("an answer cannot be written as JSON: {error}"))
    })?;
    let mut response = of_type(json_type("entry-list"), Caching::NoStore, body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

fn counter(CounterSummary { key, value }: CounterSummary) -> ListItemJson {
    ListItemJson::Counter(CounterSummaryJson { key: key.into(), value })
}

fn summary(entry: EntrySummary) -> ListItemJson {
    ListItemJson::Entry(EntrySummaryJson {
        key: entry.key.into(),
        content_type: entry.content_type,
        size: entry.size,
        etag: quoted(&entry.etag),
        modified: rfc3339::format(entry.modified),
    })
}

/// Returns the query of the next part of the list: the parameters of this request, with another `after`.
fn next_query(parameters: &Parameters<'_>, last: &EntryKey) -> String {
    let mut query = "?".to_owned();
    for (name, value) in parameters.iter().filter(|(name, _)| *name != "after") {
        let _ = write!(query, "{name}={}&", encode_parameter(value));
    }
    let _ = write!(query, "after={}", encode_parameter(last.as_str()));
    query
}

fn range(parameters: &Parameters<'_>) -> Result<KeyRange> {
    let prefix = parameters.get("prefix").unwrap_or_default();
    if prefix.len() > EntryKey::MAX_BYTES {
        return Err(Problem::malformed(format!("prefix= must have at most {} bytes", EntryKey::MAX_BYTES)));
    }
    Ok(KeyRange {
        lower: bound(parameters, "gt", "ge")?,
        upper: bound(parameters, "lt", "le")?,
        prefix: prefix.to_owned(),
    })
}

/// Parses the bound in one of two parameters. The bound in the first parameter excludes its key, and the bound in the
/// second parameter includes it.
fn bound(parameters: &Parameters<'_>, excluded: &str, included: &str) -> Result<Bound<EntryKey>> {
    match (parameters.get(excluded), parameters.get(included)) {
        (None, None) => Ok(Bound::Unbounded),
        (Some(key), None) => Ok(Bound::Excluded(EntryKey::new(key)?)),
        (None, Some(key)) => Ok(Bound::Included(EntryKey::new(key)?)),
        (Some(_), Some(_)) => Err(Problem::malformed(format!(
            "{excluded}= and {included}= exclude each other: send one of them"
        ))),
    }
}

fn order(parameters: &Parameters<'_>) -> Result<Order> {
    match parameters.get("order") {
        None | Some("asc") => Ok(Order::Ascending),
        Some("desc") => Ok(Order::Descending),
        Some(_) => Err(Problem::malformed("order= must be asc or desc")),
    }
}
