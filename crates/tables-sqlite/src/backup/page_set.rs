//! A set of page numbers.

/// A set of page numbers from 1.
#[derive(Debug, Default)]
pub(crate) struct PageSet {
    words: Vec<u64>,
    len: usize,
}

impl PageSet {
    /// Returns the set of all pages up to this page.
    pub(crate) fn up_to(last: u32) -> Self {
        let mut set = Self::default();
        (1..=last).for_each(|page| set.insert(page));
        set
    }

    /// The number of pages in the set.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a page.
    pub(crate) fn insert(&mut self, page: u32) {
        let (word, bit) = position(page);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.len += usize::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
    }

    /// Removes a page.
    pub(crate) fn remove(&mut self, page: u32) {
        let (word, bit) = position(page);
        if let Some(word) = self.words.get_mut(word) {
            self.len -= usize::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    /// Removes all pages with a higher number.
    pub(crate) fn truncate(&mut self, last: u32) {
        let mut from = last;
        while let Some(page) = self.next_after(from) {
            self.remove(page);
            from = page;
        }
    }

    /// The first page of the set with a higher number.
    pub(crate) fn next_after(&self, page: u32) -> Option<u32> {
        let (first, bit) = position(page.checked_add(1)?);
        let mut mask = !(bit - 1);
        for (index, word) in self.words.iter().enumerate().skip(first) {
            let found = word & mask;
            if found != 0 {
                return u32::try_from(index).ok().map(|index| index * u64::BITS + found.trailing_zeros());
            }
            mask = u64::MAX;
        }
        None
    }
}

/// The word of a page, and its bit in the word.
const fn position(page: u32) -> (usize, u64) {
    ((page / u64::BITS) as usize, 1 << (page % u64::BITS))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn pages_are_found_in_ascending_order() {
        let mut set = PageSet::default();
        let mut model = BTreeSet::new();
        // A generator of numbers that spread over several words.
        let mut number = 7_u32;
        for step in 0..5_000_u32 {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let page = 1 + (number >> 8) % 700;
            if step % 3 == 0 {
                set.remove(page);
                model.remove(&page);
            } else {
                set.insert(page);
                model.insert(page);
            }
            assert_eq!(set.len(), model.len());
            assert_eq!(set.next_after(page), model.range(page + 1..).next().copied());
        }
        set.truncate(300);
        let left: Vec<_> = std::iter::successors(set.next_after(0), |page| set.next_after(*page)).collect();
        assert_eq!(left, model.range(..=300).copied().collect::<Vec<_>>());
        assert_eq!(set.len(), left.len());
        assert_eq!(PageSet::default().next_after(u32::MAX), None);
    }
}
