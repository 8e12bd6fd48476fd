//! A domain of a store.

use crate::{
    InputError, Page, Result, Store,
    names::{DomainName, Title},
};

/// A domain: one wiki of a store. A domain is cheap to clone.
#[derive(Debug, Clone)]
pub struct Domain {
    pub(crate) store: Store,
    pub(crate) name: DomainName,
}

impl Domain {
    /// The name of the domain.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// A page of the domain, in the bucket `page`. The page need not exist yet: the first write creates it.
    ///
    /// # Errors
    ///
    /// Returns [`InputError::Title`] if the text is not a title: 1 to 1,024 bytes of UTF-8 without control characters,
    /// and no part between slashes is `.` or `..`. Spaces and underscores are one letter.
    pub fn page(&self, title: &str) -> Result<Page, InputError> {
        let title = Title::new(title)?;
        let path = format!("/v1/{}/page/{}", self.name.as_str(), title.encoded());
        Ok(Page { store: self.store.clone(), title, path: path.into() })
    }
}
