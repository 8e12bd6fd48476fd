//! The rows of retention: cull watermarks, timeline entries, queue entries, and the states of rescans and of the
//! clock.

use std::collections::BTreeSet;

use rashomon_clock::Timestamp;
use rashomon_records::{
    BucketName, DomainName, PropertyName, Revision, Tid, Title, row_key,
    rows::Json,
    schemas::{
        CULLED, CULLED_RENDERS, DUE, DUE_CURSORS, RENDER_TIMELINE, RETENTION_CLOCK, RETENTION_WALKS,
        REVISION_TIMELINE,
    },
    typed_row,
};

typed_row! {
    /// A cull watermark of a page. The watermark covers the revisions below `rev`: those of their bodies that belong to
    /// `properties`, and were written at `written_before` or earlier, are deleted.
    pub(crate) struct CulledRow in CULLED {
        key { rev: Revision }
        values { written_before: Timestamp, properties: Json<BTreeSet<PropertyName>> }
    }
}

typed_row! {
    /// A cull watermark of one revision. The watermark covers the renders of the revision below `tid`, as the watermark
    /// of a page covers revisions.
    pub(crate) struct CulledRendersRow in CULLED_RENDERS {
        key { rev: Revision, tid: Tid }
        values { written_before: Timestamp, properties: Json<BTreeSet<PropertyName>> }
    }
}

typed_row! {
    /// A revision that was superseded at `ts`.
    pub(crate) struct RevisionTimelineRow in REVISION_TIMELINE {
        key { ts: Timestamp }
        values { rev: Revision }
    }
}

typed_row! {
    /// A render that another render of the same revision superseded at `ts`.
    pub(crate) struct RenderTimelineRow in RENDER_TIMELINE {
        key { rev: Revision, ts: Timestamp }
        values { tid: Tid }
    }
}

row_key! {
    /// The key of an entry of the retention queue. Of a damaged row, only the key can be read.
    pub(crate) struct DueKey of DUE {
        due_at: Timestamp,
        domain: DomainName,
        bucket: BucketName,
        title: Title,
        rev: Revision,
    }
}

typed_row! {
    /// An entry of the retention queue.
    pub(crate) struct DueRow in DUE {
        key {
            due_at: Timestamp,
            domain: DomainName,
            bucket: BucketName,
            title: Title,
            rev: Revision,
        }
        values { lowest: Revision, at: Timestamp, thorough: bool, again: bool }
    }
}

typed_row! {
    /// The time up to which a shard of the queue was processed.
    pub(crate) struct DueCursorRow in DUE_CURSORS {
        key {}
        values { done_until: Timestamp }
    }
}

typed_row! {
    /// The state of the rescan of a bucket.
    pub(crate) struct RescanRow in RETENTION_WALKS {
        key {}
        values {
            policy: Option<String>,
            after: Option<String>,
            finished_at: Option<Timestamp>,
            expired_before: Option<Timestamp>,
            again_at: Option<Timestamp>,
        }
    }
}

typed_row! {
    /// The state of the clock: no cull happened later than `reaches`, and the last clock jump was detected at
    /// `set_at`.
    pub(crate) struct ClockRow in RETENTION_CLOCK {
        key {}
        values { reaches: Timestamp, set_at: Option<Timestamp> }
    }
}

#[cfg(test)]
mod tests {
    use rashomon_records::rows::check_columns;

    use super::*;

    #[test]
    fn columns_have_the_names_of_the_schema() {
        check_columns::<CulledRow>();
        check_columns::<CulledRendersRow>();
        check_columns::<RevisionTimelineRow>();
        check_columns::<RenderTimelineRow>();
        check_columns::<DueRow>();
        check_columns::<DueCursorRow>();
        check_columns::<RescanRow>();
        check_columns::<ClockRow>();
    }
}
