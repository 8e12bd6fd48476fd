//! Renders that are generated when a client reads a property that is not stored.

use std::time::Duration;

use moka::future::Cache;
use rashomon_records::write::run_whole;

use super::{RevisionStore, StoreInner, write_request::body_of};
use crate::{
    Error, GenerateError, Generated, NewProperty, NewRender, Page, PropertyName, RenderBase, Result,
    Revision, Tid,
};

/// How long a failed render of a revision is remembered, so that not every read calls a failing renderer.
const FAILURE_TTL: Duration = Duration::from_secs(5);

/// The maximum memory in bytes for the revisions whose failed render is remembered.
const MAX_REMEMBERED_BYTES: u64 = 8 << 20;

/// The approximate memory of a remembered render, in addition to the names of the page.
const RENDER_OVERHEAD: usize = 600;

/// The renders in flight, and those that failed recently.
#[derive(Debug)]
pub(super) struct RendersInFlight(Cache<(Page, Revision), FinishedRender>);

/// The result of a render, and the monotonic time at which the render ended.
#[derive(Debug, Clone)]
struct FinishedRender {
    made: Result<Tid>,
    finished_at: Duration,
}

impl RendersInFlight {
    pub(super) fn new() -> Self {
        let weight = |(page, _): &(Page, Revision), _: &FinishedRender| {
            u32::try_from(page.memory() + RENDER_OVERHEAD).unwrap_or(u32::MAX)
        };
        let renders = Cache::builder().max_capacity(MAX_REMEMBERED_BYTES).weigher(weight);
        // The store's clock decides when a failure is forgotten. The cache has its own clock, and only frees memory.
        Self(renders.time_to_live(2 * FAILURE_TTL).build())
    }
}

impl RevisionStore {
    /// Generates the property of a revision, and returns the tid of the render that has the property
    /// afterwards. Concurrent callers share one call of the renderer. Returns `None` if no generator makes this
    /// property.
    pub(super) async fn generate_property(
        &self,
        page: &Page,
        rev: Revision,
        name: &PropertyName,
    ) -> Result<Option<Tid>> {
        let inner = &self.0;
        let Some(generator) = inner.settings.retention.used_generator() else { return Ok(None) };
        if !generator.makes(page).contains(name) {
            return Ok(None);
        }
        let key = (page.clone(), rev);
        let now = || inner.records.clock.monotonic();
        // The first caller may be cancelled; the others still wait for the same render.
        let render = async {
            let (this, page) = (self.clone(), page.clone());
            let made = run_whole(async move { this.0.generate(&page, rev).await }).await;
            FinishedRender { made, finished_at: now() }
        };
        let is_forgotten = |render: &FinishedRender| now().saturating_sub(render.finished_at) >= FAILURE_TTL;
        let finished = inner.renders_in_flight.0.entry_by_ref(&key).or_insert_with_if(render, is_forgotten);
        let FinishedRender { made, .. } = Box::pin(finished).await.into_value();
        if !matches!(made, Err(Error::Generate(_))) {
            // Either the render is stored now, or something other than the renderer failed.
            inner.renders_in_flight.0.invalidate(&key).await;
        }
        made.map(Some)
    }
}

impl StoreInner {
    /// Calls the renderer for a revision, stores the result as a render, and returns the tid of the render. If
    /// the bucket has a policy and the revision is not the latest, stores read copies instead.
    async fn generate(&self, page: &Page, rev: Revision) -> Result<Tid> {
        let Some(generator) = self.settings.retention.used_generator() else {
            return Err(GenerateError::Failed("no renderer is configured".to_owned()).into());
        };
        let counters = self.retention.counters();
        counters.begin_generation();
        let made = generator.generate(page, rev).await;
        counters.end_generation();
        let made =
            made.and_then(|made| self.check_sizes(made)).inspect_err(|_| counters.fail_generation())?;
        let is_latest = self.records.latest(page).await?.is_some_and(|latest| latest.rev == rev);
        if !is_latest && self.retention.has_policy(page) {
            return self.store_copies_of_generated(page, rev, made).await;
        }
        let name = made.first().map(|made| made.name.clone());
        let tid = self.store_generated(page, rev, made).await?;
        if let Some(name) = name {
            self.retention.keep_generated(page, (rev, tid), &name).await?;
        }
        Ok(tid)
    }

    /// Returns an error if a property is above the maximum size of its definition. Otherwise returns `made`.
    fn check_sizes(&self, made: Vec<Generated>) -> std::result::Result<Vec<Generated>, GenerateError> {
        for Generated { name, body, .. } in &made {
            let limit = self.records.definitions.get(name).max_size;
            if body.len() as u64 > limit {
                let what = format!("property {name} has more than {limit} bytes, its limit");
                return Err(GenerateError::Failed(what));
            }
        }
        Ok(made)
    }

    async fn store_generated(&self, page: &Page, rev: Revision, made: Vec<Generated>) -> Result<Tid> {
        let properties = self.stage_generated(page, made).await?;
        let base = RenderBase::Revision(rev);
        let render = NewRender { base, timestamp: None, if_latest: None, properties };
        Ok(self.put_render(&self.writes.writer(page), render).await?.tid)
    }

    async fn store_copies_of_generated(
        &self,
        page: &Page,
        rev: Revision,
        made: Vec<Generated>,
    ) -> Result<Tid> {
        let tid = Tid::new(self.records.clock.now(), self.records.distinction());
        let properties = self.stage_generated(page, made).await?.into_iter();
        let bodies = properties.map(|property| body_of(property, None, &self.records.definitions)).collect();
        self.retention.store_generated(page, rev, tid, bodies).await?;
        Ok(tid)
    }

    async fn stage_generated(&self, page: &Page, made: Vec<Generated>) -> Result<Vec<NewProperty>> {
        let mut properties = Vec::with_capacity(made.len());
        for Generated { name, content_type, body } in made {
            let body = self.records.stage_bytes(page, &name, &body).await?;
            properties.push(NewProperty { name, content_type, other_headers: Default::default(), body });
        }
        Ok(properties)
    }
}
