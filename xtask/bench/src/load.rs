//! The load generator: many connections on one thread, with as little work as possible.
//!
//! The load generator shares two cores with the program under test, so it must use little processor time.
//! Requests are made beforehand or by copying, one epoll instance serves all connections, and most answers
//! take one read. `docs/benchmarks.md` compares it with wrk.
//!
//! There are two modes. In the closed mode, each connection sends its next request when it has the answer:
//! this measures the maximum rate of a server. In the open mode, requests are scheduled at fixed times,
//! whatever the server does, and the latency counts from the scheduled time. A stalled server is then charged
//! for all requests that had to wait. A closed loop would never have sent those requests ("coordinated
//! omission").

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token, net::TcpStream, unix::SourceFd};
use rashomon_clock::Clock;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use xtask::http::Head;

/// The time without an answer after which the server counts as hanging.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// The maximum latency in the histogram. Higher latencies are recorded as this value.
const MAX_LATENCY: Duration = Duration::from_secs(60);
const INPUT_SIZE: usize = 64 << 10;

/// The requests to send, and the check of their answers.
pub(crate) trait Traffic {
    /// Writes the next request of a connection into `out`, which contains the connection's previous request.
    fn request(&mut self, connection: usize, out: &mut Vec<u8>);

    /// Checks the answer. An error ends the run.
    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<()>;

    /// Records the status of an answer within the measured time, and its latency from the time at which the request was
    /// sent.
    fn record(&mut self, _status: u16, _since_sent: Duration) {}

    /// Whether the run ends before its time.
    fn is_done(&self) -> bool {
        false
    }
}

/// The pace at which requests are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    /// The next request is sent when the previous one is answered.
    Closed,
    /// This many requests are sent per second, at fixed times.
    Open(f64),
}

/// The settings of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) connections: usize,
    pub(crate) pace: Pace,
    /// The time at the beginning in which answers are not counted.
    pub(crate) warm_up: Duration,
    /// The time after `warm_up` in which answers are counted.
    pub(crate) measure: Duration,
}

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// Answers within the measured time.
    pub(crate) answers: u64,
    /// The time from the scheduled time of a request until its answer was complete, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    seconds: f64,
}

impl Measurement {
    pub(crate) fn per_second(&self) -> f64 {
        self.answers as f64 / self.seconds
    }

    /// A quantile of the latency, in milliseconds.
    pub(crate) fn latency_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e6
    }
}

/// Carries out one run.
pub(crate) fn run(plan: &Plan, clock: &dyn Clock, traffic: &mut dyn Traffic) -> Result<Measurement> {
    let mut driver = Driver::connect(plan, clock)?;
    driver.send_what_is_due(traffic)?;
    let mut events = Events::with_capacity(plan.connections + 1);
    while clock.monotonic() < driver.end && !traffic.is_done() {
        driver.wait(&mut events)?;
        for event in &events {
            match event.token().0 {
                TIMER => driver.schedule.clear_timer()?,
                connection => {
                    if event.is_writable() {
                        driver.connections[connection].write()?;
                    }
                    if event.is_readable() {
                        driver.read(connection, traffic)?;
                    }
                }
            }
        }
        driver.send_what_is_due(traffic)?;
    }
    Ok(driver.finish())
}

/// Makes calls in this process, one after the other, until there are no more arguments or the time has passed.
pub(crate) fn repeat<T>(
    arguments: impl IntoIterator<Item = T>,
    limit: Duration,
    clock: &dyn Clock,
    mut call: impl FnMut(T) -> Result<()>,
) -> Result<Measurement> {
    let (mut answers, mut latency) = (0, empty_histogram()?);
    let start = clock.monotonic();
    for argument in arguments {
        let called = clock.monotonic();
        if called - start >= limit {
            break;
        }
        call(argument)?;
        latency.saturating_record(u64::try_from((clock.monotonic() - called).as_nanos())?);
        answers += 1;
    }
    Ok(Measurement { answers, latency, seconds: (clock.monotonic() - start).as_secs_f64() })
}

/// A histogram of latencies in nanoseconds.
pub(crate) fn empty_histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(u64::try_from(MAX_LATENCY.as_nanos())?, 3)?)
}

/// Carries out two measurements, in the given order in even turns and in the reverse order in odd turns. Returns the
/// results in the order of the arguments.
pub(crate) fn in_turn<A, B>(
    turn: usize,
    one: impl FnOnce() -> Result<A>,
    other: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    if turn.is_multiple_of(2) {
        let one = one()?;
        Ok((one, other()?))
    } else {
        let other = other()?;
        Ok((one()?, other))
    }
}

const TIMER: usize = usize::MAX - 1;

struct Driver<'a> {
    clock: &'a dyn Clock,
    poll: Poll,
    connections: Vec<Connection>,
    schedule: Schedule,
    /// Connections that wait for their next request.
    idle: VecDeque<usize>,
    measure_from: Duration,
    end: Duration,
    answers: u64,
    latency: Histogram<u64>,
}

impl<'a> Driver<'a> {
    fn connect(plan: &Plan, clock: &'a dyn Clock) -> Result<Self> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(plan.connections);
        for token in 0..plan.connections {
            connections.push(Connection::open(plan.address, &poll, Token(token))?);
        }
        let start = clock.monotonic();
        let measure_from = start + plan.warm_up;
        Ok(Self {
            clock,
            schedule: Schedule::new(plan.pace, start, &poll)?,
            poll,
            idle: (0..connections.len()).collect(),
            connections,
            measure_from,
            end: measure_from + plan.measure,
            answers: 0,
            latency: empty_histogram()?,
        })
    }

