//! Damages the SQLite file.

use fastrand::Rng;

use super::{DamageTarget, Kind};
use crate::damage::{
    layout::{Layout, Role},
    wal::PAGE_BYTES,
};

/// The maximum numbers of bits that are flipped at once, and of pages that are replaced by older pages.
const MAX_FLIPS: usize = 12;
const MAX_OLDER_PAGES: usize = 8;

/// The maximum number of bytes that are replaced at once.
const MAX_RUN_BYTES: usize = 600;

/// The number of bytes at the beginning of a page that are damaged more often, since they describe its structure.
const HEAD_BYTES: usize = 256;

impl DamageTarget<'_> {
    /// Damages the file, and returns a description.
    pub(super) fn damage_file(&self, kind: Kind, file: &mut Vec<u8>, random: &mut Rng) -> Option<String> {
        match kind {
            Kind::SwappedChildren => swap_children(self.victim.layout.as_ref()?, file, random),
            Kind::PageOverPage => {
                let (from, to) = self.two_pages(file, random)?;
                file.copy_within(from * PAGE_BYTES..(from + 1) * PAGE_BYTES, to * PAGE_BYTES);
                Some(format!("{} written over {}", self.describe(from), self.describe(to)))
            }
            Kind::ZeroedPage => {
                let page = random.usize(..file.len() / PAGE_BYTES);
                file[page * PAGE_BYTES..(page + 1) * PAGE_BYTES].fill(0);
                Some(format!("{} zeroed", self.describe(page)))
            }
            Kind::OlderPage => self.older_pages(file, 1, random),
            Kind::OlderPages => {
                let most = random.usize(2..=MAX_OLDER_PAGES);
                self.older_pages(file, most, random)
            }
            Kind::FlippedBit => Some(flip(file, 1, random)),
            Kind::FlippedBits => {
                let count = random.usize(2..=MAX_FLIPS);
                Some(flip(file, count, random))
            }
            Kind::ReplacedRun => Some(replace_run(file, random)),
            Kind::CutAtPage => {
                file.truncate(random.usize(..file.len() / PAGE_BYTES) * PAGE_BYTES);
                Some(format!("{} bytes are left", file.len()))
            }
            Kind::CutAnywhere => {
                file.truncate(random.usize(..file.len()));
                Some(format!("{} bytes are left", file.len()))
            }
            _ => None,
        }
    }

    fn describe(&self, page: usize) -> String {
        let layout = self.victim.layout.as_ref().and_then(|layout| layout.pages.get(page));
        let role = layout.map_or_else(String::new, |layout| format!(" ({:?} {})", layout.role, layout.tree));
        format!("page {}{role}", page + 1)
    }

    /// Draws two pages, often of the same tree and role, since such pages are easily confused. `None` if both are the
    /// same page.
    fn two_pages(&self, file: &[u8], random: &mut Rng) -> Option<(usize, usize)> {
        let count = file.len() / PAGE_BYTES;
        let (from, mut to) = (random.usize(..count), random.usize(..count));
        if let Some(layout) = &self.victim.layout
            && random.bool()
        {
            let own = &layout.pages[from];
            let alike = layout.pages_where(|page| page.tree == own.tree && page.role == own.role);
            to = alike[random.usize(..alike.len())];
        }
        (from != to).then_some((from, to))
    }

    /// Replaces at most `most` pages of the file with different pages of an earlier copy of the file. `None` if the
    /// store has a log or no earlier copy, or if too few pages differ.
    fn older_pages(&self, file: &mut [u8], most: usize, random: &mut Rng) -> Option<String> {
        if self.victim.older.is_empty() || self.victim.files.log.is_some() {
            return None;
        }
        let copy = random.usize(..self.victim.older.len());
        let older = &self.victim.older[copy].file;
        let pages = file.len().min(older.len()) / PAGE_BYTES;
        let of = |bytes: &[u8], page: usize| bytes[page * PAGE_BYTES..(page + 1) * PAGE_BYTES].to_vec();
        let mut differing: Vec<_> = (0..pages).filter(|page| of(file, *page) != of(older, *page)).collect();
        random.shuffle(&mut differing);
        differing.truncate(most);
        if differing.len() < most.min(2) {
            return None;
        }
        for page in &differing {
            file[page * PAGE_BYTES..(page + 1) * PAGE_BYTES].copy_from_slice(&of(older, *page));
        }
        let pages: Vec<_> = differing.iter().map(|page| self.describe(*page)).collect();
        Some(format!("as in earlier copy {copy}: {}", pages.join(", ")))
    }
}

fn swap_children(layout: &Layout, file: &mut [u8], random: &mut Rng) -> Option<String> {
    let interior = layout.pages_where(|page| page.role == Role::Interior);
    if interior.is_empty() {
        return None;
    }
    let draw_child = |random: &mut Rng| {
        let page = interior[random.usize(..interior.len())];
        let children = &layout.pages[page].children;
        (page, page * PAGE_BYTES + children[random.usize(..children.len())])
    };
    let (one, other) = (draw_child(random), draw_child(random));
    for at in 0..4 {
        file.swap(one.1 + at, other.1 + at);
    }
    let tree = |page: usize| &layout.pages[page].tree;
    Some(format!(
        "child pointers at bytes {} ({}) and {} ({}) swapped",
        one.1,
        tree(one.0),
        other.1,
        tree(other.0)
    ))
}

/// Draws an offset in the file, often near the beginning of a page, where its structure is.
fn draw_offset(length: usize, random: &mut Rng) -> usize {
    if random.u8(..3) == 0 {
        let page = random.usize(..length.div_ceil(PAGE_BYTES)) * PAGE_BYTES;
        page + random.usize(..HEAD_BYTES.min(length - page))
    } else {
        random.usize(..length)
    }
}

/// Flips bits, and returns a description of their offsets.
pub(super) fn flip(bytes: &mut [u8], count: usize, random: &mut Rng) -> String {
    let mut places = Vec::new();
    for _ in 0..count {
        let (at, bit) = (draw_offset(bytes.len(), random), random.u8(..8));
        bytes[at] ^= 1 << bit;
        places.push(format!("{at}.{bit}"));
    }
    format!("byte and bit {}", places.join(", "))
}

fn replace_run(file: &mut [u8], random: &mut Rng) -> String {
    let start = draw_offset(file.len(), random);
    let length = random.usize(1..=MAX_RUN_BYTES).min(file.len() - start);
    let value = random.choice([None, Some(0), Some(0xff)]).flatten();
    for byte in &mut file[start..start + length] {
        *byte = value.unwrap_or_else(|| random.u8(..));
    }
    format!("{length} bytes from {start} replaced")
}
