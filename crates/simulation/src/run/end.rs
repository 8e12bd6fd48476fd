//! The end of a history: everything is read that must be there, and all goes that may.

use std::time::Duration;

use super::{HINTS, Run, broken};
use crate::{
    model::Fate,
    name::Name,
    setup::HOUR,
    violation::{Promise, Result, Violation},
};

/// Rounds in which everything is gone that may go, a pause of the sweep included.
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

    /// By tid, through the buckets: that a row stands is not all that it takes.
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
        Err(Violation::new(Promise::R4, "nothing is swept, long after the clocks were set"))
    }

    /// Of the large bodies all chunks are gone that nothing names.
    async fn check_chunks(&mut self) -> Result<()> {
        // What was read or copied under any of the policies is kept for so long, and its chunks for another hour.
        // A collector takes no more of a jump ahead than has passed since.
        let ahead = Duration::from_micros(self.most_ahead.max(0).unsigned_abs());
        self.pass(self.kept_for + HINTS + ahead).await?;
        self.world.processes[0].buckets.collect_orphans(HOUR).await.map_err(broken)?;
        let mut named = 0;
        for page in 0..self.pages.len() {
            named += self.tables(page).await?.chunked.len();
        }
        let there = self.world.chunk_sets().await.map_err(broken)?;
        // What a writer did not set from it has its chunks until its render goes, beside those of what the sweep set.
        let may_be_more = self.left_half_done && there > named;
        if there != named && !may_be_more {
            let what = format!("{there} bodies lie in chunks, and {named} are named");
            return Err(Violation::new(Promise::R4, what));
        }
        Ok(())
    }

    async fn verify(&mut self) -> Result<()> {
        let report = self.world.processes[0].buckets.verify(&mut |_| {}).await.map_err(broken)?;
        match report.problems.first() {
            Some(problem) => {
                Err(Violation::new(Promise::Answer, format!("the store is not whole: {problem}")))
            }
            None => Ok(()),
        }
    }
}
