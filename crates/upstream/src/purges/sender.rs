//! Sends purges from memory to one cache: at once, and once more a little later.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use rashomon_clock::Clock;
use rashomon_records::{PurgeEntry, PurgeId};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use crate::purges::{
    CacheMethod, PurgeRequest, Targets,
    cache::{Cache, Health},
    request::MAX_KEYS,
};

/// The maximum number of changes that wait for their second purge.
const MAX_SECOND: usize = 100_000;

/// The maximum number of changes that share one request by keys.
const MAX_SHARED: usize = 64;

/// The maximum number of concurrent requests by keys. If changes are many, they wait for these requests and share the
/// next one, which takes much less processor time than a request for each change.
const MAX_KEY_REQUESTS: usize = 2;

/// How long changes by keys are gathered after a request that several changes shared, so that more changes share the
/// next one. While changes are few, each is sent at once.
const GATHERING_TIME: Duration = Duration::from_millis(10);

/// How much later than necessary the second purge of a change by keys may be sent, so that changes share its request.
const SHARING_TIME: Duration = Duration::from_millis(50);

/// A committed change.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) entry: PurgeEntry,
    /// The time of the monotonic clock at which the call of the store ended.
    pub(crate) at: Duration,
}

/// A purge that waits for a cache.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) id: PurgeId,
    pub(crate) targets: Arc<Targets>,
    /// The time of the monotonic clock at which the call of the store ended.
    pub(crate) committed_at: Duration,
}

/// Whether purges are sent for the first or for the second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    First,
    Second,
}

/// Sends purges to one cache.
#[derive(Debug)]
pub(crate) struct Sender {
    cache: Arc<Cache>,
    clock: Arc<dyn Clock>,
    again_after: Duration,
    /// The maximum number of changes that share a request.
    max_shared: usize,
    /// Purges that were acknowledged once, with the earliest time of the second request.
    second: VecDeque<(Instant, Vec<Waiting>)>,
    /// The number of purges in `second`.
    in_second: usize,
    running: JoinSet<(Round, Vec<Waiting>, Result<(), String>)>,
}

impl Sender {
    pub(crate) fn new(cache: Arc<Cache>, clock: Arc<dyn Clock>, again_after: Duration) -> Self {
        let max_shared = match cache.settings.method {
            CacheMethod::Purge => 1,
            CacheMethod::Keys => MAX_SHARED,
        };
        let (second, running) = (VecDeque::new(), JoinSet::new());
        Self { cache, clock, again_after, max_shared, second, in_second: 0, running }
    }

    /// Sends purges until the channel `waiting` is closed.
    pub(crate) async fn run(mut self, mut waiting: mpsc::Receiver<Waiting>) {
        let mut health = self.cache.health.subscribe();
        let max_requests = self.cache.settings.max_requests.get();
        let (max_requests, sharing_time) = match self.cache.settings.method {
            CacheMethod::Purge => (max_requests, Duration::ZERO),
            CacheMethod::Keys => (max_requests.min(MAX_KEY_REQUESTS), SHARING_TIME),
        };
        let mut received = Vec::new();
        // The end of the time for which changes are gathered, if they are.
        let mut gathered_at = None;
        loop {
            let now = *health.borrow_and_update();
            let has_room = self.running.len() < max_requests;
            let may_receive = now == Health::Down || (now == Health::Up && has_room);
            let next = self.second.front().map(|(due, _)| *due + sharing_time);
            tokio::select! {
                biased;
                Some(done) = self.running.join_next(), if !self.running.is_empty() => {
                    if let Ok((round, purges, result)) = done {
                        self.finish(round, purges, result);
                    }
                }
                () = wait_until(next), if next.is_some() && may_receive => self.send_second(now),
                count = receive_after(gathered_at, &mut waiting, &mut received, self.max_shared), if may_receive => {
                    if count == 0 {
                        return;
                    }
                    let purges = std::mem::take(&mut received);
                    match now {
                        Health::Down => purges.iter().for_each(|purge| self.cache.leave_to_reader(purge.id)),
                        _ => {
                            // After a full request, the next changes already wait.
                            let gathers = purges.len() > 1 && purges.len() < self.max_shared;
                            gathered_at = gathers.then(|| Instant::now() + GATHERING_TIME);
                            self.spawn(Round::First, purges);
                        }
                    }
                }
                changed = wait_for_change(&mut health) => if !changed { return },
            }
        }
    }

