//! A domain of a store.

use crate::{Bucket, BucketSummary, InputError, List, Page, Result, Store};
use rashomon_protocol::{BucketName, DomainName, NameError};

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
    /// Returns [`InputError::Name`] if the text is not a title: 1 to 1,024 bytes of UTF-8 without control characters,
    /// and no part between slashes is `.` or `..`. Spaces and underscores are the same letter.
    pub fn page(&self, title: &str) -> Result<Page, InputError> {
        self.bucket("page")?.page(title)
    }

    /// A bucket of the domain. [`Bucket::create`] creates the bucket if it does not exist yet.
    ///
    /// # Errors
    ///
    /// Returns [`InputError::Name`] if the text is not the name of a bucket: 1 to 64 of a-z, 0-9 and `-`, beginning
    /// with a letter. Names of other resources, such as `import`, are reserved.
    pub fn bucket(&self, name: &str) -> Result<Bucket, InputError> {
        let name = BucketName::new(name)?;
        if name.is_reserved() {
            return Err(NameError(format!("'{name}' is reserved and cannot be a bucket")).into());
        }
        let path = format!("{}{}", self.path(), name.as_str());
        Ok(Bucket { store: self.store.clone(), name, path: path.into() })
    }

    /// Lists the buckets of the domain by name, as far as the token may read them. `page` is among them if the domain
    /// has a page.
    pub fn buckets(&self) -> List<BucketSummary> {
        List::new(self.store.clone(), self.path().into(), Ok(String::new()))
    }

    /// The path of the domain in the HTTP API, with a slash at its end.
    fn path(&self) -> String {
        format!("/v1/{}/", self.name.as_str())
    }
}
