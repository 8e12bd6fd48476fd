use rashomon_clock::ManualClock;
use rashomon_records::schemas;
use rashomon_tables::{Call, Fault, Faulty, Gate, Isolated, Memory, Plan, Rates, Scan, TableStore};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::access::{
    AnonymousRights, Rights,
    signer::{Signer, key_set},
};

mod random;

/// A server, with its clock and its tables.
struct Server {
    access: Arc<Access>,
    clock: Arc<ManualClock>,
    tables: Arc<dyn TableStore>,
}

/// The address of the client.
const CLIENT: &str = "192.0.2.1";

/// A store to which several processes write.
async fn tables(clock: &Arc<ManualClock>) -> Arc<dyn TableStore> {
    let tables = Arc::new(Isolated::new(Memory::new(Arc::clone(clock) as Arc<dyn Clock>), 1));
    for table in schemas::all() {
        tables.create(table).await.unwrap();
    }
    tables
}

impl Server {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
        let tables = tables(&clock).await;
        Self::on(tables, clock, None)
    }

    fn on(tables: Arc<dyn TableStore>, clock: Arc<ManualClock>, jwks_file: Option<&Path>) -> Self {
        let options = AccessOptions {
            policy: Policy::Anonymous(AnonymousRights::default()),
            jwks_file,
            audience: "rashomon".to_owned(),
            stores_uses: true,
        };
        let tokens = TokenStore::new(Arc::clone(&tables), Arc::clone(&clock) as _);
        let access = Access::new(options, tokens, Arc::clone(&clock) as _).unwrap();
        Self { access: Arc::new(access), clock, tables }
    }

    /// Another server of the same store.
    fn other(&self) -> Self {
        Self::on(Arc::clone(&self.tables), Arc::clone(&self.clock), None)
    }

    async fn make(&self, expires_at: Option<Timestamp>) -> TokenText {
        let grant = Grant {
            rights: Rights::from_iter([Right::Read]),
            domains: vec!["enwiki".parse().unwrap()],
            buckets: None,
        };
        self.access.create_token(NewToken { grant, expires_at, note: None }).await.unwrap()
    }

    async fn accepts(&self, token: &str) -> bool {
        self.accepts_from(token, CLIENT).await
    }

    async fn accepts_from(&self, token: &str, address: &str) -> bool {
        self.access.authenticate(token, Some(address.parse().unwrap())).await.is_ok()
    }
}

fn page() -> (DomainName, BucketName) {
    (DomainName::new("enwiki").unwrap(), BucketName::page())
}

#[tokio::test]
async fn token_has_the_rights_that_it_was_made_with() {
    let server = Server::new().await;
    let token = server.make(None).await;
    let caller = server.access.authenticate(token.reveal(), None).await.unwrap();
    let (enwiki, page) = page();
    assert!(server.access.may(&caller, Right::Read, &enwiki, &page, BucketKind::Revisioned));
    assert!(!server.access.may(&caller, Right::Write, &enwiki, &page, BucketKind::Revisioned));
    assert!(!server.access.may(
        &caller,
        Right::Read,
        &DomainName::new("dewiki").unwrap(),
        &page,
        BucketKind::Revisioned
    ));
    assert!(!server.access.may(&Caller::Anonymous, Right::Read, &enwiki, &page, BucketKind::Revisioned));
    assert_eq!(caller.token().map(|name| &**name), Some(token.id().as_str()));
}

#[tokio::test]
async fn token_with_a_wrong_secret_is_refused() {
    let server = Server::new().await;
    let token = server.make(None).await;
    let last = if token.reveal().ends_with('0') { "1" } else { "0" };
    let wrong = format!("{}{last}", &token.reveal()[..token.reveal().len() - 1]);
    // The wrong token is refused also after the right token is cached, and does not evict the right token.
    for _ in 0..2 {
        assert!(!server.accepts(&wrong).await);
        assert!(server.accepts(token.reveal()).await);
    }
}

