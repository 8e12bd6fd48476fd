//! The records of pages: revisions, renders and bodies, as rows of tables with named columns.
//!
//! The crate has the tables, their typed rows, the chunk store, the catalog, and the write
//! pipeline. It knows nothing of the policies of retention and of the archive.
//!
//! # Invariants
//!
//! - Columns are read by name. A row that does not have the columns of its type is an error.
//! - The crate decides nothing about retention or the archive. Retention takes part in writes through `WriteHooks`. If
//!   `WriteHooks::apply_to` returns false for a page, the pipeline calls no other function of this trait.
//! - One batch of the page's partition stores a revision or a render. Batches that are written before this batch do no
//!   harm if it is never written.
//! - An acknowledged write is never rolled back. A conditional write whose outcome is unknown may be rolled back, see
//!   decision 0006.

pub mod catalog;
pub mod content;
mod content_sha1;
mod damaged_rows;
mod definitions;
mod error;
mod export_info;
mod headers;
mod hour_queue;
mod import_unit;
mod locks;
mod model;
mod purges;
mod reads;
mod records;
mod requests;
pub mod rows;
pub mod schemas;
mod seen_time;
mod site_changes;
mod verify_report;
mod visible;
pub mod write;

pub use catalog::{Catalog, ListedPages, PageStream};
pub use content::{
    Body, CHUNK_SIZE, Chunk, ChunkedBody, InlineBody, Property, PropertySink, Staged, StoredRevision,
};
pub use content_sha1::Sha1;
pub use damaged_rows::{DamagedRows, FoundDamage};
pub use definitions::{Definition, Definitions, Versions};
pub use error::{Conflict, Error, GenerateError, Missing, Result};
pub use export_info::{Namespace, PageInfo, SiteInfo};
pub use headers::{HeaderError, HeaderPattern, Headers, IgnoredHeaders, RequestHeaders, StoredHeaders};
pub use hour_queue::{before_hour, hour_of};
pub use import_unit::ImportUnit;
pub use locks::Locks;
pub use model::{
    Erasure, ExportRecord, ImportOutcome, Listing, Parent, PropertyInfo, Render, RenderInfo, RevisionDetail,
    RevisionRecord, RevisionSummary, Rewritten, SlotRecord, Written,
};
pub use purges::{
    MUTABLE_LIFE, PURGE_SHARDS, PageChange, PurgeEntry, PurgeId, PurgedChange, TID_LIFE, purge_id,
};
pub use rashomon_protocol::{
    BucketName, DomainName, EXCERPT_BYTES, EntryKey, Expect, NameError, Page, PropertyName, PropertyVersion,
    Revision, Tid, Title, excerpt, shorten,
};
pub use records::{INDEX_PAGE_ROWS, Records, first_of, row_of};
pub use requests::{ImportRender, ImportRevision, NewProperty, NewRender, NewRevision, RenderBase};
pub use site_changes::SiteChange;
pub use verify_report::{VerifyProgress, VerifyReport, page_in_words};
pub use visible::{Shown, is_unsafe_to_show, visible};
pub use write::{MAX_BODIES, Superseded};
