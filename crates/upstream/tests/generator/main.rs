//! The generator against test servers that answer, fail, are slow, send wrong answers, or redirect. It also
//! runs against a real MediaWiki.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // Also in functions that tests call.

mod answers;
mod concurrency;
mod https;
mod mediawiki;
mod redirects;
mod server;
mod settings;
mod through_buckets;
mod tokens;
mod wiki;

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use rashomon_pages::{
    BucketName, DomainName, GenerateError, Generated, Generator as _, Page, PropertyName, Revision, Title,
};
use rashomon_upstream::generator::{HttpGenerator, Settings, Source, Upstream};

/// A timeout that is long enough for every server that answers, even on a busy machine.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout for servers that do not answer.
pub(crate) const SHORT_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum size of a body in most tests.
pub(crate) const MAX_SIZE: u64 = 1000;

pub(crate) fn name(text: &str) -> PropertyName {
    PropertyName::new(text).unwrap()
}

pub(crate) fn rev(number: i64) -> Revision {
    Revision::new(number).unwrap()
}

pub(crate) fn page(title: &str) -> Page {
    Page {
        domain: DomainName::new("wiki.example").unwrap(),
        bucket: BucketName::page(),
        title: Title::new(title).unwrap(),
    }
}

/// A source whose answer may have any media type, and up to [`MAX_SIZE`] bytes.
pub(crate) fn source(url: impl Into<String>) -> Source {
    Source { url: url.into(), content_type: None, max_size: MAX_SIZE }
}

/// A renderer of these properties, with these allowed hosts.
pub(crate) fn upstream(properties: &[(&str, Source)], hosts: &[String], timeout: Duration) -> Upstream {
    Upstream {
        properties: properties.iter().map(|(property, source)| (name(property), source.clone())).collect(),
        hosts: hosts.to_vec(),
        timeout,
        token_file: None,
    }
}

pub(crate) fn settings(upstream: Upstream) -> Settings {
    Settings { upstream: Some(upstream), ..Settings::default() }
}

/// A generator of `html` from this URL.
pub(crate) fn html_from(url: &str, hosts: &[String], timeout: Duration) -> HttpGenerator {
    HttpGenerator::new(settings(upstream(&[("html", source(url))], hosts, timeout))).unwrap()
}

/// Generates revision 1 of a page, and returns the only property.
pub(crate) async fn make(generator: &HttpGenerator) -> Result<Generated, GenerateError> {
    let mut made = generator.generate(&page("Main_Page"), rev(1)).await?;
    assert_eq!(made.len(), 1);
    Ok(made.remove(0))
}

pub(crate) fn bytes_of(made: Result<Generated, GenerateError>) -> String {
    String::from_utf8(made.unwrap().body.to_vec()).unwrap()
}

/// Asserts that generating failed, for a reason that contains these words.
#[track_caller]
pub(crate) fn assert_failed(made: Result<Generated, GenerateError>, words: &str) {
    match made {
        Err(GenerateError::Failed(why)) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}, where a failure was expected: {words}"),
    }
}

/// Settings with one renderer for all buckets, and another one for a single bucket.
pub(crate) fn with_bucket(all: Option<Upstream>, domain: &str, bucket: &str, renderer: Upstream) -> Settings {
    let key = (DomainName::new(domain).unwrap(), BucketName::new(bucket).unwrap());
    Settings { upstream: all, buckets: BTreeMap::from([(key, renderer)]), ..Settings::default() }
}

pub(crate) fn at_most(requests: usize, settings: Settings) -> Settings {
    Settings { max_requests: NonZeroUsize::new(requests).unwrap(), ..settings }
}
