//! The bodies of a page's revisions, read in runs.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use rashomon_pages::{Body, Page, PropertyName, Result, Revision, RevisionStore, Tid};

/// Reads the bodies of properties of revisions. Reads ahead, in ascending order, as many revisions as the bucket
/// returns in one call.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    runs: HashMap<PropertyName, BodyRun>,
}

/// Bodies of consecutive revisions.
#[derive(Debug)]
struct BodyRun {
    bodies: BTreeMap<Revision, Body>,
    /// The last revision of the run. If an earlier revision has no body in the run, no body is stored.
    last: Option<Revision>,
}

impl Bodies {
    /// Returns the body of a property of a revision. Reads ahead up to the revision `last`. So the caller should ask
    /// for the revisions up to `last` in ascending order, and for each body once.
    pub(super) async fn read_revision_body(
        &mut self,
        buckets: &RevisionStore,
        page: &Page,
        name: &PropertyName,
        rev: Revision,
        last: Revision,
    ) -> Result<Option<Bytes>> {
        if self.runs.get(name).is_none_or(|run| Some(rev) > run.last) {
            let bodies = buckets.bodies(page, name, rev, last.max(rev)).await?;
            let bodies: BTreeMap<_, _> =
                bodies.into_iter().map(|(rev, property)| (rev, property.body)).collect();
            let last = bodies.keys().last().copied();
            self.runs.insert(name.clone(), BodyRun { bodies, last });
        }
        let body = self.runs.get_mut(name).and_then(|run| run.bodies.remove(&rev));
        match body {
            Some(body) => body.whole().await.map(Some),
            None => Ok(None),
        }
    }
}

/// Returns the body of a property of a render.
pub(super) async fn read_render_body(
    buckets: &RevisionStore,
    page: &Page,
    tid: Tid,
    name: &PropertyName,
) -> Result<Bytes> {
    buckets.property(page, tid, name).await?.body.whole().await
}
