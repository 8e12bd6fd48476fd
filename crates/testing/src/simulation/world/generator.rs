//! The renderer of a world.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use rashomon_pages::{GenerateError, Generated, Generator, Page, PropertyName, Revision, Sha1};

use crate::simulation::name::Name;

/// A renderer that generates html and data-parsoid, with new content in each round. Every [`ROUNDS_PER_FAILURE`]th
/// round fails.
#[derive(Debug)]
pub(crate) struct SimulatedRenderer {
    makes: [PropertyName; 2],
    rounds: AtomicU64,
    /// The bodies of all rounds.
    generated: Mutex<BTreeSet<Sha1>>,
}

/// The number of rounds of which one fails.
const ROUNDS_PER_FAILURE: u64 = 5;

impl SimulatedRenderer {
    pub(crate) fn new() -> Self {
        let makes = [Name::Html, Name::Parsoid].map(|name| name.get().clone());
        Self { makes, rounds: AtomicU64::new(0), generated: Mutex::default() }
    }

    /// The number of rounds so far.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Whether a round generated this body.
    pub(crate) fn has_generated(&self, body: Sha1) -> bool {
        self.generated.lock().unwrap_or_else(PoisonError::into_inner).contains(&body)
    }
}

#[async_trait]
impl Generator for SimulatedRenderer {
    fn makes(&self, _: &Page) -> &[PropertyName] {
        &self.makes
    }

    async fn generate(&self, page: &Page, rev: Revision) -> Result<Vec<Generated>, GenerateError> {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        if round.is_multiple_of(ROUNDS_PER_FAILURE) {
            return Err(GenerateError::Failed(format!("round {round}")));
        }
        let body = format!("{} {rev} made in round {round}", page.title);
        self.generated.lock().unwrap_or_else(PoisonError::into_inner).insert(Sha1::of(body.as_bytes()));
        let generated = |name: &PropertyName| Generated {
            name: name.clone(),
            content_type: None,
            body: body.clone().into(),
        };
        Ok(self.makes.iter().map(generated).collect())
    }
}
