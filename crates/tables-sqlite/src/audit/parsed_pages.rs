//! The parsed pages that audits used last.

use std::{collections::HashMap, mem, sync::Arc};

use super::page::TreePage;

/// The maximum size of the pages in each of the two maps, so of about 2 MB for a connection. A page of 4 KiB takes 1 to
/// 4 KB when it is parsed.
const MAP_BYTES: usize = 1 << 20;

/// Parsed pages by their numbers, with the hash of the parsed bytes.
///
/// When `recent` is full, it becomes `older`, and the pages that were in `older` are forgotten. A page that is used
/// again moves to `recent`. So the pages near the root, which many audits use, are kept, while leaves come and go: in a
/// store with more pages than fit, nearly each audit reads another leaf.
#[derive(Debug, Default)]
pub(super) struct ParsedPages {
    recent: HashMap<u32, (u64, Arc<TreePage>)>,
    recent_bytes: usize,
    older: HashMap<u32, (u64, Arc<TreePage>)>,
}

impl ParsedPages {
    /// Returns the page with this number if it was parsed from bytes with this hash.
    pub(super) fn get(&mut self, number: u32, hash: u64) -> Option<Arc<TreePage>> {
        if let Some((kept, page)) = self.recent.get(&number) {
            return (*kept == hash).then(|| Arc::clone(page));
        }
        let (_, page) = self.older.remove(&number).filter(|(kept, _)| *kept == hash)?;
        self.insert(number, hash, Arc::clone(&page));
        Some(page)
    }

    /// Returns the hash of the bytes of this page, if it was returned or added last.
    pub(super) fn hash(&self, number: u32) -> Option<u64> {
        self.recent.get(&number).map(|(hash, _)| *hash)
    }

    /// Adds a page that was parsed from bytes with this hash.
    pub(super) fn insert(&mut self, number: u32, hash: u64, page: Arc<TreePage>) {
        if self.recent_bytes >= MAP_BYTES {
            mem::swap(&mut self.recent, &mut self.older);
            self.recent.clear();
            self.recent_bytes = 0;
        }
        self.recent_bytes += page.bytes();
        if let Some((_, replaced)) = self.recent.insert(number, (hash, page)) {
            self.recent_bytes -= replaced.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u32 = 1;
    const HASH: u64 = 7;

    fn page() -> Arc<TreePage> {
        let mut bytes = [0; 4_096];
        bytes[0] = 0x0a;
        bytes[5..7].copy_from_slice(&4_096_u16.to_be_bytes());
        Arc::new(TreePage::parse(&bytes, |_, _| Err("there is no overflow".to_owned())).unwrap())
    }

    #[test]
    fn only_pages_that_are_used_again_stay() {
        let mut pages = ParsedPages::default();
        pages.insert(PAGE, HASH, page());
        let others = 2..(8 * MAP_BYTES / page().bytes()) as u32;
        for other in others.clone() {
            pages.insert(other, HASH, page());
            assert!(pages.get(PAGE, HASH).is_some(), "after {other} other pages");
        }
        let kept = others.clone().filter(|other| pages.get(*other, HASH).is_some()).count();
        assert!(kept * page().bytes() < 3 * MAP_BYTES, "{kept} of {} pages are kept", others.len());
    }

    #[test]
    fn page_whose_bytes_have_changed_is_not_returned() {
        let mut pages = ParsedPages::default();
        pages.insert(PAGE, HASH, page());
        assert!(pages.get(PAGE, HASH + 1).is_none());
        pages.insert(PAGE, HASH + 1, page());
        assert!(pages.get(PAGE, HASH).is_none());
        assert!(pages.get(PAGE, HASH + 1).is_some());
        assert_eq!(pages.recent_bytes, page().bytes());
    }
}
