//! The application behind a server, and the types that the server passes to it.

use std::{error::Error, fmt, net::IpAddr};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;

use crate::connections::ReceivedBody;

/// Answers the requests that a server receives.
pub trait Application: Send + Sync + 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers a request. The request's extensions have the [`PeerAddress`], and with TLS [`Encrypted`].
    fn answer(&self, request: Request<ReceivedBody>) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Makes the answer to a request that the server cannot read. `cause` is the error of the HTTP library, for a
    /// log.
    ///
    /// The server adds `Content-Length`, `Connection` and `Date`, sends the answer as a whole, and closes the
    /// connection. The body should be small and in memory.
    fn refuse(&self, refusal: Refusal, cause: Option<&dyn fmt::Display>) -> Response<Self::Body>;

    /// Called when a connection has ended in the handshake of TLS.
    fn handshake_failed(&self);
}

/// The reason why a server cannot read a request, and refuses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The HTTP library cannot read a URL of this length.
    UrlTooLong,
    /// The head is larger than [`max_head_bytes`](crate::connections::ServeOptions::max_head_bytes), or has more than 100 headers.
    HeadTooLarge {
        /// The size limit of a head.
        max_head_bytes: usize,
    },
    /// The head is valid in neither HTTP/1.1 nor HTTP/1.0.
    Malformed {
        /// What is wrong with the request.
        reason: String,
    },
    /// The body has a transfer coding other than `chunked`.
    TransferCoding,
    /// The client speaks HTTP/2.
    Http2,
    /// The head did not arrive in time.
    Late,
    /// The request came without TLS to a server with TLS.
    WithoutTls,
}

/// The address of the client that sent a request: an extension of the request. An IPv4 address that is mapped to
/// IPv6 (RFC 4291, section 2.5.5.2) has its IPv4 form, so that each client has one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(IpAddr);

impl PeerAddress {
    /// The address of a client, in its canonical form.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        Self(address.to_canonical())
    }

    /// The address.
    #[must_use]
    pub const fn ip(self) -> IpAddr {
        self.0
    }
}

/// Marks a request that came over TLS: an extension of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encrypted;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_address_is_the_ipv4_address() {
        for (address, expected) in [
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("192.0.2.7", "192.0.2.7"),
            ("2001:db8::7", "2001:db8::7"),
            ("::1", "::1"),
        ] {
            let expected: IpAddr = expected.parse().unwrap();
            assert_eq!(PeerAddress::new(address.parse().unwrap()).ip(), expected, "{address}");
        }
    }
}
