//! A client of Rashomon, the storage service for revisions and renders of wiki pages.
//!
//! A *domain* is a wiki, and a *page* has a title in it. A *revision* is one saved edit of a page, with a number. A
//! *render* is one rendering of a revision, with a *tid* that contains its time. A render has *properties*: named
//! bodies of bytes such as `html` and `wikitext`. A *bucket* of a domain has *entries*, which are bodies under keys
//! without versions, or *counters*, or further pages.
//!
//! # Example
//!
//! ```no_run
//! use futures::TryStreamExt as _;
//! use rashomon_client::{ProblemKind, PropertyContent, Servers, Store};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = Store::new(Servers::new(["http://127.0.0.1:7231"]))?;
//!     let page = store.domain("enwiki")?.page("Main Page")?;
//!
//!     // A new revision, if nobody has saved another one since.
//!     let html = PropertyContent::new("<p>Hello</p>").content_type("text/html; charset=utf-8");
//!     let edit = page.new_revision(2).if_latest(1).user("Ann").property("wikitext", "Hello").property("html", html);
//!     match edit.send().await {
//!         Ok(written) => println!("stored as the render {}", written.tid),
//!         Err(error) if error.problem().is_some_and(|problem| problem.is(ProblemKind::NotLatest)) => {
//!             println!("somebody else was faster: {error}");
//!         }
//!         Err(error) => return Err(error.into()),
//!     }
//!
//!     // The latest text, of at most 64 MiB.
//!     let html = page.latest("html").await?;
//!     println!("{}", html.text(64 << 20).await?);
//!
//!     // All revisions, latest first.
//!     let mut revisions = page.revisions();
//!     while let Some(revision) = revisions.try_next().await? {
//!         println!("{} by {}", revision.number, revision.user.as_deref().unwrap_or("an unknown user"));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Where to begin
//!
//! | to | see |
//! |---|---|
//! | connect to servers, with a token and TLS | [`Servers`] |
//! | use several backends | [`Registry`], [`Backend`] |
//! | pass on the requests of others | [`HttpBackend`] |
//! | read a property, by tid, revision or time | [`Page::read`], [`Page::latest`] |
//! | read only what has changed | [`Page::request`], [`ETag`] |
//! | read documents and lists | [`Page::render`], [`Page::revision`], [`Page::revisions`], [`Page::renders`] |
//! | write | [`Page::new_revision`], [`Page::new_render`], [`Page::replace`] |
//! | store bodies under keys, without versions | [`Domain::bucket`], [`Entry`] |
//! | list the entries of a bucket | [`Bucket::entries`] |
//! | count | [`Counter`] |
//! | keep pages in a further bucket | [`Bucket::page`] |
//! | send other requests, several at once | [`Store::run`] |
//! | handle errors | [`Error`] |
//!
//! # Large bodies
//!
//! A [`Body`] is streamed in both directions, so memory does not grow with its size. This uploads a file:
//!
//! ```no_run
//! use rashomon_client::{Body, Page};
//!
//! # async fn example(page: Page) -> Result<(), Box<dyn std::error::Error>> {
//! let file = tokio::fs::File::open("page.html").await?;
//! page.new_revision(3).property("html", Body::from_reader(file)).send().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Failures
//!
//! The client repeats a request after a failed connection if a repeat is harmless. [`Servers`] has the rules, the
//! time-outs and the number of attempts. Invalid inputs, such as a title with a control character, are reported as
//! [`Error::Input`] before anything is sent.
//!
//! # Invariants
//!
//! - Of this project, the crate uses only what servers and clients share, so that it can be published: `protocol`, and
//!   the times of `clock`.
//! - After bytes were sent, only a request whose repeat is harmless is repeated.
//! - Each increment of a counter has an idempotency key, so that a repeat does not count again.
//! - No error, log line or debug output contains a token. Redirects cannot lead a token to another server, because they
//!   lead to the same page only.

mod answer;
mod backend;
mod body;
mod bucket;
mod counter;
mod definition;
mod documents;
mod domain;
mod entry;
mod entry_list;
mod error;
mod etag;
mod form;
mod headers;
mod list;
mod page;
mod path;
mod problem;
mod put;
mod random;
mod read;
mod registry;
mod run;
mod servers;
mod store;
mod write;

pub use backend::Backend;
pub use body::Body;
pub use bucket::{Bucket, BucketSummary, StoredDefinition};
pub use counter::{Counter, CounterSummary};
pub use definition::{BucketDefinition, BucketType};
pub use documents::{
    Erasure, Outcome, PropertyInfo, Render, RenderSummary, Revision, RevisionSummary, Written,
};
pub use domain::Domain;
pub use entry::{Entry, EntryContent, EntryHead, EntryRequest};
pub use entry_list::EntrySummary;
pub use error::{AnswerError, BoxError, ConfigError, Error, InputError, Result, TransportError};
pub use etag::ETag;
pub use list::{List, ListEntry};
pub use page::Page;
pub use problem::Problem;
pub use put::{Put, StoredEntry};
pub use rashomon_clock::Timestamp;
pub use rashomon_protocol::{NameError, ProblemKind, Revision as RevisionNumber, Tid};
pub use read::{Conditional, Property, PropertyRequest, Selector};
pub use registry::Registry;
pub use run::{RawRequest, RawResponse};
pub use servers::{ConnectError, HttpBackend, ReplayMemory, ServerStatus, Servers};
pub use store::Store;
pub use write::{NewRender, NewRevision, PropertyContent, Replacement};
