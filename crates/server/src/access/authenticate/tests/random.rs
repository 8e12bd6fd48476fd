//! Random histories of tokens on several servers of one store, compared with the acknowledged calls.

use std::collections::BTreeMap;

use rashomon_tables::{Isolated, Scan};

use super::*;
use crate::access::MAX_LISTED;

/// The longest time for which another server may accept a revoked token.
const PROMISED: Duration = Duration::from_secs(5);

const SERVERS: usize = 3;

/// The expected state of a token.
struct ExpectedToken {
    text: String,
    expires_at: Option<Timestamp>,
    /// Whether a server has begun to revoke it. The revocation may have failed.
    is_revoking: bool,
    /// When the revocation was acknowledged, and by which server.
    revoked: Option<(Duration, usize)>,
    /// When it was last accepted, by the time of day.
    used_at: Option<Timestamp>,
}

/// A run of random calls, with the expected state of each token.
struct History {
    rng: fastrand::Rng,
    /// The clock of the tables, and of each server. They are up to two seconds apart.
    clocks: Vec<Arc<ManualClock>>,
    faulty: Arc<Faulty<Arc<dyn TableStore>>>,
    servers: Vec<Arc<Access>>,
    tokens: BTreeMap<TokenId, ExpectedToken>,
    /// The time since the start.
    passed: Duration,
}

