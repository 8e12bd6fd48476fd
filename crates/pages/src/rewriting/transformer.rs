//! What makes a new version of a value.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use rashomon_protocol::spec_version::Profile;

use crate::{Error, Result};

/// Makes versions of values, such as a service over HTTP.
#[async_trait]
pub trait Transformer: fmt::Debug + Send + Sync + 'static {
    /// Makes the version `wanted` of a value. `size` is the size of the stored value, which `read` reads when there is
    /// room for it.
    ///
    /// # Errors
    ///
    /// Returns an error if `read` fails, or if the version cannot be made.
    async fn transform(
        &self,
        content_type: &str,
        size: u64,
        wanted: &Profile,
        read: BoxFuture<'_, Result<Bytes>>,
    ) -> std::result::Result<Transformed, TransformFailure>;
}

/// A new version of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transformed {
    /// The content type, with the profile.
    pub content_type: String,
    /// The bytes.
    pub body: Bytes,
}

/// The reasons why no new version was made.
#[derive(Debug)]
pub enum TransformFailure {
    /// The stored value cannot be read.
    Read(Error),
    /// The version cannot be made of this value.
    Transformer {
        /// What went wrong.
        why: String,
        /// Whether the transformer may be down, so that other values would fail, too.
        is_outage: bool,
    },
}
