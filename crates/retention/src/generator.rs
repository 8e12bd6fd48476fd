//! Generates properties that are not stored, when a client reads them.

use std::fmt::Debug;

use async_trait::async_trait;
use bytes::Bytes;
use rashomon_records::{GenerateError, Page, PropertyName, Revision};

/// Generates properties, usually by a renderer.
#[async_trait]
pub trait Generator: Debug + Send + Sync + 'static {
    /// The properties that the generator makes for pages of this page's bucket, always all together. Empty if
    /// no generator is configured.
    fn makes(&self, page: &Page) -> &[PropertyName];

    /// Generates all of these properties for a revision, or none. Implementations bound the time and the
    /// bytes.
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
