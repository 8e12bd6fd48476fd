//! Authenticates clients, and decides what they may do.

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use aws_lc_rs::digest;
use moka::{policy::EvictionPolicy, sync::Cache};
use rashomon_clock::{Clock, Timestamp};
use rashomon_records::{BucketName, DomainName};

use crate::access::{
    BucketKind, Grant, JwksError, NewToken, Policy, Right, Rights, TokenId, TokenStore, TokenText,
    attempts::Attempts, jwks_file::JwksFile, jwt::VerifiedToken, token::PREFIX,
};

/// How long a token that was found in the store is accepted without another lookup, if other processes can
/// revoke it. A revoked token is refused by all servers of the store after this time.
const RECHECK_AFTER: Duration = Duration::from_secs(3);

/// How long the id of a token that this process has revoked is kept: longer than a lookup in the store takes.
const REVOKED_KEPT_FOR: Duration = Duration::from_secs(600);

/// The maximum number of ids of revoked tokens in memory.
const MAX_REVOKED_TOKENS: u64 = 20_000;

/// The maximum size in bytes of all tokens of this service in memory, with their rights.
const MAX_CACHED_TOKEN_BYTES: u64 = 16 << 20;

/// The approximate size in bytes of those parts of a token of this service in memory that have a fixed size.
const TOKEN_OVERHEAD: usize = 500;

/// The maximum size in bytes of all JSON Web Tokens in memory, with their rights.
const MAX_CACHED_JWT_BYTES: u64 = 8 << 20;

/// The approximate size in bytes of those parts of a JSON Web Token in memory that have a fixed size: pointers,
/// counters, and an entry of the cache.
const JWT_OVERHEAD: usize = 400;

/// The maximum size of a token that a client sends.
pub const MAX_TOKEN_BYTES: usize = 8 << 10;

/// The precision of the last use of a token: a use is recorded at most once in this time.
const USE_PRECISION: Duration = Duration::from_secs(60);

/// The number of last uses that one write stores.
const USES_PER_WRITE: usize = 500;

/// The sender of a request.
#[derive(Debug, Clone, Default)]
pub enum Caller {
    /// A client without a token.
    #[default]
    Anonymous,
    /// A client with a valid token.
    Token(Arc<Identity>),
    /// A caller that waives all its rights except some.
    Limited(Arc<Limited>),
}

/// A caller with the rights that it keeps.
#[derive(Debug)]
pub struct Limited {
    caller: Caller,
    rights: Rights,
}

/// The holder of a valid token.
#[derive(Debug)]
pub struct Identity {
    /// The id of the token. The name of a JSON Web Token is `jwt:` and its subject.
    pub name: Arc<str>,
    /// The rights of the token.
    grant: Grant,
    /// The digest of the caller, see [`Caller::digest`].
    digest: [u8; 16],
}

impl Identity {
    /// `distinction`: a text by which this caller differs from all others.
    fn new(name: Arc<str>, grant: Grant, distinction: &str) -> Self {
        let hash = digest::digest(&digest::SHA256, distinction.as_bytes());
        Self { name, grant, digest: hash.as_ref().first_chunk().copied().unwrap_or_default() }
    }
}

impl Caller {
    /// The name of the caller's token, for the audit log.
    #[must_use]
    pub fn token(&self) -> Option<&Arc<str>> {
        match self {
            Self::Anonymous => None,
            Self::Token(identity) => Some(&identity.name),
            Self::Limited(limited) => limited.caller.token(),
        }
    }

    /// This caller with no other rights than these. The caller gets no right that it does not have.
    #[must_use]
    pub fn limited_to(self, rights: Rights) -> Self {
        Self::Limited(Arc::new(Limited { caller: self, rights }))
    }

    /// Whether the caller has sent no token, and has not waived this right. A refusal then asks for a token.
    #[must_use]
    pub fn lacks_token_for(&self, right: Right) -> bool {
        self.identity().is_none() && self.keeps(right)
    }

    /// Whether the caller keeps this right, if it has it.
    fn keeps(&self, right: Right) -> bool {
        match self {
            Self::Limited(limited) => limited.rights.contains(right) && limited.caller.keeps(right),
            Self::Anonymous | Self::Token(_) => true,
        }
    }

    fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Anonymous => None,
            Self::Token(identity) => Some(identity),
            Self::Limited(limited) => limited.caller.identity(),
        }
    }

    /// A digest that distinguishes callers with tokens. JSON Web Tokens of one subject have the same digest, since a
    /// client replaces its token from time to time. A JSON Web Token without a subject is a caller of its own.
    #[must_use]
    pub fn digest(&self) -> Option<&[u8; 16]> {
        self.identity().map(|identity| &identity.digest)
    }
}

/// The reason why a token was refused. No message has a part of the token.
#[derive(Debug, thiserror::Error)]
pub enum TokenRefusal {
    /// The token is not valid.
    #[error("the token is not valid: {0}")]
    Invalid(String),
    /// The token is not valid, and the address has sent too many of these.
    #[error("the token is not valid, and this address has sent too many such tokens: send a valid token")]
    TooMany {
        /// After what time a wrong token is answered with its reason again.
        retry_after: Duration,
    },
    /// The store failed, so it is unknown whether the token is valid.
    #[error("the store could not look up the token: {0}")]
    Store(#[source] rashomon_records::Error),
}

/// The settings of [`Access`].
#[derive(Debug)]
pub struct AccessOptions<'a> {
    /// The rights of clients without a token.
    pub policy: Policy,
    /// The file with the keys for JSON Web Tokens; without it, no JSON Web Token is accepted.
    pub jwks_file: Option<&'a Path>,
    /// The audience that a JSON Web Token must name.
    pub audience: String,
    /// Whether the last uses of tokens are stored.
    pub stores_uses: bool,
}

/// Authenticates callers, and decides what they may do.
#[derive(Debug)]
pub struct Access {
    policy: Policy,
    tokens: TokenStore,
    /// Whether only this process can revoke a token.
    is_alone: bool,
    clock: Arc<dyn Clock>,
    cached: Cache<TokenId, Arc<CachedToken>>,
    /// The tokens that this process has revoked. An entry is kept for at most [`REVOKED_KEPT_FOR`].
    revoked: Cache<TokenId, ()>,
    jwks: Option<JwksFile>,
    /// How often the keys were replaced.
    generation: AtomicU64,
    cached_jwts: Cache<Box<str>, Arc<CachedJwt>>,
    audience: String,
    attempts: Attempts,
    /// The last use of each token. `None` if last uses are not stored.
    uses: Option<Mutex<HashMap<TokenId, LastUse>>>,
    /// Whether the last attempt to store uses failed. The first failure is logged.
    uses_failed: AtomicBool,
    /// The bucket of pages.
    page_bucket: BucketName,
}

/// A token that was found in the store, with its text. Comparing two texts takes much less time than hashing one.
struct CachedToken {
    token: TokenText,
    identity: Arc<Identity>,
    expires_at: Option<Timestamp>,
    /// When the lookup in the store began, by the monotonic clock.
    found_at: Duration,
    /// When the next use has to be recorded, in milliseconds of the monotonic clock.
    record_after: AtomicU64,
}

impl fmt::Debug for CachedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedToken").field("id", self.token.id()).finish_non_exhaustive()
    }
}

/// A verified JSON Web Token.
#[derive(Debug)]
struct CachedJwt {
    identity: Arc<Identity>,
    valid_until: Timestamp,
    generation: u64,
}

#[derive(Debug, Clone, Copy)]
struct LastUse {
    at: Timestamp,
    is_stored: bool,
}

