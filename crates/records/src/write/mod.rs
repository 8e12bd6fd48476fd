//! Writes of pages: the batch of a page, page leases, and the pipeline that executes a write.

mod batch;
mod hooks;
mod lease;
mod lease_row;
mod pipeline;

pub use self::{
    batch::{MAX_BODIES, PageBatch, PageBody, Superseded, WriteKind},
    hooks::{PostCommit, WriteHooks},
    lease::{HeldLease, page_changed},
    pipeline::{PageWriter, PlannedWrite, WritePipeline, run_whole},
};
