//! The end of a history: reads everything that must be stored, and then lets everything go that may.

use std::time::Duration;

use super::{HINTS, Run, broken};
use crate::{
    model::Fate,
    name::Name,
    setup::HOUR,
    violation::{Promise, Result, Violation},
};

/// The number of rounds within which everything is gone that may go. A pause of the sweep is included.
const ROUNDS: usize = 3;

impl Run {
    pub(super) async fn end(&mut self) -> Result<()> {
        self.pass_until_nothing_is_late().await?;
        self.release();
        for page in 0..self.pages.len() {
            self.check(page).await?;
        }
        self.check_latest(0).await?;
        self.read_all().await?;
        if self.policy.is_some() {
            self.let_all_go().await?;
        }
        if self.world.setup.large {
            self.check_chunks().await?;
        }
        self.verify().await
    }

    /// Reads every body by tid through the buckets. A stored row alone does not make a body readable.
    async fn read_all(&mut self) -> Result<()> {
        for page in 0..self.pages.len() {
            let made = self.pages[page].made.iter().map(|(tid, made)| (made.rev, *tid));
            let all: Vec<_> = self.pages[page].tids().chain(made).collect();
            for (number, (rev, tid)) in all.into_iter().enumerate() {
                for name in Name::ALL {
                    let process = number % self.world.processes.len();
                    if self.body(page, rev, tid, name).is_some() {
                        self.read(process, None, page, (rev, tid), name).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn let_all_go(&mut self) -> Result<()> {
        for round in 0..ROUNDS {
            let Some(policy) = self.policy.clone() else { return Ok(()) };
            let renders = self.pages.iter().flat_map(|page| {
                page.tids().map(|(rev, tid)| page.fate_of_render(rev, tid, &policy)).collect::<Vec<_>>()
            });
            let owns = self.pages.iter().flat_map(|page| {
                page.owns().map(|(rev, name)| page.fate_of_own(rev, name, &policy)).collect::<Vec<_>>()
            });
            let last = renders.chain(owns).filter_map(|Fate { gone_by, .. }| gone_by).max();
            let Some(last) = last.map(|last| last.max(self.held_from().unwrap_or(last))) else {
                return Ok(());
            };
            let rest = last.saturating_add(self.world.setup.skew).since(self.world.now);
            let pause = if round == 0 { Duration::ZERO } else { policy.grace + Duration::from_secs(1) };
            self.pass(rest + pause).await?;
            self.sweep_all(0, None).await?;
            for page in 0..self.pages.len() {
                self.check(page).await?;
            }
            if self.swept_at == Some(self.world.now) {
                return Ok(());
            }
        }
        Err(Violation::new(Promise::R4, "no sweep completed, long after the clocks were set"))
    }

    /// Checks that no unreferenced chunks of large bodies are left.
    async fn check_chunks(&mut self) -> Result<()> {
        // Copies are kept for that long under any of the policies, and their chunks for another hour. After a
        // jump ahead the collector accepts no more time than has passed since.
        let ahead = Duration::from_micros(self.most_ahead.max(0).unsigned_abs());
        self.pass(self.kept_for + HINTS + ahead).await?;
        self.world.processes[0].buckets.maintenance().collect_orphans(HOUR).await.map_err(broken)?;
        let mut named = 0;
        for page in 0..self.pages.len() {
            named += self.tables(page).await?.chunked.len();
        }
        let there = self.world.chunk_sets().await.map_err(broken)?;
        // If a writer was cut off before it set the `current` rows, the sweep sets them later, with new
        // chunks. The chunks that the writer stored stay until their render goes.
        let may_be_more = self.left_half_done && there > named;
        if there != named && !may_be_more {
            let what = format!("{there} bodies are stored in chunks, but {named} are referenced");
            return Err(Violation::new(Promise::R4, what));
        }
        Ok(())
    }

    async fn verify(&mut self) -> Result<()> {
        let report =
            self.world.processes[0].buckets.maintenance().verify(&mut |_| {}).await.map_err(broken)?;
        match report.problems.first() {
            Some(problem) => {
                Err(Violation::new(Promise::Answer, format!("verify found a problem: {problem}")))
            }
            None => Ok(()),
        }
    }
}
