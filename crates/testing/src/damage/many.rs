//! Runs trials in parallel, one on each processor.

use std::{
    num::NonZeroUsize,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread::available_parallelism,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::ValueEnum as _;
use rashomon_clock::{Clock as _, SystemClock};

use crate::damage::{
    ask::{self, AcceptLostLog, Answers},
    base::{self, Base},
    binary::Program,
    judge::{self, Judgement},
    kinds::{self, Damage, Kind},
    tally::Tally,
};

/// If no trial ends within this time, a hang is reported.
const TRIAL_LIMIT: Duration = Duration::from_secs(120);

/// One of every `BY_PROGRAM_EVERY` stores is also checked through the program.
const BY_PROGRAM_EVERY: u64 = 40;

/// The trials to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The number of stores to damage.
    pub stores: u64,
    /// The seed that the damage is drawn from.
    pub seed: u64,
    /// If set, only the store with this number is damaged.
    pub only: Option<u64>,
    /// If set, only this kind of damage is done.
    pub kind: Option<Kind>,
    /// No trial starts after this time.
    pub within: Option<Duration>,
    /// The path of the program. A part of the stores is also checked through the program.
    pub program: Option<PathBuf>,
}

/// The result of a trial.
struct Trial {
    number: u64,
    damage: Damage,
    answers: Answers,
    judgement: Judgement,
    by_program: bool,
}

/// Runs the trials, and shows each finding. Returns the counts.
pub fn run_trials(plan: &Plan, show: &mut dyn FnMut(&str)) -> Result<Tally> {
    ask::count_panics();
    let clock = SystemClock::new();
    let bases = Base::all()?;
    for base in &bases {
        show(&format!(
            "base {}: {} states, {} stores to damage (the last has {} bytes), {} questions",
            base.name,
            base.states.len(),
            base.victims.len(),
            base.victims.last().map_or(0, |victim| victim.files.file.len()),
            base.questions.len()
        ));
    }
    let (sender, trials) = mpsc::channel();
    let numbers = match plan.only {
        Some(only) => only..only + 1,
        None => 0..plan.stores,
    };
    let work = Arc::new(Work { plan: plan.clone(), bases, numbers: Mutex::new(numbers), clock });
    let workers = available_parallelism().map_or(1, NonZeroUsize::get);
    let workers: Vec<_> = (0..workers)
        .map(|_| {
            let (work, sender) = (Arc::clone(&work), sender.clone());
            std::thread::spawn(move || work.run_all(&sender))
        })
        .collect();
    drop(sender);
    let mut tally = Tally::default();
    loop {
        match trials.recv_timeout(TRIAL_LIMIT) {
            Ok(trial) => {
                let trial = trial?;
                report(plan, &trial, show);
                tally.add(&trial.damage, &trial.judgement, trial.by_program);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let done = tally.total().stores;
                anyhow::bail!(
                    "no trial has ended for {TRIAL_LIMIT:?}, after {done} stores: a store hangs, or the machine is \
                     too slow"
                );
            }
        }
    }
    for worker in workers {
        worker.join().map_err(|_| anyhow::anyhow!("a thread of the trials panicked"))?;
    }
    Ok(tally)
}

/// The state that the workers share.
struct Work {
    plan: Plan,
    bases: Vec<Base>,
    /// The numbers of the stores that no worker has taken yet.
    numbers: Mutex<Range<u64>>,
    clock: SystemClock,
}

impl Work {
    /// Runs one trial after another, until all stores are taken, the time is over, a trial fails, or nobody receives
    /// the results any more.
    fn run_all(&self, sender: &mpsc::Sender<Result<Trial>>) {
        let is_over = || self.plan.within.is_some_and(|within| self.clock.monotonic() > within);
        while !is_over() {
            let number = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(number) = number else { break };
            let trial = run(&self.bases, &self.plan, number);
            let failed = trial.is_err();
            if sender.send(trial.with_context(|| format!("store {number}"))).is_err() || failed {
                break;
            }
        }
    }
}

fn run(bases: &[Base], plan: &Plan, number: u64) -> Result<Trial> {
    let damage = kinds::draw(bases, plan.kind, plan.seed, number)?;
    let base = &bases[damage.base];
    let directory = base::scratch()?;
    damage.files.write_to(directory.path())?;
    let answers = ask::ask(directory.path(), &base.questions, &base.ask_options(AcceptLostLog(false)))?;
    let mut judgement = judge::judge(base, &damage, &answers)?;
    let by_program =
        plan.program.as_deref().filter(|_| plan.only.is_some() || number.is_multiple_of(BY_PROGRAM_EVERY));
    if let Some(program) = by_program {
        let findings = Program::new(program).check(base, &damage, &answers)?;
        if !findings.is_empty() {
            judgement.outcome = judge::Outcome::Finding;
            judgement.findings.extend(findings);
        }
    }
    Ok(Trial { number, damage, answers, judgement, by_program: by_program.is_some() })
}

fn report(plan: &Plan, trial: &Trial, show: &mut dyn FnMut(&str)) {
    const SHOWN: usize = 4;
    let Trial { number, damage, answers, judgement, .. } = trial;
    if judgement.findings.is_empty() && plan.only.is_none() {
        return;
    }
    show(&format!("store {number}: {}", damage.what));
    for finding in judgement.findings.iter().take(SHOWN) {
        show(&format!("  finding: {finding}"));
    }
    if judgement.findings.len() > SHOWN {
        show(&format!("  and {} more", judgement.findings.len() - SHOWN));
    }
    show(&format!(
        "  {:?}, {} errors; opened: {:?}; verify: {:?}; used bytes: {}; {:?}",
        judgement.outcome,
        judgement.errors,
        answers.opened,
        answers.verified.as_ref().map(|problems| problems.iter().take(3).collect::<Vec<_>>()),
        damage.changes_used_bytes,
        answers.took
    ));
    let kind = plan.kind.and_then(|kind| kind.to_possible_value());
    let kind = kind.map_or_else(String::new, |kind| format!(" --kind {}", kind.get_name()));
    show(&format!("  to repeat: cargo xtask damage --seed {}{kind} --only {number}", plan.seed));
}
