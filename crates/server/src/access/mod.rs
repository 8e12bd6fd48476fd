//! Access to a server: who a client is, and what it may do.
//!
//! A client shows who it is with a token. [`Access::authenticate`] turns the token into a [`Caller`]. There are two
//! kinds of tokens: those that this service has made and keeps in its store ([`TokenStore`]), and JSON Web Tokens
//! that another server issues. A token grants [`Rights`] on domains and buckets ([`Grant`]). [`Policy`] says what
//! clients without a token may do. [`Access`] combines both: [`Access::may`] answers for a bucket, and further
//! functions answer for a domain or for all domains.
//!
//! # Invariants
//!
//! - A request is authorized before it reads or writes anything. The definition of a bucket is an exception: it is read
//!   before if the right depends on it. The refusal is the same for a private bucket and for a missing bucket.
//! - No error, log line or debug output contains a token.

mod attempts;
mod authenticate;
mod document;
#[doc(hidden)]
pub mod fuzzing;
mod grant;
mod jwks_file;
mod jwt;
mod pattern;
mod policy;
mod present;
mod request;
mod rights;
#[cfg(any(test, feature = "signer"))]
pub mod signer;
mod store;
mod token;

pub use authenticate::{Access, AccessOptions, Caller, Identity, Limited, MAX_TOKEN_BYTES, TokenRefusal};
pub use document::TokenDocument;
pub use grant::{Grant, MAX_PATTERNS};
pub use jwks_file::{JwksError, check_jwks_file};
pub use pattern::{BucketPattern, DomainPattern};
pub use policy::{AnonymousRights, BucketKind, DomainRights, Policy};
pub use request::TokenRequest;
pub use rights::{Right, Rights, UnknownRight};
pub use store::{MAX_LISTED, TokenStore};
pub use token::{MAX_NOTE_BYTES, NewToken, TokenId, TokenInfo, TokenText};
