//! A server whose requests for pages go to the bucket `docs`.

use std::{ops::Deref, sync::Arc};

use rashomon_clock::ManualClock;
use rashomon_server::Settings;
use rashomon_tables::{Faulty, TableStore};

use crate::world;
pub(crate) use crate::world::{Answer, PAGE};

/// The URL of imports.
pub(crate) const IMPORT: &str = "/v1/enwiki/import?bucket=docs";

/// Sends each request for a page to the page of the same title in the bucket `docs`. In the answers, the addresses
/// are those of the bucket `page` again.
pub(crate) struct World(world::World);

impl World {
    pub(crate) async fn new() -> Self {
        Self(world::World::new().await.in_docs())
    }

    pub(crate) async fn in_memory() -> Self {
        Self(world::World::in_memory().await.in_docs())
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        Self(world::World::with(settings).await.in_docs())
    }

    pub(crate) async fn of(
        store: Arc<Faulty<Arc<dyn TableStore>>>,
        clock: Arc<ManualClock>,
        settings: Settings,
        of_buckets: rashomon_pages::Settings,
    ) -> Self {
        Self(world::World::of(store, clock, settings, of_buckets).await.in_docs())
    }
}

impl Deref for World {
    type Target = world::World;

    fn deref(&self) -> &world::World {
        &self.0
    }
}