#[tokio::test]
async fn revoked_token_is_refused_here_at_once_and_by_other_servers_soon() {
    let server = Server::new().await;
    let other = server.other();
    let token = server.make(None).await;
    assert!(server.accepts(token.reveal()).await && other.accepts(token.reveal()).await);
    assert!(server.access.revoke_token(token.id()).await.unwrap());
    assert!(!server.accepts(token.reveal()).await);
    assert!(other.accepts(token.reveal()).await, "the other server looks the token up again later");
    server.clock.advance(RECHECK_AFTER);
    assert!(!other.accepts(token.reveal()).await);
    assert!(!server.access.revoke_token(token.id()).await.unwrap(), "it is gone");
    assert!(RECHECK_AFTER < Duration::from_secs(5));
}

#[tokio::test]
async fn lookup_that_began_before_the_revocation_does_not_bring_the_token_back() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
    let gate = Gate::new();
    let faulty = Arc::new(Faulty::new(tables(&clock).await, Plan::empty()));
    let server = Server::on(Arc::clone(&faulty) as _, clock, None);
    let token = server.make(None).await;
    // The lookup waits after it has read the row.
    let number = faulty.calls(Call::Get) + 1;
    faulty.set_plan(Plan::empty().on(Call::Get, number, Fault::PauseAfter(gate.clone())));
    let (access, text) = (Arc::clone(&server.access), token.reveal().to_owned());
    let lookup = tokio::spawn(async move { access.authenticate(&text, None).await.is_ok() });
    gate.reached().await;
    assert!(server.access.revoke_token(token.id()).await.unwrap());
    gate.open();
    assert!(!lookup.await.unwrap());
    assert!(server.access.recognize(token.reveal()).is_none());
}

#[tokio::test]
async fn single_process_of_a_store_looks_a_token_up_once() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
    let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
    for table in schemas::all() {
        memory.create(table).await.unwrap();
    }
    let faulty = Arc::new(Faulty::new(memory, Plan::empty()));
    let server = Server::on(Arc::clone(&faulty) as _, clock, None);
    let token = server.make(None).await;
    assert!(server.accepts(token.reveal()).await);
    let lookups = faulty.calls(Call::Get);
    server.clock.advance(Duration::from_secs(86_400));
    assert!(server.accepts(token.reveal()).await);
    assert_eq!(faulty.calls(Call::Get), lookups);
    // The use of the cached token is stored all the same.
    server.access.maintain().await;
    let list = server.access.tokens().list(None, 10).await.unwrap();
    assert_eq!(list.items[0].used_at, Some(server.clock.now()));
    // A revocation takes effect at once.
    server.access.revoke_token(token.id()).await.unwrap();
    assert!(!server.accepts(token.reveal()).await);
}

#[tokio::test]
async fn token_of_a_server_with_a_later_clock_can_be_revoked() {
    let server = Server::new().await;
    let token = server.make(None).await;
    server.clock.set(Timestamp::from_micros(1_700_000_000_000_000));
    assert!(server.access.revoke_token(token.id()).await.unwrap());
    assert!(!server.other().accepts(token.reveal()).await);
}

#[tokio::test]
async fn token_is_refused_from_its_expiry_on() {
    let server = Server::new().await;
    let expires_at = server.clock.now().saturating_add(Duration::from_secs(2));
    let token = server.make(Some(expires_at)).await;
    assert!(server.accepts(token.reveal()).await);
    server.clock.advance(Duration::from_secs(2));
    // The token is refused although its last lookup was not long ago.
    assert!(server.access.recognize(token.reveal()).is_none());
    assert!(!server.accepts(token.reveal()).await);
}

#[tokio::test]
async fn wrong_tokens_of_an_address_are_bounded() {
    let server = Server::new().await;
    let (known, fresh) = (server.make(None).await, server.make(None).await);
    assert!(server.accepts(known.reveal()).await);
    let mut answers = Vec::new();
    for number in 0..50 {
        let wrong = format!("wrong{number}");
        answers.push(server.access.authenticate(&wrong, Some(CLIENT.parse().unwrap())).await.unwrap_err());
    }
    let refused = answers.iter().filter(|answer| matches!(answer, TokenRefusal::TooMany { .. })).count();
    assert_eq!(refused, 30);
    // A right token is accepted, whether this server has seen it before or not, and also when it has to be looked up
    // again. It does not count.
    assert!(server.accepts(fresh.reveal()).await);
    assert!(server.accepts(known.reveal()).await);
    assert!(server.accepts_from(fresh.reveal(), "192.0.2.2").await);
    server.clock.advance(Duration::from_secs(2));
    assert!(!server.accepts("wrong").await && server.accepts(known.reveal()).await);
    assert!(server.accepts(fresh.reveal()).await);
    let other = server.make(None).await;
    assert!(server.other().accepts(other.reveal()).await && server.accepts(other.reveal()).await);
}

