//! A made-up wiki of many short pages, which is made as it is written.
//!
//! The pages come in shuffled order, since dumps are in the order of page ids and not of titles. Each revision replaces
//! a few words of the one before, since an appended word would make all revisions of a page compress as one.

use std::{
    collections::HashMap,
    io::{self, Write},
};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use rashomon_clock::{Timestamp, rfc3339};
use rashomon_pages::{Revision, Tid};

use crate::direct;

/// The number of different words that the texts draw from.
const WORDS: usize = 5_000;
/// One of this many words of a text changes from one revision to the next, and at least one word.
const REPLACED: usize = 500;
/// The size of the texts of the long pages of a mix.
const LONG_BYTES: usize = 50_000;
/// The shares of pages of a mix that have one revision, and that have one or more short revisions.
const ONE_REVISION: f64 = 0.7;
const SHORT: f64 = 0.99;
/// 2005-01-01, the day of the earliest revisions, in seconds.
const EARLIEST: u64 = 1_104_537_600;
const DAY: u64 = 24 * 60 * 60;
/// The time from the first revision of a page to its last one, and the time between two revisions, at most.
const HISTORY: u64 = 15 * 365 * DAY;
const MAX_INTERVAL: u64 = 365 * DAY;

/// The size of a wiki.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) pages: u32,
    /// The revisions of each page.
    pub(super) revisions: u32,
    /// The size of each text.
    pub(super) bytes: usize,
    /// 70 % of the pages have one revision, and 1 % have long texts.
    pub(super) mix: bool,
    pub(super) seed: u64,
}

impl Shape {
    /// The generator of a page's random values. No two pages, and no two seeds, share one.
    fn random(&self, page: u32) -> Rng {
        Rng::with_seed(self.seed << 32 | u64::from(page))
    }

    /// The number of revisions of a page, and the size of their texts.
    fn of_page(&self, rng: &mut Rng) -> (u32, usize) {
        match rng.f64() {
            share if !self.mix || (ONE_REVISION..SHORT).contains(&share) => (self.revisions, self.bytes),
            share if share < ONE_REVISION => (1, self.bytes),
            _ => (self.revisions, LONG_BYTES),
        }
    }
}

/// The wiki.
#[derive(Debug)]
pub(super) struct Wiki {
    shape: Shape,
    words: Vec<String>,
    /// The pages in the order of the file.
    order: Vec<u32>,
    /// The number of the first revision of each page.
    first: Vec<u64>,
    revisions: u64,
}

/// A revision of a page.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) title: &'a str,
    /// The number of the revision.
    pub(super) number: u64,
    pub(super) time: Timestamp,
    pub(super) user: &'a str,
    pub(super) comment: &'a str,
    pub(super) text: &'a str,
}

/// What requests need to know about a revision.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) number: u64,
    pub(super) time: Timestamp,
    pub(super) text: String,
}

impl Wiki {
    pub(super) fn new(shape: Shape) -> Self {
        let mut rng = Rng::with_seed(shape.seed);
        let words = (0..WORDS).map(|_| format!("w{:x}", rng.u32(..1_000_000))).collect();
        let mut order: Vec<u32> = (0..shape.pages).collect();
        rng.shuffle(&mut order);
        let (mut first, mut revisions) = (vec![0; order.len()], 0);
        for &page in &order {
            first[page as usize] = revisions + 1;
            revisions += u64::from(shape.of_page(&mut shape.random(page)).0);
        }
        Self { shape, words, order, first, revisions }
    }

    pub(super) const fn pages(&self) -> u32 {
        self.shape.pages
    }

    /// The size of each short text.
    pub(super) const fn bytes(&self) -> usize {
        self.shape.bytes
    }

    /// The number of all revisions.
    pub(super) const fn revisions(&self) -> u64 {
        self.revisions
    }

