//! The faults: what is done to the ring while the traffic goes on.

use std::{thread, time::Duration};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{
    journal::GRACE,
    network,
    ring::{NODES, Ring},
    traffic::Traffic,
};
use crate::{process::Stopwatch, service::Service};

/// The traffic goes on for so long before a fault.
const BEFORE: Duration = Duration::from_secs(2);
/// And for so long after its end; the first seconds do not count.
const AFTER: Duration = GRACE.saturating_add(Duration::from_secs(6));
/// A process that hangs does so for so long: until the others have noticed, and some more.
const STALL: Duration = Duration::from_secs(20);
/// Two hang for so long: longer than a request may take, and less than the time in which requests may fail.
const WITHOUT_QUORUM: Duration = Duration::from_secs(4);
/// How many seconds a clock is off.
const CLOCK_OFF: i64 = 300;
/// And for how long: nodes look only every ten seconds how their clocks, by which they tell which message comes
/// too late, differ from the time that passes.
const CLOCK_LASTING: Duration = Duration::from_secs(20);

/// What a fault is done with.
pub(super) struct Means<'a> {
    /// How long it lasts, where that is not part of it.
    pub(super) lasting: Duration,
    /// Starts one more service on the ring.
    pub(super) start_a_service: &'a dyn Fn() -> Result<Service>,
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Fault {
    /// None: what the ring bears when it is well.
    None,
    /// kill -9 of a node, and its return.
    Kill,
    /// A node hangs (SIGSTOP) for 20 s.
    Stall,
    /// Two nodes hang for four seconds, so that there is no quorum: nobody knows how what was sent ends, and it
    /// is made again.
    Quorum,
    /// A node is cut off from the others by a packet filter; clients still reach it.
    Cut,
    /// All nodes are restarted, one after another.
    Roll,
    /// The clock of a node is set five minutes back, then five minutes ahead.
    Clock,
}

impl Fault {
    /// All of them, in the order in which they are done.
    pub(super) const ALL: [Self; 7] =
        [Self::None, Self::Kill, Self::Stall, Self::Quorum, Self::Cut, Self::Roll, Self::Clock];

    /// How the command line and the table call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Kill => "kill",
            Self::Stall => "stall",
            Self::Quorum => "quorum",
            Self::Cut => "cut",
            Self::Roll => "roll",
            Self::Clock => "clock",
        }
    }

    /// Whether it makes writes end so that nobody knows; then there have to be some.
    pub(super) const fn leaves_unknown(self) -> bool {
        matches!(self, Self::Quorum)
    }

    /// Does it to the ring, and makes it good.
    pub(super) fn inject(self, ring: &mut Ring, traffic: &Traffic<'_>, means: &Means<'_>) -> Result<()> {
        let lasting = means.lasting;
        thread::sleep(BEFORE);
        match self {
            Self::None => thread::sleep(lasting),
            Self::Kill => kill(ring, traffic, lasting)?,
            Self::Stall => stall(ring, traffic, means)?,
            Self::Quorum => lose_the_quorum(ring, traffic)?,
            Self::Cut => cut(traffic, lasting)?,
            Self::Roll => roll(ring, traffic)?,
            Self::Clock => clock(ring, traffic)?,
        }
        if self != Self::None {
            thread::sleep(AFTER);
        }
        Ok(())
    }
}

fn kill(ring: &mut Ring, traffic: &Traffic<'_>, lasting: Duration) -> Result<()> {
    traffic.event("node 2 is killed");
    ring.end(2, Signal::KILL)?;
    thread::sleep(lasting);
    ring.run(2)?;
    traffic.event("node 2 is back");
    Ok(())
}

fn stall(ring: &Ring, traffic: &Traffic<'_>, means: &Means<'_>) -> Result<()> {
    let clock = Stopwatch::start();
    traffic.event("node 3 hangs");
    ring.signal(3, Signal::STOP)?;
    thread::sleep(GRACE);
    // It knows no node yet, and has no statement prepared.
    let newcomer = (means.start_a_service)().context("a service that starts while a node hangs")?;
    traffic.remark(&format!("a service started in {:.1} s", newcomer.started_in().as_secs_f64()));
    traffic.go_through(newcomer.address());
    newcomer.stop()?;
    thread::sleep(STALL.saturating_sub(clock.elapsed()));
    traffic.event("node 3 goes on");
    ring.signal(3, Signal::CONT)
}

fn lose_the_quorum(ring: &Ring, traffic: &Traffic<'_>) -> Result<()> {
    traffic.event("nodes 2 and 3 hang");
    let both = |signal| ring.signal(2, signal).and_then(|()| ring.signal(3, signal));
    both(Signal::STOP)?;
    thread::sleep(WITHOUT_QUORUM);
    traffic.event("nodes 2 and 3 go on");
    both(Signal::CONT)
}

fn cut(traffic: &Traffic<'_>, lasting: Duration) -> Result<()> {
    traffic.event("node 2 is cut off");
    network::cut_off(2)?;
    thread::sleep(lasting);
    traffic.event("node 2 is reached again");
    network::heal()
}

fn roll(ring: &mut Ring, traffic: &Traffic<'_>) -> Result<()> {
    for number in 1..=NODES {
        restart(ring, traffic, number)?;
        // As an operator does: two nodes that are away at once are no fault that a quorum bears.
        ring.wait_until_whole()?;
    }
    Ok(())
}

fn clock(ring: &Ring, traffic: &Traffic<'_>) -> Result<()> {
    for (seconds_ahead, what) in [(-CLOCK_OFF, "behind"), (CLOCK_OFF, "ahead")] {
        traffic.event(&format!("the clock of node 3 is {CLOCK_OFF} s {what}"));
        ring.set_clock(seconds_ahead)?;
        thread::sleep(CLOCK_LASTING);
    }
    traffic.event("the clock of node 3 is right");
    ring.set_clock(0)
}

/// Asks a node to end, and starts it again.
fn restart(ring: &mut Ring, traffic: &Traffic<'_>, number: u8) -> Result<()> {
    traffic.event(&format!("node {number} is asked to end"));
    ring.end(number, Signal::TERM)?;
    ring.run(number)?;
    traffic.event(&format!("node {number} is back"));
    Ok(())
}