impl History {
    async fn new(seed: u64, is_alone: bool) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let start = Timestamp::from_micros(1_800_000_000_000_000);
        let mut clock =
            || Arc::new(ManualClock::new(start.saturating_add(Duration::from_millis(rng.u64(..2000)))));
        let clocks: Vec<_> = (0..=SERVERS).map(|_| clock()).collect();
        let memory = Memory::new(Arc::clone(&clocks[0]) as Arc<dyn Clock>);
        let tables: Arc<dyn TableStore> =
            if is_alone { Arc::new(memory) } else { Arc::new(Isolated::new(memory, seed)) };
        for table in schemas::all() {
            tables.create(table).await.unwrap();
        }
        let rates = Rates { before: 30, after: 30, midway: 30 };
        let faulty = Arc::new(Faulty::new(tables, Plan::seeded(seed, rates)));
        let count = if is_alone { 1 } else { SERVERS };
        let server =
            |clock: &Arc<ManualClock>| Server::on(Arc::clone(&faulty) as _, Arc::clone(clock), None).access;
        let servers = clocks[1..=count].iter().map(server).collect();
        Self { rng, clocks, faulty, servers, tokens: BTreeMap::new(), passed: Duration::ZERO }
    }

    fn now(&self, server: usize) -> Timestamp {
        self.clocks[server + 1].now()
    }

    fn any_token(&mut self) -> Option<TokenId> {
        let ids: Vec<_> = self.tokens.keys().cloned().collect();
        self.rng.choice(ids)
    }

    async fn step(&mut self) {
        let server = self.rng.usize(..self.servers.len());
        match self.rng.u32(..100) {
            0..10 => self.make(server).await,
            10..15 => self.revoke(server).await,
            15..70 => self.send(server).await,
            70..75 => self.send_wrong(server).await,
            75..85 => self.servers[server].maintain().await,
            _ => {
                let by = Duration::from_millis(self.rng.u64(..4000));
                self.clocks.iter().for_each(|clock| clock.advance(by));
                self.passed += by;
            }
        }
    }

    async fn make(&mut self, server: usize) {
        let ttl = self.rng.bool().then(|| Duration::from_secs(self.rng.u64(1..60)));
        let expires_at = ttl.map(|ttl| self.now(server).saturating_add(ttl));
        let new = NewToken { grant: Grant::default(), expires_at, note: None };
        // The text of a token whose write failed is unknown to clients.
        let Ok(token) = self.servers[server].create_token(new).await else { return };
        let text = token.reveal().to_owned();
        let made = ExpectedToken { text, expires_at, is_revoking: false, revoked: None, used_at: None };
        self.tokens.insert(token.id().clone(), made);
    }

    async fn revoke(&mut self, server: usize) {
        let Some(id) = self.any_token() else { return };
        let made = self.tokens.get_mut(&id).unwrap();
        made.is_revoking = true;
        if self.servers[server].revoke_token(&id).await.is_ok() {
            made.revoked.get_or_insert((self.passed, server));
        }
    }

    async fn send(&mut self, server: usize) {
        let Some(id) = self.any_token() else { return };
        let now = self.now(server);
        let made = self.tokens.get_mut(&id).unwrap();
        let answer = self.servers[server].authenticate(&made.text, None).await;
        let is_expired = made.expires_at.is_some_and(|at| now >= at);
        match answer {
            Ok(caller) => {
                assert_eq!(caller.token().map(|name| &**name), Some(id.as_str()));
                assert!(!is_expired, "{id} is accepted after its expiry");
                if let Some((at, by)) = made.revoked {
                    assert!(by != server, "{id} is accepted by the server that revoked it");
                    assert!(self.passed - at < PROMISED, "{id} is accepted long after it was revoked");
                }
                made.used_at = Some(now);
            }
            Err(TokenRefusal::Store(_)) => {}
            Err(TokenRefusal::Invalid(reason)) => {
                assert!(is_expired || made.is_revoking, "{id} is refused: {reason}");
            }
            Err(TokenRefusal::TooMany { .. }) => panic!("a request without an address is limited"),
        }
    }

    async fn send_wrong(&mut self, server: usize) {
        let Some(id) = self.any_token() else { return };
        let text = &self.tokens[&id].text;
        let place = self.rng.usize(PREFIX.len()..text.len());
        let digit = if text.as_bytes()[place] == b'0' { "1" } else { "0" };
        let wrong = [&text[..place], digit, &text[place + 1..]].concat();
        assert!(self.servers[server].authenticate(&wrong, None).await.is_err(), "{wrong} is accepted");
    }

    /// Ends the faults, and completes the revocations. Then checks that the store has exactly the tokens that were not
    /// revoked, with their last uses.
    async fn end(&mut self) {
        self.faulty.set_plan(Plan::empty());
        for made in self.tokens.values_mut().filter(|made| made.is_revoking) {
            let id = TokenId::of_token(&made.text).unwrap();
            self.servers[0].revoke_token(&id).await.unwrap();
        }
        for server in &self.servers {
            server.maintain().await;
        }
        let list = self.servers[0].tokens().list(None, MAX_LISTED).await.unwrap().items;
        let listed: BTreeMap<_, _> = list.into_iter().map(|token| (token.id, token.used_at)).collect();
        for (id, made) in &self.tokens {
            assert_eq!(listed.contains_key(id), !made.is_revoking, "{id}");
            if let (Some(stored), Some(used_at)) = (listed.get(id), made.used_at) {
                let stored = stored.expect("the use is stored");
                let apart = used_at.since(stored).max(stored.since(used_at));
                assert!(
                    apart <= USE_PRECISION + Duration::from_secs(2),
                    "{id}: {stored:?} is not {used_at:?}"
                );
            }
        }
        let scan = Scan::new(vec!["tokens".into()], std::num::NonZeroUsize::new(1000).unwrap());
        let uses = self.faulty.scan(&schemas::TOKEN_USES, scan).await.unwrap().items;
        for row in uses {
            let id = format!("{:?}", row.key);
            assert!(listed.keys().any(|listed| id.contains(listed.as_str())), "{id} is the use of no token");
        }
    }
}

/// A token is accepted from its acknowledged creation to its revocation or expiry, and never after that.
#[tokio::test]
async fn tokens_are_accepted_as_acknowledged() {
    for seed in 0..400 {
        let run = async {
            let mut history = History::new(seed, seed % 4 == 0).await;
            for _ in 0..150 {
                history.step().await;
            }
            history.end().await;
        };
        let outcome = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(run)).await;
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
