//! Generates properties that are not stored, when a client reads them.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;
use rashomon_records::{GenerateError, Page, PropertyName, Revision};

/// Generates properties, usually by a renderer.
#[async_trait]
pub trait Generator: Debug + Send + Sync + 'static {
    /// The properties that the generator makes for pages of this page's bucket. Each call of
    /// [`Self::generate`] makes all of them. Empty if no generator is configured for the bucket.
    fn makes(&self, page: &Page) -> &[PropertyName];

    /// Generates all properties that [`Self::makes`] names for a revision, or fails. Implementations bound the
    /// time and the bytes.
    async fn generate(
        &self,
        page: &Page,
        rev: Revision,
    ) -> std::result::Result<Vec<Generated>, GenerateError>;
}

/// A property that was generated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The name.
    pub name: PropertyName,
    /// The content type. `None` means the content type in the property's definition.
    pub content_type: Option<String>,
    /// The content.
    pub body: Bytes,
}
