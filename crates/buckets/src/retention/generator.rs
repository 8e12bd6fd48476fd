//! Generates properties that are not stored, when a client reads them.

use std::{fmt::Debug, sync::atomic::Ordering::Relaxed, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use moka::future::Cache;

use super::Policy;
use crate::{
    Error, GenerateError, NewProperty, NewRender, Page, PropertyName, RenderBase, Result, Revision,
    Revisioned, Tid,
    content::{Bodies, Staged},
    revisioned::{Shared, body_of},
    rows::{RenderKey, RowKey},
    schemas::RENDERS,
};

/// For how long a failed render of a revision is remembered, so that a failing renderer is not called for
/// each read.
const FAILURES_REMEMBERED: Duration = Duration::from_secs(5);

/// Maximum number of revisions that are remembered because they are being rendered or have failed.
const MAX_REMEMBERED_RENDERS: u64 = 10_000;

/// Generates properties, usually by a renderer.
#[async_trait]
pub trait Generator: Debug + Send + Sync + 'static {
    /// The properties that the generator makes for pages of this page's bucket, always all of them together.
    /// Empty if none is configured.
    fn makes(&self, page: &Page) -> &[PropertyName];

    /// Generates all of these properties for a revision, or none. Implementations bound the time and the
    /// bytes.
    async fn generate(
        &self,
        page: &Page,
        rev: Revision,
    ) -> std::result::Result<Vec<Generated>, GenerateError>;
}

/// A property that was generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The name.
    pub name: PropertyName,
    /// The content type; `None`: the content type of the property's definition.
    pub content_type: Option<String>,
    /// The content.
    pub body: Bytes,
}

/// The renders in flight, and those that failed a moment ago.
#[derive(Debug)]
pub(crate) struct Generations(Cache<(Page, Revision), Result<Tid>>);

impl Generations {
    pub(crate) fn new() -> Self {
        let rounds = Cache::builder().max_capacity(MAX_REMEMBERED_RENDERS).time_to_live(FAILURES_REMEMBERED);
        Self(rounds.build())
    }
}

impl Revisioned {
    /// Has the property of a revision generated, and returns the render that then has it. Concurrent callers
    /// share one call of the renderer. `None`: the generator does not make this property.
    pub(crate) async fn generated(
        &self,
        page: &Page,
        rev: Revision,
        name: &PropertyName,
    ) -> Result<Option<Tid>> {
        let shared = &self.0;
        let Some(generator) = &shared.settings.retention.generator else { return Ok(None) };
        if !generator.makes(page).contains(name) {
            return Ok(None);
        }
        let round = (page.clone(), rev);
        // The first caller may be cancelled; the others still wait for the same render.
        let made = shared.generations.0.get_with_by_ref(&round, async {
            let (this, page) = (self.clone(), page.clone());
            crate::revisioned::whole(async move { this.0.generate(&page, rev).await }).await
        });
        let made = Box::pin(made).await;
        if !matches!(made, Err(Error::Generate(_))) {
            // The render is in the store now, or something else than the renderer failed.
            shared.generations.0.invalidate(&round).await;
        }
        made.map(Some)
    }
}

impl Shared {
    /// Has a revision rendered, and stores the result as a render. If the bucket has a policy, an older
    /// revision than the latest gets it as read copies instead.
    async fn generate(&self, page: &Page, rev: Revision) -> Result<Tid> {
        let Some(generator) = &self.settings.retention.generator else {
            return Err(GenerateError::Failed("there is none".to_owned()).into());
        };
        self.retained.generator_misses.fetch_add(1, Relaxed);
        self.retained.generator_in_flight.fetch_add(1, Relaxed);
        let made = generator.generate(page, rev).await;
        self.retained.generator_in_flight.fetch_sub(1, Relaxed);
        let made = made.and_then(|made| self.not_too_large(made)).inspect_err(|_| {
            self.retained.generator_failures.fetch_add(1, Relaxed);
        })?;
        let latest = self.records.first(&RENDERS, page, rashomon_tables::ClusteringRange::all()).await?;
        let is_latest =
            latest.and_then(|row| RenderKey::read(&row.key)).is_some_and(|latest| latest.rev == rev);
        match self.settings.retention.of(page) {
            Some(policy) if is_latest => self.store_kept(page, policy, rev, made).await,
            Some(policy) => self.store_historical(page, policy, rev, made).await,
            None => self.store_render(page, rev, made).await,
        }
    }

    fn not_too_large(&self, made: Vec<Generated>) -> std::result::Result<Vec<Generated>, GenerateError> {
        for Generated { name, body, .. } in &made {
            let limit = self.settings.definitions.get(name).max_size;
            if body.len() as u64 > limit {
                let what = format!("property {name} has more than its {limit} bytes");
                return Err(GenerateError::Failed(what));
            }
        }
        Ok(made)
    }

    /// Stores a generated render of the latest revision. The render may be superseded at once. It stays
    /// readable for the grace after that, and for the `ttl` in which its reader may return.
    async fn store_kept(
        &self,
        page: &Page,
        policy: &Policy,
        rev: Revision,
        made: Vec<Generated>,
    ) -> Result<Tid> {
        let goes_sooner = policy.grace < policy.ttl || policy.strategy.deletes_what_it_has_not_copied();
        let name = made.first().filter(|_| goes_sooner).map(|made| made.name.clone());
        let tid = self.store_render(page, rev, made).await?;
        if let Some(name) = name {
            // This copies the whole render, not this property alone.
            self.keep_latest(page, policy, (rev, tid), &name).await?;
        }
        Ok(tid)
    }

    async fn store_render(&self, page: &Page, rev: Revision, made: Vec<Generated>) -> Result<Tid> {
        let mut properties = Vec::with_capacity(made.len());
        for Generated { name, content_type, body } in made {
            let body = self.records.stage_bytes(page, &name, &body).await?;
            properties.push(NewProperty { name, content_type, other_headers: Default::default(), body });
        }
        let base = RenderBase::Revision(rev);
        let render = NewRender { base, timestamp: None, if_latest: None, properties };
        Ok(self.put_render(page, render).await?.tid)
    }

    async fn store_historical(
        &self,
        page: &Page,
        policy: &Policy,
        rev: Revision,
        made: Vec<Generated>,
    ) -> Result<Tid> {
        let tid = Tid::new(self.records.clock.now(), self.records.distinction());
        let mut bodies = Bodies::new();
        for Generated { name, content_type, body } in made {
            let body = match Staged::inline(&body) {
                Some(staged) => staged,
                None => self.records.stage_bytes(page, &name, &body).await?,
            };
            let property = NewProperty { name, content_type, other_headers: Default::default(), body };
            let (name, body) = body_of(property, None, &self.settings);
            bodies.insert(name, body);
        }
        self.put_tid(page, policy, rev, tid).await?;
        self.put_historical(page, policy, rev, tid, bodies).await?;
        Ok(tid)
    }
}