    fn wait(&mut self, events: &mut Events) -> Result<()> {
        if !self.idle.is_empty() {
            self.schedule.arm_timer(self.clock.monotonic())?;
        }
        let left = self.end.saturating_sub(self.clock.monotonic());
        match self.poll.poll(events, Some(left.min(SILENCE_LIMIT))) {
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => {
                ensure!(!events.is_empty() || left <= SILENCE_LIMIT, "no answer for {SILENCE_LIMIT:?}");
                Ok(())
            }
        }
    }

    fn send_what_is_due(&mut self, traffic: &mut dyn Traffic) -> Result<()> {
        while let Some(&index) = self.idle.front() {
            let Some(due) = self.schedule.take(self.clock.monotonic()) else { break };
            self.idle.pop_front();
            let connection = &mut self.connections[index];
            traffic.request(index, &mut connection.output);
            connection.due = due;
            connection.sent = self.clock.monotonic();
            connection.written = 0;
            connection.write()?;
        }
        Ok(())
    }

    fn read(&mut self, index: usize, traffic: &mut dyn Traffic) -> Result<()> {
        let connection = &mut self.connections[index];
        if let Some(head) = connection.read()? {
            let now = self.clock.monotonic();
            if (self.measure_from..self.end).contains(&now) {
                self.answers += 1;
                self.latency.saturating_record(u64::try_from((now - connection.due).as_nanos())?);
                traffic.record(head.status, now.saturating_sub(connection.sent));
            }
            let body = &connection.input[head.length..head.length + head.body];
            traffic.answer(index, head.status, body)?;
            connection.filled = 0;
            self.idle.push_back(index);
        }
        Ok(())
    }

    fn finish(self) -> Measurement {
        let measured = self.clock.monotonic().min(self.end).saturating_sub(self.measure_from);
        Measurement { answers: self.answers, latency: self.latency, seconds: measured.as_secs_f64() }
    }
}

/// The schedule of requests.
struct Schedule {
    /// The time between two requests. `None`: a request may be sent at any time.
    interval: Option<Duration>,
    next: Duration,
    /// A timer for the next scheduled request. It is more precise than the milliseconds of epoll. It needs no
    /// busy waiting, which would take a core from the server.
    timer: OwnedFd,
}

impl Schedule {
    fn new(pace: Pace, start: Duration, poll: &Poll) -> Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        poll.registry().register(&mut SourceFd(&timer.as_raw_fd()), Token(TIMER), Interest::READABLE)?;
        let interval = match pace {
            Pace::Closed => None,
            Pace::Open(rate) => {
                ensure!(rate.is_finite() && rate > 0.0, "the rate {rate} is not a positive number");
                Some(Duration::from_secs_f64(1.0 / rate))
            }
        };
        Ok(Self { interval, next: start, timer })
    }

    /// If a request may be sent now, returns its scheduled time.
    fn take(&mut self, now: Duration) -> Option<Duration> {
        let Some(interval) = self.interval else { return Some(now) };
        let due = self.next;
        (due <= now).then(|| {
            self.next += interval;
            due
        })
    }

    fn arm_timer(&mut self, now: Duration) -> Result<()> {
        if self.interval.is_none() {
            return Ok(());
        }
        // A time of zero would disarm the timer.
        let left = self.next.saturating_sub(now).max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: left.as_secs().try_into()?, tv_nsec: left.subsec_nanos().into() },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    fn clear_timer(&self) -> Result<()> {
        match rustix::io::read(&self.timer, &mut [0; 8]) {
            // The read fails if the timer was set again after it had expired.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

struct Connection {
    stream: TcpStream,
    output: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    filled: usize,
    /// The scheduled time of the request, and the time at which it was sent.
    due: Duration,
    sent: Duration,
}

impl Connection {
    fn open(address: SocketAddr, poll: &Poll, token: Token) -> Result<Self> {
        let stream =
            std::net::TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self {
            stream,
            output: Vec::new(),
            written: 0,
            input: vec![0; INPUT_SIZE],
            filled: 0,
            due: Duration::ZERO,
            sent: Duration::ZERO,
        })
    }

    /// Writes as much as the socket accepts.
    fn write(&mut self) -> Result<()> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads what has arrived. Returns the head of the answer once the whole answer is in `input`.
    fn read(&mut self) -> Result<Option<Head>> {
        loop {
            let space = self.input.len() - self.filled;
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(read) => {
                    self.filled += read;
                    if let Some(head) = self.whole_answer()? {
                        return Ok(Some(head));
                    }
                    // No more data was available. Later data brings another event.
                    if read < space {
                        return Ok(None);
                    }
                    if self.filled == self.input.len() {
                        self.input.resize(self.input.len() * 2, 0);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn whole_answer(&self) -> Result<Option<Head>> {
        let Some(head) = Head::parse(&self.input[..self.filled])? else { return Ok(None) };
        let whole = head.length + head.body;
        ensure!(self.filled <= whole, "more than one answer to one request");
        ensure!(
            self.written == self.output.len(),
            "an answer with status {} before the whole request was sent",
            head.status
        );
        Ok((self.filled == whole).then_some(head))
    }
}

#[cfg(test)]
mod tests;