impl Access {
    /// Creates the access control, and loads the keys for JSON Web Tokens. The tables of the store must exist.
    pub fn new(
        options: AccessOptions<'_>,
        tokens: TokenStore,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, JwksError> {
        let AccessOptions { policy, jwks_file, audience, stores_uses } = options;
        // The cache passes a reference to its key.
        #[allow(clippy::borrowed_box)]
        let weight = |token: &Box<str>, known: &Arc<CachedJwt>| {
            let identity = known.identity.name.len() + known.identity.grant.size();
            u32::try_from(token.len() + identity + JWT_OVERHEAD).unwrap_or(u32::MAX)
        };
        let token_weight = |id: &TokenId, known: &Arc<CachedToken>| {
            let bytes = id.as_str().len() + TokenText::BYTES + known.identity.grant.size() + TOKEN_OVERHEAD;
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        let revoked = Cache::builder()
            .max_capacity(MAX_REVOKED_TOKENS)
            .time_to_live(REVOKED_KEPT_FOR)
            // The default policy may refuse a new entry, which would be a token that was just revoked.
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Ok(Self {
            policy,
            is_alone: tokens.has_one_process(),
            tokens,
            clock,
            cached: Cache::builder().max_capacity(MAX_CACHED_TOKEN_BYTES).weigher(token_weight).build(),
            revoked,
            jwks: jwks_file.map(JwksFile::open).transpose()?,
            generation: AtomicU64::new(0),
            cached_jwts: Cache::builder().max_capacity(MAX_CACHED_JWT_BYTES).weigher(weight).build(),
            audience,
            attempts: Attempts::new(),
            uses: stores_uses.then(Mutex::default),
            uses_failed: AtomicBool::new(false),
            page_bucket: BucketName::page(),
        })
    }

    /// Creates access control that allows everything to every client.
    #[must_use]
    pub fn open(tokens: TokenStore, clock: Arc<dyn Clock>) -> Self {
        let options = AccessOptions {
            policy: Policy::Open,
            jwks_file: None,
            audience: String::new(),
            stores_uses: true,
        };
        Self::new(options, tokens, clock).expect("only a JWKS file can be wrong")
    }

    /// Whether a caller has a right on a bucket of a domain. Every reader of the domain's pages may read its
    /// public buckets.
    #[must_use]
    pub fn may(
        &self,
        caller: &Caller,
        right: Right,
        domain: &DomainName,
        bucket: &BucketName,
        kind: BucketKind,
    ) -> bool {
        if !caller.keeps(right) {
            return false;
        }
        if self.anybody_may(right, domain, bucket, kind) {
            return true;
        }
        let Some(identity) = caller.identity() else { return false };
        let reads_public = kind == BucketKind::Public && right == Right::Read;
        identity.grant.allows(right, domain, bucket)
            || (reads_public && identity.grant.allows(right, domain, &self.page_bucket))
    }

    /// The rights of a caller on a bucket of a domain.
    #[must_use]
    pub fn rights_on(
        &self,
        caller: &Caller,
        domain: &DomainName,
        bucket: &BucketName,
        kind: BucketKind,
    ) -> Rights {
        Right::ALL.into_iter().filter(|right| self.may(caller, *right, domain, bucket, kind)).collect()
    }

    /// Whether a client without a token has a right on a bucket of a domain.
    #[must_use]
    pub fn anybody_may(
        &self,
        right: Right,
        domain: &DomainName,
        bucket: &BucketName,
        kind: BucketKind,
    ) -> bool {
        self.policy.anybody_may(right, domain, bucket, kind)
    }

    /// Whether a caller has a right on at least one bucket of a domain. The bucket need not exist.
    #[must_use]
    pub fn may_in(&self, caller: &Caller, right: Right, domain: &DomainName) -> bool {
        let anonymous = match &self.policy {
            Policy::Open => true,
            Policy::Anonymous(rights) => rights.hold_in(right, domain),
        };
        let by_token = || caller.identity().is_some_and(|identity| identity.grant.allows_in(right, domain));
        caller.keeps(right) && (anonymous || by_token())
    }

    /// Whether a caller has a right on every bucket of every domain. Private buckets do not count if clients without
    /// a token have the right, see [`AnonymousRights::hold_everywhere`](crate::access::AnonymousRights::hold_everywhere).
    #[must_use]
    pub fn may_everywhere(&self, caller: &Caller, right: Right) -> bool {
        let anonymous = match &self.policy {
            Policy::Open => true,
            Policy::Anonymous(rights) => rights.hold_everywhere(right),
        };
        (caller.keeps(right) && anonymous) || self.token_grants_everywhere(caller, right)
    }

    /// Whether the token of a caller grants a right on every bucket of every domain.
    #[must_use]
    pub fn token_grants_everywhere(&self, caller: &Caller, right: Right) -> bool {
        caller.keeps(right)
            && caller.identity().is_some_and(|identity| identity.grant.allows_everywhere(right))
    }

    /// Whether a caller has a right on at least one bucket of at least one domain. Neither need exist.
    #[must_use]
    pub fn may_somewhere(&self, caller: &Caller, right: Right) -> bool {
        let anonymous = match &self.policy {
            Policy::Open => true,
            Policy::Anonymous(rights) => rights.hold_somewhere(right),
        };
        let by_token = || {
            caller.identity().is_some_and(|identity| {
                identity.grant.rights.contains(right) && !identity.grant.domains.is_empty()
            })
        };
        caller.keeps(right) && (anonymous || by_token())
    }

    /// Whether every client may do everything.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.policy == Policy::Open
    }

    /// Returns the caller with this token, if the token is in memory and need not be checked again.
    #[must_use]
    pub fn recognize(&self, token: &str) -> Option<Caller> {
        let identity = if token.starts_with(PREFIX) {
            let known = self.cached.get(TokenText::id_in(token)?)?;
            let now = self.clock.monotonic();
            let is_fresh = self.is_alone || now.saturating_sub(known.found_at) < RECHECK_AFTER;
            if !is_fresh || !known.token.is(token) || self.is_expired(known.expires_at) {
                return None;
            }
            self.record_use(&known, now);
            Arc::clone(&known.identity)
        } else {
            let known = self.cached_jwts.get(token)?;
            let fits = known.generation == self.generation.load(Ordering::Acquire)
                && self.clock.now() < known.valid_until;
            fits.then(|| Arc::clone(&known.identity))?
        };
        Some(Caller::Token(identity))
    }

    /// Finds the caller with this token. `address` is the address of the client. Without it, the number of wrong tokens
    /// is not limited.
    ///
    /// A right token is accepted however many wrong ones its address has sent. After too many, few tokens of the
    /// address are examined at once, and the others wait.
    pub async fn authenticate(&self, token: &str, address: Option<IpAddr>) -> Result<Caller, TokenRefusal> {
        if let Some(caller) = self.recognize(token) {
            return Ok(caller);
        }
        let now = self.clock.monotonic();
        // The attempt is taken before the token is examined, so that concurrent requests cannot exceed the limit.
        let is_left = address.is_none_or(|address| self.attempts.take(address, now));
        let _turn = match address.filter(|_| !is_left && !self.was_valid(token)) {
            Some(address) => {
                let turn = self.attempts.turn(address, now).await;
                // Another request may have shown the same token meanwhile.
                if let Some(caller) = self.recognize(token) {
                    return Ok(caller);
                }
                Some(turn)
            }
            None => None,
        };
        let found = if token.starts_with(PREFIX) { self.find(token).await } else { self.verify(token) };
        match (found, address) {
            (Err(TokenRefusal::Invalid(_)), _) if !is_left => {
                Err(TokenRefusal::TooMany { retry_after: Attempts::retry_after() })
            }
            (Err(invalid @ TokenRefusal::Invalid(_)), _) => Err(invalid),
            (found, address) => {
                if let Some(address) = address.filter(|_| is_left) {
                    self.attempts.give_back(address);
                }
                found.map(Caller::Token)
            }
        }
    }

    /// Whether the token was valid when it was last examined. Such a token is examined again at once, even if its
    /// address has sent too many wrong tokens.
    fn was_valid(&self, token: &str) -> bool {
        match TokenText::id_in(token) {
            Some(id) => self.cached.get(id).is_some_and(|known| known.token.is(token)),
            None => self.cached_jwts.contains_key(token),
        }
    }

    /// Looks an opaque token up in the store.
    async fn find(&self, token: &str) -> Result<Arc<Identity>, TokenRefusal> {
        let unknown = || TokenRefusal::Invalid("this server does not know it, or it was revoked".to_owned());
        let token = TokenText::parse(token).ok_or_else(unknown)?;
        let found_at = self.clock.monotonic();
        let Some(stored) = self.tokens.find(token.id()).await.map_err(TokenRefusal::Store)? else {
            self.cached.invalidate(token.id());
            self.forget_use(token.id());
            return Err(unknown());
        };
        if !stored.hash.is(&token.hash()) {
            return Err(unknown());
        }
        if self.is_expired(stored.expires_at) {
            self.cached.invalidate(token.id());
            return Err(TokenRefusal::Invalid("it has expired".to_owned()));
        }
        let identity = Arc::new(Identity::new(token.id().as_str().into(), stored.grant, token.id().as_str()));
        let cached = Arc::new(CachedToken {
            token,
            identity: Arc::clone(&identity),
            expires_at: stored.expires_at,
            found_at,
            record_after: AtomicU64::new(0),
        });
        let id = cached.token.id();
        self.cached.insert(id.clone(), Arc::clone(&cached));
        // The row may have been read before this process revoked the token.
        if self.revoked.contains_key(id) {
            self.cached.invalidate(id);
            return Err(unknown());
        }
        self.record_use(&cached, found_at);
        Ok(identity)
    }

    /// Verifies a JSON Web Token.
    fn verify(&self, token: &str) -> Result<Arc<Identity>, TokenRefusal> {
        let invalid = |reason: &dyn std::fmt::Display| TokenRefusal::Invalid(reason.to_string());
        let Some(jwks) = &self.jwks else {
            return Err(invalid(&"it is not a token of this server, and no JSON Web Tokens are configured"));
        };
        if token.len() > MAX_TOKEN_BYTES {
            return Err(invalid(&format_args!("it has more than {MAX_TOKEN_BYTES} bytes")));
        }
        // The generation is read before the keys. If the keys are replaced meanwhile, the entry in the cache has
        // the earlier generation, and the token is verified again.
        let generation = self.generation.load(Ordering::Acquire);
        let verified = jwks.keys().verify(token, &self.audience, self.clock.now());
        let VerifiedToken { grant, valid_until, subject } = verified.map_err(|reason| {
            self.cached_jwts.invalidate(token);
            invalid(&reason)
        })?;
        let name = format!("jwt:{}", subject.as_deref().unwrap_or_default());
        // No id of a token of this server has a colon.
        let distinction =
            if subject.is_some() { name.clone() } else { format!("jwt without a subject: {token}") };
        let identity = Arc::new(Identity::new(name.into(), grant, &distinction));
        let cached = CachedJwt { identity: Arc::clone(&identity), valid_until, generation };
        self.cached_jwts.insert(token.into(), Arc::new(cached));
        Ok(identity)
    }

    fn is_expired(&self, expires_at: Option<Timestamp>) -> bool {
        expires_at.is_some_and(|at| self.clock.now() >= at)
    }

    /// The tokens of the store.
    #[must_use]
    pub fn tokens(&self) -> &TokenStore {
        &self.tokens
    }

    /// Makes a token.
    pub async fn create_token(&self, new: NewToken) -> rashomon_records::Result<TokenText> {
        self.tokens.create(new).await
    }

    /// Revokes a token. This process refuses it at once. Returns whether the token was stored.
    pub async fn revoke_token(&self, id: &TokenId) -> rashomon_records::Result<bool> {
        let was_stored = self.tokens.revoke(id).await?;
        self.revoked.insert(id.clone(), ());
        self.cached.invalidate(id);
        self.forget_use(id);
        Ok(was_stored)
    }

    fn forget_use(&self, id: &TokenId) {
        if let Some(uses) = &self.uses {
            uses.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        }
    }

    /// Records in memory that a token is used, at most once in [`USE_PRECISION`]. `now` is the time of the monotonic
    /// clock.
    fn record_use(&self, known: &CachedToken, now: Duration) {
        let Some(uses) = &self.uses else { return };
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        if millis(now) < known.record_after.load(Ordering::Relaxed) {
            return;
        }
        known.record_after.store(millis(now + USE_PRECISION), Ordering::Relaxed);
        let now = self.clock.now();
        let mut uses = uses.lock().unwrap_or_else(PoisonError::into_inner);
        match uses.get_mut(known.token.id()) {
            // The use is recent. The token was looked up again, which has reset `record_after`.
            Some(last) if now.since(last.at) < USE_PRECISION && now >= last.at => {}
            Some(last) => *last = LastUse { at: now, is_stored: false },
            None => {
                uses.insert(known.token.id().clone(), LastUse { at: now, is_stored: false });
            }
        }
    }

    /// Loads the keys again if their file has changed, and stores the last uses of tokens. A server calls this
    /// every few seconds, and once at its end.
    pub async fn maintain(self: &Arc<Self>) {
        if self.jwks.is_some() {
            let this = Arc::clone(self);
            let reload = move || this.jwks.as_ref().is_some_and(JwksFile::reload);
            if tokio::task::spawn_blocking(reload).await.unwrap_or(false) {
                self.generation.fetch_add(1, Ordering::Release);
            }
        }
        self.store_uses().await;
    }

    async fn store_uses(&self) {
        let Some(uses) = &self.uses else { return };
        let unstored: Vec<_> = {
            let uses = uses.lock().unwrap_or_else(PoisonError::into_inner);
            let unstored = uses.iter().filter(|(_, last)| !last.is_stored);
            unstored.map(|(id, last)| (id.clone(), last.at)).collect()
        };
        for part in unstored.chunks(USES_PER_WRITE) {
            if let Err(error) = self.tokens.record_uses(part).await {
                if !self.uses_failed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the last uses of tokens could not be stored; trying again");
                }
                return;
            }
            self.uses_failed.store(false, Ordering::Relaxed);
            let mut uses = uses.lock().unwrap_or_else(PoisonError::into_inner);
            for (id, at) in part {
                if let Some(last) = uses.get_mut(id).filter(|last| last.at == *at) {
                    last.is_stored = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
