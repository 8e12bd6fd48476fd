//! What the HTTP clients of Rashomon share: the tokens that they send, and the authorities that they trust.
//!
//! [`BearerToken`] is a token in the form of a header, and [`TokenFile`] a file with one, which may change.
//! [`client_config()`] has the settings of TLS, with the authorities of the system or of a file.

mod authorities;
mod token;
mod token_file;

pub use authorities::{AuthoritiesError, client_config};
pub use token::{BearerToken, MAX_TOKEN_BYTES, TokenError};
pub use token_file::{TokenFile, TokenFileError};
