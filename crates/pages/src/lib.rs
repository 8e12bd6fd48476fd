//! The bucket layer: revisions, renders and properties, built on the table layer.
//!
//! The crate does not know HTTP, SQL or CQL. The caller parses input into the types of this crate, whose
//! constructors check the input. The crate returns plain data.
//!
//! [`operations`] has what crosses all parts of a store. [`rewriting`] brings stored values to a new version of their
//! spec.
//!
//! # Invariants
//!
//! - The crate does not depend on HTTP, SQL or XML.
//! - Latest is the highest (rev, tid), whatever the order of the writes. Of the properties of a render, all become
//!   visible together, or none.
//! - Cached properties are exact, see decision 0002.
//! - No function of the crate depends on the strategy of a bucket. Strategies differ in `retention` alone.

pub mod migration;
pub mod operations;
mod revisions;
pub mod rewriting;

pub(crate) use rashomon_archive as archive;
pub use rashomon_archive::{
    ArchivePolicy, ArchiveSettings, ArchiveStats, BlockReplacement, BlockVersion, BodyInArchive,
    BodyReplacer, BucketArchive, CheckedBlocks, CompactionOptions, CompactionReport, HistoryArchiver,
    ImportedRow, ImportedRows, MAX_PLACED_BYTES, MAX_PLACED_ROWS, NewBody, RowReason, SealOptions,
    SealReport, SealedRange, SkippedDamage, unpack_limits,
};
pub use rashomon_clock::admission::Limits;
pub use rashomon_records::{
    Body, BucketName, CHUNK_SIZE, Catalog, Chunk, ChunkedBody, Conflict, Definition, Definitions, DomainName,
    EXCERPT_BYTES, Erasure, Error, Expect, ExportRecord, FoundDamage, GenerateError, HeaderError,
    HeaderPattern, Headers, IgnoredHeaders, ImportOutcome, ImportRender, ImportRevision, InlineBody, Listing,
    MAX_BODIES, MUTABLE_LIFE, Missing, NameError, Namespace, NewProperty, NewRender, NewRevision, Page,
    PageInfo, PageStream, Parent, Property, PropertyInfo, PropertyName, PropertySink, PropertyVersion,
    Render, RenderBase, RenderInfo, RequestHeaders, Result, Revision, RevisionDetail, RevisionRecord,
    RevisionSummary, Rewritten, Sha1, Shown, SiteChange, SiteInfo, SlotRecord, Staged, StoredHeaders,
    StoredRevision, Superseded, TID_LIFE, Tid, Title, VerifyProgress, VerifyReport, Versions, Written,
    excerpt, is_unsafe_to_show, schemas, shorten, visible,
};
pub(crate) use rashomon_records::{content, rows};
pub use rashomon_retention::{
    Cull, Current, DryRun, Fill, Generated, Generator, MemoryTimeline, Policy, Rescan, Retention,
    RetentionStats, Sampling, Strategy, Sweep, Timeline,
};
/// The error of a store, and the reason why a store is unavailable.
pub use rashomon_tables::{Error as StoreError, Outage as StoreOutage};
pub use revisions::{
    CacheStats, MAX_COUNTED_RENDERS, Maintenance, MementoPosition, MementosAround, RendersBeside,
    RevisionStore, Settings, StoreParts, TableValue,
};