    /// Sends the purges whose second request is due, as many as may share a request.
    fn send_second(&mut self, health: Health) {
        let (now, mut purges) = (Instant::now(), Vec::new());
        while let Some((due, next)) = self.second.front()
            && *due <= now
            && (purges.is_empty() || purges.len() + next.len() <= self.max_shared)
        {
            purges.extend(self.second.pop_front().into_iter().flat_map(|(_, next)| next));
        }
        self.in_second -= purges.len();
        match health {
            Health::Down => purges.iter().for_each(|purge| self.cache.leave_to_reader(purge.id)),
            _ => self.spawn(Round::Second, purges),
        }
    }

    fn spawn(&mut self, round: Round, purges: Vec<Waiting>) {
        let cache = Arc::clone(&self.cache);
        let requests = requests(&cache, &purges);
        self.running.spawn(async move {
            let result = cache.send(&requests).await;
            (round, purges, result)
        });
    }

    fn finish(&mut self, round: Round, purges: Vec<Waiting>, result: Result<(), String>) {
        match (round, result) {
            (_, Err(error)) => {
                purges.iter().for_each(|purge| self.cache.leave_to_reader(purge.id));
                self.cache.fail(&error);
            }
            (Round::First, Ok(())) => {
                let now = self.clock.monotonic();
                for purge in &purges {
                    let delay = now.saturating_sub(purge.committed_at);
                    self.cache.counters.delay.observe(delay.as_secs_f64());
                }
                if self.in_second + purges.len() > MAX_SECOND {
                    return purges.iter().for_each(|purge| self.cache.leave_to_reader(purge.id));
                }
                self.in_second += purges.len();
                self.second.push_back((Instant::now() + self.again_after, purges));
            }
            (Round::Second, Ok(())) => purges.iter().for_each(|purge| self.cache.tracker.finish(purge.id)),
        }
    }
}

/// Receives up to `limit` purges, but not before `start`. Returns 0 if the channel is closed.
async fn receive_after(
    start: Option<Instant>,
    waiting: &mut mpsc::Receiver<Waiting>,
    received: &mut Vec<Waiting>,
    limit: usize,
) -> usize {
    wait_until(start).await;
    waiting.recv_many(received, limit).await
}

async fn wait_until(due: Option<Instant>) {
    if let Some(due) = due {
        tokio::time::sleep_until(due).await;
    }
}

/// Waits until the health changes. Returns `false` if the cache no longer exists.
async fn wait_for_change(health: &mut watch::Receiver<Health>) -> bool {
    health.changed().await.is_ok()
}

/// Makes the requests for several changes. With purges by keys, changes may share a request.
fn requests(cache: &Cache, purges: &[Waiting]) -> Vec<PurgeRequest> {
    let all = purges.iter().flat_map(|purge| purge.targets.requests(&cache.settings));
    let (mut keys, mut others) = (Vec::new(), Vec::new());
    for request in all {
        match request {
            PurgeRequest::Keys(some) => keys.extend(some),
            other => others.push(other),
        }
    }
    keys.sort_unstable();
    keys.dedup();
    others.extend(keys.chunks(MAX_KEYS).map(|keys| PurgeRequest::Keys(keys.to_vec())));
    others
}

#[cfg(test)]
mod tests {
    use rashomon_clock::{ManualClock, Timestamp};

    use super::*;
    use crate::purges::{
        request::{AcknowledgingCache, one_request_at_a_time},
        tracker::State,
    };

    #[tokio::test]
    async fn number_of_purges_that_wait_for_their_second_request_is_bounded() {
        let cache =
            Arc::new(Cache::new(one_request_at_a_time(CacheMethod::Keys), Arc::new(AcknowledgingCache)));
        let clock = Arc::new(ManualClock::new(Timestamp::EPOCH));
        let mut sender = Sender::new(Arc::clone(&cache), clock, Duration::ZERO);
        let purge = |random| {
            let id = PurgeId { queued_at: Timestamp::EPOCH, random };
            cache.tracker.begin(id);
            Waiting { id, targets: Arc::default(), committed_at: Duration::ZERO }
        };
        let (first, later) = (purge(0), purge(1));
        sender.finish(Round::First, vec![first; MAX_SECOND], Ok(()));
        sender.finish(Round::First, vec![later.clone()], Ok(()));
        assert_eq!(cache.tracker.state(later.id), None, "the purge is left to the reader of the queue");
        assert_eq!(sender.second.len(), 1);
        sender.send_second(Health::Up);
        let later = purge(2);
        sender.finish(Round::First, vec![later.clone()], Ok(()));
        assert_eq!(cache.tracker.state(later.id), Some(State::Waiting), "there is room again");
        assert_eq!(sender.second.len(), 1);
    }
}
