//! The bucket layer: what revisions, renders and properties mean, over the table layer.
//!
//! Nothing here knows HTTP, SQL or CQL. What comes in has been parsed into the types of this crate, whose
//! constructors check; what goes out is plain data.

mod archive;
mod catalog;
mod content;
mod damaged_rows;
mod definitions;
mod error;
mod excerpt;
mod headers;
mod locks;
pub mod migration;
mod model;
mod names;
mod retention;
mod revisioned;
mod rows;
pub mod schemas;
mod tid;

pub use archive::{
    ArchivePolicy, ArchiveSettings, ArchiveStats, BucketArchive, HistoryArchiver, Merged, Merging,
    PassedOver, Sealed, Sealing,
};
pub use catalog::{Catalog, Namespace, PageInfo, SiteInfo};
pub use content::{Body, CHUNK_SIZE, Chunk, ChunkedBody, InlineBody, PropertySink, Sha1, Staged};
pub use damaged_rows::FoundDamage;
pub use definitions::{Definition, Definitions, Versions};
pub use error::{Error, Missing, Result};
pub use excerpt::{EXCERPT_BYTES, excerpt, shorten};
pub use headers::{GivenHeaders, HeaderError, Headers};
pub use model::{
    Erasure, Expect, ExportRecord, ImportOutcome, ImportRender, ImportRevision, Listing, NewProperty,
    NewRender, NewRevision, Parent, Property, PropertyInfo, PropertyVersion, Render, RenderBase, RenderInfo,
    RevisionDetail, RevisionRecord, RevisionSummary, Rewritten, SlotRecord, StoredRevision, Written,
};
pub use names::{BucketName, DomainName, NameError, Page, PropertyName, Revision, Title};
/// What went wrong in the store below.
pub use rashomon_tables::{Error as StoreError, Outage as StoreOutage};
pub use retention::{
    Cull, Current, DryRun, Fill, GenerateError, Generated, Generator, MemoryTimeline, Policy, Retention,
    RetentionStats, Sampling, Strategy, Superseded, Sweep, Timeline, Walk,
};
pub use revisioned::{
    CacheStats, DomainStats, Erased, Erasing, ErasureState, MAX_BODIES, MAX_COUNTED_RENDERS, MementoPosition,
    PropertyStats, RendersBeside, RepairReport, Revisioned, SameBytes, Settings, VerifyReport,
};
pub use tid::Tid;
