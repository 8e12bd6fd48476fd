//! Prints lists of buckets and entries.

use rashomon_pages::DomainName;
use serde_json::json;

use super::location::{ListedEntry, Location};
use crate::{arguments::BucketPath, errors::CommandError, output};

/// Prints the buckets of a domain, a result page at a time.
pub(super) async fn list_buckets(
    location: &mut Location,
    domain: &DomainName,
    as_json: bool,
) -> Result<(), CommandError> {
    let mut after = None;
    loop {
        let page = location.buckets(domain, after.as_ref()).await?;
        for (name, definition) in &page.items {
            if as_json {
                output::line(json!({"name": name, "definition": definition}))?;
            } else {
                output::line(format_args!("{name}\t{definition}"))?;
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Prints the entries of a bucket, a result page at a time.
pub(super) async fn list_entries(
    location: &mut Location,
    path: &BucketPath,
    as_json: bool,
) -> Result<(), CommandError> {
    let bucket_type = location.bucket_type(path).await?;
    let mut after = None;
    loop {
        let page = location.entries(path, bucket_type, after.as_ref()).await?;
        for entry in &page.items {
            output::line(if as_json { to_json(entry) } else { to_text(entry) })?;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

fn to_text(entry: &ListedEntry) -> String {
    match entry {
        // No key and no content type has a tab.
        ListedEntry::Body { key, content_type, size, modified, .. } => {
            format!("{key}\t{size}\t{content_type}\t{modified}")
        }
        ListedEntry::Counter { key, value } => format!("{key}\t{value}"),
    }
}

fn to_json(entry: &ListedEntry) -> String {
    let document = match entry {
        ListedEntry::Body { key, content_type, size, etag, modified } => {
            json!({"key": key, "content_type": content_type, "size": size, "etag": etag, "modified": modified})
        }
        ListedEntry::Counter { key, value } => json!({"key": key, "value": value}),
    };
    document.to_string()
}
