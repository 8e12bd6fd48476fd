//! Tests kill a program many times, at random moments of its run.

use std::{collections::BTreeMap, process::Command, thread, time::Duration};

use rashomon_clock::{Clock as _, SystemClock};
use rustix::process::Signal;

use crate::process::{ProcessOutput, RunningProcess};

/// The variable with the number of kills of each test. `cargo xtask nightly` sets it.
const KILL_ROUNDS: &str = "RASHOMON_KILL_ROUNDS";

/// The number of kills of a test: that of the environment, or else this one, with which the test is short.
pub(crate) fn kill_rounds(short: u64) -> u64 {
    std::env::var(KILL_ROUNDS).ok().map_or(short, |number| number.parse().expect("a number of kills"))
}

/// Kills runs of commands at random moments, until enough runs did not end before their kill. How many runs
/// that takes depends on the speed of the machine.
pub(crate) struct Kills {
    wanted: u64,
    killed: u64,
    runs: u64,
    /// The shortest run of each command that ended before its kill. The kills of the next runs come earlier.
    shortest: BTreeMap<&'static str, Duration>,
    random: u64,
}

impl Kills {
    pub(crate) fn new(wanted: u64, seed: u64) -> Self {
        Self { wanted, killed: 0, runs: 0, shortest: BTreeMap::new(), random: seed }
    }

    pub(crate) fn is_enough(&self) -> bool {
        self.killed >= self.wanted
    }

    /// The number of the next run.
    pub(crate) fn next_round(&mut self) -> u64 {
        let (killed, round) = (self.killed, self.runs);
        assert!(round < 20 * self.wanted, "only {killed} of {round} runs were killed before they were done");
        self.runs += 1;
        round
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// Runs the command, which is known by this name, and kills it.
    pub(crate) fn kill(&mut self, name: &'static str, command: &mut Command) -> ProcessOutput {
        let share = (self.random() % 1000) as f64 / 1000.0;
        let shortest = self.shortest.entry(name).or_insert(Duration::from_millis(300));
        let clock = SystemClock::new();
        let started = clock.monotonic();
        let process = RunningProcess::start(command);
        thread::sleep(shortest.mul_f64(share));
        process.signal(Signal::KILL);
        let ran = process.wait();
        if ran.code == Some(0) {
            *shortest = (*shortest).min(clock.monotonic() - started);
        }
        self.killed += u64::from(ran.code.is_none());
        ran
    }
}
