//! The faults that the ring has during the traffic.

use std::{thread, time::Duration};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{
    journal::FAILURE_WINDOW,
    network,
    ring::{NODES, Ring},
    traffic::Traffic,
};
use crate::{process::Stopwatch, service::Service};

/// The time for which traffic runs before a fault.
const TRAFFIC_BEFORE_FAULT: Duration = Duration::from_secs(2);
/// The time for which traffic runs after the end of a fault. The first seconds do not count.
const TRAFFIC_AFTER_FAULT: Duration = FAILURE_WINDOW.saturating_add(Duration::from_secs(6));
/// The time for which a node hangs: until the other nodes have noticed, plus a margin.
const STALL_TIME: Duration = Duration::from_secs(20);
/// The time for which two nodes hang: longer than a request may take, and less than the time in which
/// requests may fail.
const NO_QUORUM_TIME: Duration = Duration::from_secs(4);
/// The number of seconds by which a clock is wrong.
const CLOCK_OFF: i64 = 300;
/// The time for which a clock is wrong. A node compares its clock with the monotonic time only every ten
/// seconds. It uses the difference to recognise messages that come too late.
const CLOCK_LASTING: Duration = Duration::from_secs(20);

/// The parameters of a fault.
pub(super) struct FaultParameters<'a> {
    /// The duration of faults that do not define their own.
    pub(super) lasting: Duration,
    /// Starts one more service on the ring.
    pub(super) start_a_service: &'a dyn Fn() -> Result<Service>,
}

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Fault {
    /// No fault: shows how the ring behaves normally.
    None,
    /// kill -9 of a node, and its restart.
    Kill,
    /// A node hangs (SIGSTOP) for 20 s.
    Stall,
    /// Two nodes hang for four seconds, so that there is no quorum. The outcome of requests in flight is
    /// unknown, so the writes are repeated.
    Quorum,
    /// A packet filter separates a node from the others; clients still reach the node.
    Cut,
    /// All nodes are restarted, one after another.
    Roll,
    /// The clock of a node is set five minutes back, then five minutes ahead.
    Clock,
}

impl Fault {
    /// All faults, in the order in which they run.
    pub(super) const ALL: [Self; 7] =
        [Self::None, Self::Kill, Self::Stall, Self::Quorum, Self::Cut, Self::Roll, Self::Clock];

    /// The name on the command line and in the table.
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

    /// Whether the outcomes of some writes must be unknown with this fault.
    pub(super) const fn leaves_unknown(self) -> bool {
        matches!(self, Self::Quorum)
    }

    /// Causes the fault on the ring and ends it, with traffic before and after.
    pub(super) fn inject(
        self,
        ring: &mut Ring,
        traffic: &Traffic<'_>,
        parameters: &FaultParameters<'_>,
    ) -> Result<()> {
        let lasting = parameters.lasting;
        thread::sleep(TRAFFIC_BEFORE_FAULT);
        match self {
            Self::None => thread::sleep(lasting),
            Self::Kill => kill(ring, traffic, lasting)?,
            Self::Stall => stall(ring, traffic, parameters)?,
            Self::Quorum => lose_the_quorum(ring, traffic)?,
            Self::Cut => cut(traffic, lasting)?,
            Self::Roll => roll(ring, traffic)?,
            Self::Clock => clock(ring, traffic)?,
        }
        if self != Self::None {
            thread::sleep(TRAFFIC_AFTER_FAULT);
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

fn stall(ring: &Ring, traffic: &Traffic<'_>, parameters: &FaultParameters<'_>) -> Result<()> {
    let clock = Stopwatch::start();
    traffic.event("node 3 hangs");
    ring.signal(3, Signal::STOP)?;
    thread::sleep(FAILURE_WINDOW);
    // The new service does not know any node yet, and has no prepared statements.
    let newcomer = (parameters.start_a_service)().context("cannot start a service while a node hangs")?;
    traffic.remark(&format!("a service started in {:.1} s", newcomer.started_in().as_secs_f64()));
    traffic.try_service(newcomer.address());
    newcomer.stop()?;
    thread::sleep(STALL_TIME.saturating_sub(clock.elapsed()));
    traffic.event("node 3 goes on");
    ring.signal(3, Signal::CONT)
}

fn lose_the_quorum(ring: &Ring, traffic: &Traffic<'_>) -> Result<()> {
    traffic.event("nodes 2 and 3 hang");
    let both = |signal| ring.signal(2, signal).and_then(|()| ring.signal(3, signal));
    both(Signal::STOP)?;
    thread::sleep(NO_QUORUM_TIME);
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
        // An operator would wait, too, because there is no quorum while two nodes are down.
        ring.wait_until_all_up()?;
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
