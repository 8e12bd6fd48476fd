//! The role of each page of an SQLite file, and its meaningful bytes.
//!
//! Only undamaged files are read, so the parser need not handle damage.

use std::{ops::Range, path::Path};

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, OpenFlags};

/// The role of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A tree page with child pages.
    Interior,
    /// A tree page without child pages.
    Leaf,
    /// An overflow page: the rest of a long row.
    Overflow,
    /// A page with a list of free pages.
    Trunk,
    /// A free page.
    Free,
    /// A page of a pointer map, which names for each page the page that points to it.
    Map,
}

/// The layout of a page of the file.
#[derive(Debug, Clone)]
pub struct PageLayout {
    /// The role of the page.
    pub role: Role,
    /// The tree that the page belongs to; empty if the page belongs to none.
    pub tree: String,
    /// The ranges of the used bytes: those that affect answers.
    pub used: Vec<Range<usize>>,
    /// The offsets of the child pointers.
    pub children: Vec<usize>,
}

/// All pages of a file.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The size of a page in bytes.
    pub page_bytes: usize,
    /// The pages. SQLite numbers them from 1.
    pub pages: Vec<PageLayout>,
}

/// The ranges of the file header that affect answers. The other ranges are counters, hints and reserved
/// bytes.
const HEADER_USED: [Range<usize>; 5] = [0..24, 28..40, 44..48, 52..64, 68..72];
const HEADER_BYTES: usize = 100;
const MAP_ENTRY_BYTES: usize = 5;
const INTERIOR_INDEX: u8 = 2;
const INTERIOR_TABLE: u8 = 5;
const LEAF_INDEX: u8 = 10;
const LEAF_TABLE: u8 = 13;

impl Layout {
    /// Reads the layout of a complete SQLite file that has no write-ahead log.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let uri = format!("file:{}?immutable=1", path.display());
        let connection = Connection::open_with_flags(uri, flags)?;
        let mut statement = connection.prepare(
            "SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0 UNION SELECT 'sqlite_schema', 1",
        )?;
        let roots = statement.query_map((), |row| Ok((row.get(0)?, row.get::<_, u32>(1)? as usize)))?;
        let roots = roots.collect::<rusqlite::Result<Vec<(String, usize)>>>()?;
        Self::of(&bytes, &roots)
    }

    fn of(file: &[u8], roots: &[(String, usize)]) -> Result<Self> {
        let page_bytes = match usize::from(read_u16(file, 16)) {
            1 => 1 << 16,
            bytes => bytes,
        };
        ensure!(
            page_bytes >= 512 && file.len().is_multiple_of(page_bytes),
            "the file is not a complete SQLite file"
        );
        let free =
            PageLayout { role: Role::Free, tree: String::new(), used: Vec::new(), children: Vec::new() };
        let count = file.len() / page_bytes;
        let mut reader = Reader { file, page_bytes, pages: vec![free; count] };
        reader.read_maps();
        reader.read_free_lists()?;
        for (name, root) in roots {
            reader.read_tree(name, *root)?;
        }
        reader.pages[0].used.extend(HEADER_USED);
        Ok(Self { page_bytes, pages: reader.pages })
    }

    /// Returns the indexes in `pages` of the pages that fulfil the condition.
    pub fn pages_where(&self, holds: impl Fn(&PageLayout) -> bool) -> Vec<usize> {
        (0..self.pages.len()).filter(|number| holds(&self.pages[*number])).collect()
    }
}

struct Reader<'a> {
    file: &'a [u8],
    page_bytes: usize,
    pages: Vec<PageLayout>,
}

