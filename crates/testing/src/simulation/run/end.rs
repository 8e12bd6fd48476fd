//! The end of a history: checks and reads all values, waits until all deletable values are deleted, and verifies
//! the store.

use std::time::Duration;

use super::{HINTS, Run, broken};
use crate::simulation::{
    model::Lifetime,
    name::Name,
    setup::HOUR,
    violation::{Promise, Result, Violation},
};

/// The number of rounds within which all deletable values must be deleted. In a round, time passes and a sweep runs. A
/// sweep may delete nothing for a while after the clocks were set, so one round may not be enough.
const MAX_ROUNDS: usize = 3;

impl Run {
    pub(super) async fn end(&mut self) -> Result<()> {
        self.pass_until_nothing_is_late().await?;
        self.expected.release(self.world.now);
        self.check_pages().await?;
        self.check_latest(0).await?;
        self.read_all().await?;
        if self.expected.policy().is_some() {
            self.wait_until_deleted().await?;
        }
        if !self.world.deleted_pages.is_empty() {
            self.check_deleted_pages().await?;
        }
        if self.world.setup.large {
            self.check_chunks().await?;
        }
        self.verify().await
    }

    /// Reads every body by tid through the buckets. A stored row alone does not make a body readable.
    async fn read_all(&mut self) -> Result<()> {
        for page in 0..self.expected.pages.len() {
            let model = &self.expected.pages[page];
            let generated = model.generated.iter().map(|(tid, generated)| (generated.rev, *tid));
            let all: Vec<_> = model.tids().chain(generated).collect();
            for (number, (rev, tid)) in all.into_iter().enumerate() {
                for name in Name::ALL {
                    let process = number % self.world.processes.len();
                    if self.expected.body(page, rev, tid, name).is_some() {
                        self.client(process, None).read(page, (rev, tid), name).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn wait_until_deleted(&mut self) -> Result<()> {
        for round in 0..MAX_ROUNDS {
            let Some(policy) = self.expected.policy().cloned() else { return Ok(()) };
            let renders = self.expected.pages.iter().flat_map(|page| {
                page.tids().map(|(rev, tid)| page.lifetime_of_render(rev, tid, &policy)).collect::<Vec<_>>()
            });
            let owns = self.expected.pages.iter().flat_map(|page| {
                page.revision_properties()
                    .map(|(rev, name)| page.lifetime_of_own(rev, name, &policy))
                    .collect::<Vec<_>>()
            });
            let last = renders.chain(owns).filter_map(|Lifetime { gone_by, .. }| gone_by).max();
            let enforced_from = self.expected.deadlines.enforced_from();
            let Some(last) = last.map(|last| last.max(enforced_from.unwrap_or(last))) else {
                return Ok(());
            };
            let rest = last.saturating_add(self.world.setup.skew).since(self.world.now);
            let pause = if round == 0 { Duration::ZERO } else { policy.grace + Duration::from_secs(1) };
            self.pass(rest + pause).await?;
            self.sweep_all(0, None).await?;
            self.check_pages().await?;
            if self.expected.deadlines.is_swept_at(self.world.now) {
                return Ok(());
            }
        }
        Err(Violation::new(Promise::R4, "no sweep completed, long after the clocks were set"))
    }

    /// Checks that nothing of the deleted buckets is left after their pages were deleted.
    async fn check_deleted_pages(&mut self) -> Result<()> {
        self.pass(2 * HINTS).await?;
        // The titles are deleted by a run that finds no rows any more.
        for _ in 0..2 {
            self.world.delete_pages(0, HINTS).await.map_err(broken)?;
        }
        let left = self.world.tables_of_deleted_pages().await.map_err(broken)?;
        match left.first() {
            Some((table, page)) => {
                Err(Violation::new(Promise::Answer, format!("{table} has rows of the deleted page {page:?}")))
            }
            None => Ok(()),
        }
    }

    /// Checks that no unreferenced chunks of large bodies are left.
    async fn check_chunks(&mut self) -> Result<()> {
        self.pass(self.expected.deadlines.chunks_kept_for()).await?;
        self.world.processes[0].buckets.maintenance().collect_orphans(HOUR).await.map_err(broken)?;
        let mut named = 0;
        for page in 0..self.expected.pages.len() {
            named += self.tables(page).await?.chunked.len();
        }
        let there = self.world.chunk_sets().await.map_err(broken)?;
        // If a writer was interrupted before it set the `current` rows, the sweep sets these rows later, with
        // new chunks. The chunks that the writer stored stay until their render is deleted.
        let may_be_more = self.expected.was_interrupted && there > named;
        if there != named && !may_be_more {
            let what = format!("{there} bodies are stored in chunks, but {named} are referenced");
            return Err(Violation::new(Promise::R4, what));
        }
        Ok(())
    }

    async fn verify(&mut self) -> Result<()> {
        let buckets = &self.world.processes[0].buckets;
        let report = rashomon_pages::operations::verify(buckets, &mut |_| {}).await.map_err(broken)?;
        match report.problems.first() {
            Some(problem) => {
                Err(Violation::new(Promise::Answer, format!("verify found a problem: {problem}")))
            }
            None => Ok(()),
        }
    }
}
