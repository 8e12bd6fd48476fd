//! Lists of entries.

use serde::{Deserialize, Serialize};

use crate::{Bucket, ETag, InputError, List, Timestamp, list::private::FromResultPage};
use rashomon_protocol::EntryKey;

/// The maximum size of a prefix in bytes.
const MAX_PREFIX_BYTES: usize = 1024;

/// An entry of a bucket, as the list of the bucket describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EntrySummary {
    /// The key.
    pub key: String,
    /// The stored content type.
    pub content_type: String,
    /// The size in bytes.
    pub size: u64,
    /// The version of the entry, for conditions of later requests.
    pub etag: ETag,
    /// The time of the last write.
    pub modified: Timestamp,
}

#[derive(Debug, Deserialize)]
pub struct Entries {
    entries: Vec<EntrySummary>,
    next: Option<String>,
}

impl FromResultPage for EntrySummary {
    const NEXT: &'static str = "?";

    type Document = Entries;

    fn entries(document: Entries) -> (Vec<Self>, Option<String>) {
        (document.entries, document.next)
    }
}

impl Bucket {
    /// Lists the entries of a bucket of the type `blob` or `ordered-blob`. An entry that exists during the whole list
    /// is listed exactly once.
    ///
    /// A bucket of the type `ordered-blob` is listed in the byte order of the keys:
    ///
    /// ```no_run
    /// use futures::TryStreamExt as _;
    /// # use rashomon_client::Bucket;
    ///
    /// # async fn example(timeseries: Bucket) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut february = timeseries.entries().ge("2012-02").lt("2012-03");
    /// while let Some(entry) = february.try_next().await? {
    ///     println!("{} has {} bytes", entry.key, entry.size);
    /// }
    /// // The newest entry alone.
    /// let newest = timeseries.entries().desc().page_size(1).try_next().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn entries(&self) -> List<EntrySummary> {
        self.list()
    }
}

/// Selects the part of an `ordered-blob` bucket that is listed. For other buckets, the list yields a problem of the
/// kind [`Malformed`](crate::ProblemKind::Malformed). A call after the first entry has no effect.
impl List<EntrySummary> {
    /// Begins after this key. Replaces an earlier beginning.
    pub fn gt(self, key: &str) -> Self {
        self.bound(&["gt", "ge"], "gt", key)
    }

    /// Begins with this key. Replaces an earlier beginning.
    pub fn ge(self, key: &str) -> Self {
        self.bound(&["gt", "ge"], "ge", key)
    }

    /// Ends before this key. Replaces an earlier end.
    pub fn lt(self, key: &str) -> Self {
        self.bound(&["lt", "le"], "lt", key)
    }

    /// Ends with this key. Replaces an earlier end.
    pub fn le(self, key: &str) -> Self {
        self.bound(&["lt", "le"], "le", key)
    }

    /// Lists only keys that begin with this text, of at most 1,024 bytes.
    pub fn prefix(self, text: &str) -> Self {
        let name = "prefix".to_owned();
        let prefix = match text.len() {
            0..=MAX_PREFIX_BYTES => Ok(text.to_owned()),
            _ => Err(InputError::Field { name, reason: "a prefix has at most 1,024 bytes" }),
        };
        self.set(&["prefix"], "prefix", prefix)
    }

    /// Lists in the reverse order.
    pub fn desc(self) -> Self {
        self.set(&["order"], "order", Ok("desc".to_owned()))
    }

    fn bound(self, replaced: &[&str], name: &str, key: &str) -> Self {
        self.set(replaced, name, EntryKey::new(key).map(String::from).map_err(Into::into))
    }
}