#[tokio::test]
async fn right_token_waits_for_few_lookups_after_many_wrong_tokens() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
    let (gate, faulty) = (Gate::new(), Arc::new(Faulty::new(tables(&clock).await, Plan::empty())));
    let server = Server::on(Arc::clone(&faulty) as _, clock, None);
    let right = server.other().make(None).await;
    for number in 0..20 {
        assert!(!server.accepts(&format!("wrong{number}")).await);
    }
    let first = faulty.calls(Call::Get) + 1;
    let held = (first..first + 4)
        .fold(Plan::empty(), |plan, call| plan.on(Call::Get, call, Fault::Pause(gate.clone())));
    faulty.set_plan(held);
    let ask = |token: String| {
        let access = Arc::clone(&server.access);
        tokio::spawn(async move { access.authenticate(&token, Some(CLIENT.parse().unwrap())).await })
    };
    let wrong: Vec<_> = (0..100).map(|number| ask(format!("rashomon_{number:020x}_{number:064x}"))).collect();
    let accepted: Vec<_> = (0..2).map(|_| ask(right.reveal().to_owned())).collect();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(faulty.calls(Call::Get), first + 3, "only four lookups of the address run at once");
    // Another address does not wait.
    assert!(server.accepts_from(right.reveal(), "192.0.2.2").await);
    gate.open();
    for accepted in accepted {
        accepted.await.unwrap().unwrap();
    }
    for wrong in wrong {
        assert!(matches!(wrong.await.unwrap(), Err(TokenRefusal::TooMany { .. })));
    }
}

#[tokio::test]
async fn concurrent_wrong_tokens_are_bounded_too() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
    let gate = Gate::new();
    let faulty = Arc::new(Faulty::new(tables(&clock).await, Plan::empty()));
    let server = Server::on(Arc::clone(&faulty) as _, clock, None);
    let wrong = server.other().make(None).await.reveal().replace("rashomon_0", "rashomon_1");
    let number = faulty.calls(Call::Get) + 1;
    let held = (number..number + 20)
        .fold(Plan::empty(), |plan, call| plan.on(Call::Get, call, Fault::Pause(gate.clone())));
    faulty.set_plan(held);
    let lookups: Vec<_> = (0..20)
        .map(|_| {
            let (access, text) = (Arc::clone(&server.access), wrong.clone());
            tokio::spawn(async move { access.authenticate(&text, Some(CLIENT.parse().unwrap())).await.err() })
        })
        .collect();
    while faulty.calls(Call::Get) < number + 19 {
        tokio::task::yield_now().await;
    }
    let refused = server.access.authenticate("another", Some(CLIENT.parse().unwrap())).await;
    assert!(matches!(refused, Err(TokenRefusal::TooMany { .. })));
    gate.open();
    for lookup in lookups {
        assert!(matches!(lookup.await.unwrap(), Some(TokenRefusal::Invalid(_))));
    }
}

#[tokio::test]
async fn expired_token_counts_as_a_wrong_one() {
    let server = Server::new().await;
    let expires_at = server.clock.now().saturating_add(Duration::from_secs(2));
    let token = server.make(Some(expires_at)).await;
    assert!(server.accepts(token.reveal()).await);
    server.clock.advance(Duration::from_secs(4));
    let mut last = None;
    for _ in 0..30 {
        last = server.access.authenticate(token.reveal(), Some(CLIENT.parse().unwrap())).await.err();
    }
    assert!(matches!(last, Some(TokenRefusal::TooMany { .. })));
}

#[tokio::test]
async fn failures_of_the_store_do_not_count_as_wrong_tokens() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
    let faulty = Arc::new(Faulty::new(tables(&clock).await, Plan::empty()));
    let server = Server::on(Arc::clone(&faulty) as _, clock, None);
    let token = server.make(None).await;
    faulty.set_plan(Plan::seeded(1, Rates { before: 1000, ..Rates::default() }));
    for _ in 0..100 {
        let refused = server.access.authenticate(token.reveal(), Some(CLIENT.parse().unwrap())).await;
        assert!(matches!(refused, Err(TokenRefusal::Store(_))));
    }
}