    /// Calls `each` with the revisions of all pages, in the order of the file.
    pub(super) fn each<E>(&self, mut each: impl FnMut(&Entry<'_>) -> Result<(), E>) -> Result<(), E> {
        self.order.iter().try_for_each(|&page| self.each_of(page, &mut each))
    }

    /// Calls `each` with the revisions of a page, the oldest first.
    fn each_of<E>(&self, page: u32, each: &mut impl FnMut(&Entry<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut rng = self.shape.random(page);
        let (revisions, bytes) = self.shape.of_page(&mut rng);
        let mut words = Vec::new();
        let mut length = 0;
        while length < bytes {
            let word = &*self.words[rng.usize(..WORDS)];
            length += word.len() + 1;
            words.push(word);
        }
        let interval = MAX_INTERVAL.min(HISTORY / u64::from(revisions));
        let (title, user) = (title(page), format!("U{}", page % 977));
        let mut seconds = EARLIEST + u64::from(page % 28) * DAY + u64::from(page % (24 * 60)) * 60;
        for index in 0..revisions {
            if index > 0 {
                for _ in 0..1 + words.len() / REPLACED {
                    let place = rng.usize(..words.len());
                    words[place] = &self.words[rng.usize(..WORDS)];
                }
                seconds += interval;
            }
            each(&Entry {
                title: &title,
                number: self.first[page as usize] + u64::from(index),
                time: Timestamp::from_micros(i64::try_from(seconds * 1_000_000).unwrap_or(i64::MAX)),
                user: &user,
                comment: &format!("c{index}"),
                text: &words.join(" "),
            })?;
        }
        Ok(())
    }

    /// The revisions of a page, the oldest first.
    fn known(&self, page: u32) -> Vec<Known> {
        let mut known = Vec::new();
        let done: Result<(), std::convert::Infallible> = self.each_of(page, &mut |entry| {
            known.push(Known { number: entry.number, time: entry.time, text: entry.text.to_owned() });
            Ok(())
        });
        let Ok(()) = done;
        known
    }

    /// The revisions of these pages.
    pub(super) fn histories(&self, pages: &[u32]) -> HashMap<u32, Vec<Known>> {
        let mut histories = HashMap::new();
        for &page in pages {
            histories.entry(page).or_insert_with(|| self.known(page));
        }
        histories
    }

    /// Writes the wiki as MediaWiki XML.
    pub(super) fn write(&self, out: impl Write) -> io::Result<()> {
        let mut out = io::BufWriter::new(out);
        out.write_all(b"<mediawiki>\n")?;
        for &page in &self.order {
            let id = page + 1;
            writeln!(out, "<page><title>{}</title><ns>0</ns><id>{id}</id>", title(page))?;
            self.each_of(page, &mut |entry| write_revision(&mut out, entry, page % 977 + 1))?;
            out.write_all(b"</page>\n")?;
        }
        out.write_all(b"</mediawiki>\n")?;
        out.flush()
    }
}

fn write_revision(out: &mut impl Write, entry: &Entry<'_>, user_id: u32) -> io::Result<()> {
    let Entry { number, time, user, comment, text, .. } = entry;
    writeln!(
        out,
        "<revision><id>{number}</id><timestamp>{}</timestamp>\
         <contributor><username>{user}</username><id>{user_id}</id></contributor>\
         <comment>{comment}</comment><text>{text}</text></revision>",
        rfc3339::format(*time)
    )
}

/// The title of a page, as in a URL.
pub(super) fn title(page: u32) -> String {
    format!("Page_{page}")
}

/// The tid of the only render of a revision after an import.
pub(super) fn tid(page: u32, revision: &Known) -> Result<Tid> {
    let number =
        Revision::new(i64::try_from(revision.number)?).context("the number of a revision is not positive")?;
    Ok(Tid::imported(&direct::page(&title(page))?, number, revision.time))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SHAPE: Shape = Shape { pages: 400, revisions: 10, bytes: 245, mix: false, seed: 1 };

    fn xml(shape: Shape) -> String {
        let mut xml = Vec::new();
        Wiki::new(shape).write(&mut xml).unwrap();
        String::from_utf8(xml).unwrap()
    }

    #[test]
    fn wiki_is_the_same_for_a_seed_and_shuffled() {
        let made = xml(SHAPE);
        assert_eq!(made, xml(SHAPE));
        assert_ne!(made, xml(Shape { seed: 2, ..SHAPE }));
        let titles: Vec<&str> = made
            .split("<title>")
            .skip(1)
            .filter_map(|part| part.split_once("</title>"))
            .map(|it| it.0)
            .collect();
        let in_order: Vec<String> = (0..SHAPE.pages).map(title).collect();
        assert_ne!(titles, in_order);
        assert_eq!(
            titles.into_iter().collect::<HashSet<_>>(),
            in_order.iter().map(|title| &**title).collect()
        );
        assert_eq!(made.matches("<revision>").count(), 4_000);
    }

    #[test]
    fn revisions_have_rising_numbers_and_times_and_differ_in_one_word() {
        let wiki = Wiki::new(SHAPE);
        let known = wiki.known(7);
        assert_eq!(known.len(), 10);
        for pair in known.windows(2) {
            assert!(pair[0].number + 1 == pair[1].number && pair[0].time < pair[1].time);
            let words = |known: &Known| known.text.split(' ').map(str::to_owned).collect::<Vec<_>>();
            let (before, after) = (words(&pair[0]), words(&pair[1]));
            assert_eq!(before.len(), after.len());
            assert!(before.iter().zip(&after).filter(|(before, after)| before != after).count() <= 1);
        }
        assert!((245..260).contains(&known[0].text.len()), "{}", known[0].text.len());
        let made = xml(SHAPE);
        assert!(known.iter().all(|revision| made.contains(&format!("<text>{}</text>", revision.text))));
    }

    #[test]
    fn mix_has_mostly_pages_of_one_revision_and_a_few_long_ones() {
        let wiki = Wiki::new(Shape { pages: 2_000, mix: true, ..SHAPE });
        let histories: Vec<_> = (0..2_000).map(|page| wiki.known(page)).collect();
        let count = |is: fn(&[Known]) -> bool| histories.iter().filter(|history| is(history)).count();
        assert!((1_300..1_500).contains(&count(|history| history.len() == 1)));
        assert!((5..40).contains(&count(|history| history[0].text.len() > 49_000)));
        assert_eq!(wiki.revisions(), histories.iter().map(|history| history.len() as u64).sum::<u64>());
    }
}