impl Reader<'_> {
    fn page(&self, number: usize) -> Result<&[u8]> {
        let start = number.checked_sub(1).context("a page number is 0")? * self.page_bytes;
        self.file.get(start..start + self.page_bytes).context("a page number is beyond the end of the file")
    }

    fn set(&mut self, number: usize, role: Role, tree: &str, used: Vec<Range<usize>>, children: Vec<usize>) {
        self.pages[number - 1] = PageLayout { role, tree: tree.to_owned(), used, children };
    }

    /// Finds the pointer maps of a file with auto-vacuum. Page 2 is the first map. Between two maps, there are as many
    /// pages as a map has entries.
    fn read_maps(&mut self) {
        let entries = self.page_bytes / MAP_ENTRY_BYTES;
        let count = self.pages.len();
        for number in (2..=count).step_by(entries + 1) {
            let mapped = entries.min(count - number);
            self.set(
                number,
                Role::Map,
                "",
                std::iter::once(0..mapped * MAP_ENTRY_BYTES).collect(),
                Vec::new(),
            );
        }
    }

    fn read_free_lists(&mut self) -> Result<()> {
        let mut number = read_u32(self.file, 32);
        while number != 0 {
            let page = self.page(number)?;
            let (next, free) = (read_u32(page, 0), read_u32(page, 4));
            self.set(number, Role::Trunk, "", std::iter::once(0..8 + 4 * free).collect(), Vec::new());
            number = next;
        }
        Ok(())
    }

    fn read_tree(&mut self, name: &str, number: usize) -> Result<()> {
        let page = self.page(number)?.to_vec();
        let start = if number == 1 { HEADER_BYTES } else { 0 };
        let kind = page[start];
        let is_interior = matches!(kind, INTERIOR_INDEX | INTERIOR_TABLE);
        ensure!(
            is_interior || matches!(kind, LEAF_INDEX | LEAF_TABLE),
            "page {number} is no tree page: its type byte is {kind}"
        );
        let header = if is_interior { 12 } else { 8 };
        let cells = usize::from(read_u16(&page, start + 3));
        let mut used: Vec<_> = std::iter::once(start..start + header + 2 * cells).collect();
        let mut children = Vec::new();
        for cell in 0..cells {
            let at = usize::from(read_u16(&page, start + header + 2 * cell));
            let mut end = at;
            if is_interior {
                children.push(at);
                end += 4;
            }
            let payload = if kind == INTERIOR_TABLE { 0 } else { read_varint(&page, &mut end) };
            if matches!(kind, INTERIOR_TABLE | LEAF_TABLE) {
                read_varint(&page, &mut end);
            }
            let local = self.local_bytes(payload, kind);
            end += local;
            if local < payload {
                self.read_overflow(name, read_u32(&page, end), payload - local)?;
                end += 4;
            }
            used.push(at..end);
        }
        if is_interior {
            children.push(start + 8);
        }
        let below: Vec<_> = children.iter().map(|at| read_u32(&page, *at)).collect();
        self.set(number, if is_interior { Role::Interior } else { Role::Leaf }, name, used, children);
        below.into_iter().try_for_each(|child| self.read_tree(name, child))
    }

    /// The number of bytes of a payload that are in the tree page itself. The others are in overflow pages.
    fn local_bytes(&self, payload: usize, kind: u8) -> usize {
        let usable = self.page_bytes;
        let most = if kind == LEAF_TABLE { usable - 35 } else { (usable - 12) * 64 / 255 - 23 };
        if payload <= most {
            return payload;
        }
        let least = (usable - 12) * 32 / 255 - 23;
        let fitting = least + (payload - least) % (usable - 4);
        if fitting <= most { fitting } else { least }
    }

    fn read_overflow(&mut self, name: &str, mut number: usize, mut bytes: usize) -> Result<()> {
        while bytes > 0 {
            let next = read_u32(self.page(number)?, 0);
            let here = bytes.min(self.page_bytes - 4);
            self.set(number, Role::Overflow, name, std::iter::once(0..4 + here).collect(), Vec::new());
            bytes -= here;
            number = next;
        }
        Ok(())
    }
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn read_u32(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

fn read_varint(bytes: &[u8], at: &mut usize) -> usize {
    let mut number = 0;
    for _ in 0..8 {
        let byte = bytes[*at];
        *at += 1;
        number = number << 7 | usize::from(byte & 0x7f);
        if byte < 0x80 {
            return number;
        }
    }
    *at += 1;
    number << 8 | usize::from(bytes[*at - 1])
}