#[tokio::test]
async fn last_use_is_stored_and_does_not_bring_a_token_back() {
    let server = Server::new().await;
    let other = server.other();
    let (used, unused) = (server.make(None).await, server.make(None).await);
    assert!(server.accepts(used.reveal()).await && other.accepts(used.reveal()).await);
    let at = server.clock.now();
    server.access.maintain().await;
    let list = server.access.tokens().list(None, 10).await.unwrap();
    let uses: Vec<_> = list.items.iter().map(|token| (token.id.clone(), token.used_at)).collect();
    assert!(uses.contains(&(used.id().clone(), Some(at))) && uses.contains(&(unused.id().clone(), None)));
    // Another server stores a use after the token was revoked.
    server.access.revoke_token(used.id()).await.unwrap();
    other.access.maintain().await;
    let scan = Scan::new(vec!["tokens".into()], std::num::NonZeroUsize::MIN);
    assert_eq!(server.tables.scan(&schemas::TOKEN_USES, scan).await.unwrap().items, []);
    server.clock.advance(RECHECK_AFTER);
    assert!(!other.accepts(used.reveal()).await);
    let list = server.access.tokens().list(None, 10).await.unwrap();
    assert_eq!(list.items.iter().map(|token| &token.id).collect::<Vec<_>>(), [unused.id()]);
}

#[tokio::test]
async fn list_has_all_tokens_in_the_order_of_their_creation() {
    let server = Server::new().await;
    let mut made = Vec::new();
    for _ in 0..7 {
        made.push(server.make(None).await.id().clone());
        server.clock.advance(Duration::from_secs(1));
    }
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let list = server.access.tokens().list(after.as_ref(), 3).await.unwrap();
        assert!(list.items.len() <= 3);
        listed.extend(list.items.into_iter().map(|token| token.id));
        after = list.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed, made);
}

#[tokio::test]
async fn changed_keys_are_used_and_broken_ones_are_not() {
    let (first, second) = (Signer::ec(), Signer::ec());
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("jwks.json");
    std::fs::write(&file, key_set([first.jwk_with_id("a")])).unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
    let server = Server::on(tables(&clock).await, clock, Some(&file));
    let claims =
        json!({"exp": 1_800_000_600, "aud": "rashomon", "rights": ["read"], "domains": ["*"], "sub": "ann"});
    let (old, new) = (first.sign(Some("a"), &claims), second.sign(Some("b"), &claims));
    assert!(server.accepts(&old).await && !server.accepts(&new).await);
    // Broken: the earlier keys stay.
    for broken in ["", "{", "[]"] {
        std::fs::write(&file, broken).unwrap();
        server.access.maintain().await;
        assert!(server.accepts(&old).await && !server.accepts(&new).await, "{broken}");
    }
    std::fs::remove_file(&file).unwrap();
    server.access.maintain().await;
    assert!(server.accepts(&old).await);
    // Changed: a token that was verified with an earlier key is refused, although it is in memory.
    std::fs::write(&file, key_set([second.jwk_with_id("b")])).unwrap();
    server.access.maintain().await;
    assert!(!server.accepts(&old).await && server.accepts(&new).await);
    // Without any keys, no token is valid.
    std::fs::write(&file, r#"{"keys": []}"#).unwrap();
    server.access.maintain().await;
    assert!(!server.accepts(&new).await);
    std::fs::write(&file, key_set([second.jwk_with_id("b")])).unwrap();
    server.access.maintain().await;
    assert!(server.accepts(&new).await);
    // A verified token is refused after its time, although it is in memory.
    server.clock.advance(Duration::from_secs(660));
    assert!(!server.accepts(&new).await);
}

#[tokio::test]
async fn web_tokens_need_configured_keys() {
    let server = Server::new().await;
    let token = Signer::ec().sign(None, &json!({"exp": 1_900_000_000, "aud": "rashomon"}));
    let error = server.access.authenticate(&token, None).await.unwrap_err().to_string();
    assert!(error.contains("no JSON Web Tokens are configured"), "{error}");
    assert!(!error.contains(&token[..10]));
}
