//! Damages a copy of a store. A seed and a number determine each change, so that it can be repeated.

mod logs;
mod pages;

use std::sync::Arc;

use anyhow::{Context, Result};
use fastrand::Rng;

use crate::damage::base::{Base, Files, Victim};

/// A kind of damage to the files of a store. Here, *page* means a database page of the SQLite file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub enum Kind {
    /// Two child pointers of interior pages are swapped.
    SwappedChildren,
    /// A page is written over another page.
    PageOverPage,
    /// A page is overwritten with zeros.
    ZeroedPage,
    /// A page has its content from an earlier commit.
    OlderPage,
    /// Several pages have their content from an earlier commit.
    OlderPages,
    /// A bit is flipped.
    FlippedBit,
    /// Several bits are flipped.
    FlippedBits,
    /// A run of bytes is replaced with other bytes.
    ReplacedRun,
    /// The file ends early, at the end of a page, or is empty.
    CutAtPage,
    /// The file ends early, after any byte, or is empty.
    CutAnywhere,
    /// The log is missing.
    LostLog,
    /// The log ends early.
    CutLog,
    /// One or more bits of the log are flipped.
    FlippedLog,
    /// A frame of the log is overwritten with zeros.
    ZeroedLog,
    /// The log is an earlier log of the same store.
    OlderLog,
    /// The log belongs to another store.
    OtherLog,
}

impl Kind {
    /// All kinds of damage.
    pub const ALL: [Self; 16] = [
        Self::SwappedChildren,
        Self::PageOverPage,
        Self::ZeroedPage,
        Self::OlderPage,
        Self::OlderPages,
        Self::FlippedBit,
        Self::FlippedBits,
        Self::ReplacedRun,
        Self::CutAtPage,
        Self::CutAnywhere,
        Self::LostLog,
        Self::CutLog,
        Self::FlippedLog,
        Self::ZeroedLog,
        Self::OlderLog,
        Self::OtherLog,
    ];

    /// Whether pages are replaced by pages of an earlier commit. Pages do not contain a time, so such damage cannot
    /// always be detected.
    #[must_use]
    pub const fn is_of_older_pages(self) -> bool {
        matches!(self, Self::OlderPage | Self::OlderPages)
    }

    /// Whether the log is damaged.
    #[must_use]
    pub const fn is_of_log(self) -> bool {
        matches!(
            self,
            Self::LostLog
                | Self::CutLog
                | Self::FlippedLog
                | Self::ZeroedLog
                | Self::OlderLog
                | Self::OtherLog
        )
    }
}

/// A damaged copy of a store.
#[derive(Debug)]
pub struct Damage {
    /// The kind of damage.
    pub kind: Kind,
    /// The number of the base.
    pub base: usize,
    /// The number of the damaged store within the base.
    pub victim: usize,
    /// A description of the damage.
    pub what: String,
    /// The damaged files.
    pub files: Files,
    /// Whether meaningful bytes are known to have changed; free space in a page is not meaningful. `true` for any
    /// damage to the log. `false` for damage to the file of a store with a log, where the log may hide the damage.
    pub changes_used_bytes: bool,
}

/// The maximum number of consecutive draws whose damage is impossible for the drawn store, or has no effect, such as a
/// page that is written over an equal page.
const MAX_DRAWS: usize = 1_000;

/// Draws a store, and returns a damaged copy of it. Draws the kind of damage too if `kind` is `None`. `seed` and
/// `number` determine the result.
pub fn draw(bases: &[Base], kind: Option<Kind>, seed: u64, number: u64) -> Result<Damage> {
    let mut random = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number));
    for _ in 0..MAX_DRAWS {
        let drawn = Kind::ALL[random.usize(..Kind::ALL.len())];
        let kind = kind.unwrap_or(drawn);
        let base = random.usize(..bases.len());
        let victim = random.usize(..bases[base].victims.len());
        let drawn = DamageTarget { bases, base, victim: &bases[base].victims[victim] };
        let Some((what, files)) = drawn.damage(kind, &mut random) else { continue };
        if files == drawn.victim.files {
            continue;
        }
        let changes_used_bytes = changes_used_bytes(drawn.victim, &files);
        let what = format!("{kind:?}, base {}, damaged store {victim}: {what}", bases[base].name);
        return Ok(Damage { kind, base, victim, what, files, changes_used_bytes });
    }
    None.context("no draw gave damage that changes a store: choose another kind or seed")
}

struct DamageTarget<'a> {
    bases: &'a [Base],
    base: usize,
    victim: &'a Victim,
}

impl DamageTarget<'_> {
    /// Returns the damaged files with a description. `None` if this kind of damage is impossible for this
    /// store.
    fn damage(&self, kind: Kind, random: &mut Rng) -> Option<(String, Files)> {
        if kind.is_of_log() {
            return self.damage_log(kind, random);
        }
        let mut file = self.victim.files.file.to_vec();
        let what = self.damage_file(kind, &mut file, random)?;
        Some((what, Files { file: Arc::new(file), log: self.victim.files.log.clone() }))
    }
}

/// Whether meaningful bytes are known to have changed.
fn changes_used_bytes(victim: &Victim, damaged: &Files) -> bool {
    let (before, after) = (&victim.files.file, &damaged.file);
    if victim.files.log != damaged.log {
        return true;
    }
    // A store with a log has no layout. The log may contain newer versions of the damaged pages, so the effect is
    // unknown.
    let Some(layout) = &victim.layout else { return false };
    if before.len() != after.len() {
        return true;
    }
    let page_bytes = layout.page_bytes;
    layout.pages.iter().enumerate().any(|(number, page)| {
        let start = number * page_bytes;
        page.used.iter().any(|range| {
            let range = start + range.start..start + range.end;
            before[range.clone()] != after[range]
        })
    })
}
