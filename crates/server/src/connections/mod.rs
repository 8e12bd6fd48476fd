//! The server around an application: it accepts connections, with or without TLS, and speaks HTTP/1 on them.
//!
//! [`serve()`] passes each request to an [`Application`], and sends its answer. The server limits the number of
//! connections, the heads of requests, and how slow a client may be ([`ServeOptions`]). The bodies of requests are not
//! limited here. If an application does not read a body ([`ReceivedBody`]), the server reads a short rest of it, and
//! otherwise says that it closes the connection. The server refuses requests that cannot be read ([`Refusal`]), with
//! answers that the application makes. [`Tls`] has the certificate of the server. It replaces the certificate when the
//! files change. [`ExpiryLog`] warns before the certificate expires.
//!
//! The module does not know the routes of an application, nor the form of its answers.
//!
//! # Invariants
//!
//! - The module does not know the routes, nor the form of an error.
//! - The number of connections, the heads of requests, and the time that a slow client may take are bounded. (The
//!   bodies are bounded in `forms`.)

mod application;
mod intercepted_stream;
mod last_answer;
mod received_body;
mod request_heads;
mod serve;
mod tls;
mod transfer_codings;

pub use application::{Application, Encrypted, PeerAddress, Refusal};
pub use received_body::{ReceiveError, ReceivedBody};
pub use serve::{ServeOptions, serve};
pub use tls::{ExpiryLog, ExpiryNotice, TLS_RELOAD_INTERVAL, Tls, TlsError, TlsFiles, TlsReload};
