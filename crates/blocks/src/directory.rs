//! The beginning of a block: magic bytes, version, codec, hash, and the directory of its chunks.

use crate::{
    columns::{Column, Kind, check_columns},
    error::{Damage, Error},
    limits::{Limits, within_limit},
    section::Section,
    varint::{self, Input},
};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 4] = *b"RBLK";
/// The version of the format of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// A reader unpacks the whole block, or a large share of it, for any content.
    One,
    /// A reader unpacks one chunk, and the first, for any content.
    Two,
}

impl Version {
    /// The highest version.
    const LATEST: Self = Self::Two;

    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    fn of(code: u8) -> Result<Self, Error> {
        let known = [Self::One, Self::Two].into_iter().find(|version| version.code() == code);
        known.ok_or(Error::NewerVersion { found: code, known: Self::LATEST.code() })
    }
}

/// The number of bytes before the hash: magic, version and codec.
const BEFORE_HASH: usize = 6;
/// The offset of the first byte after the hash.
const AFTER_HASH: usize = BEFORE_HASH + blake3::OUT_LEN;

/// How the contents of a block are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// New text goes into a pool, and a text is a script of edits against an earlier text.
    PoolAndScripts,
    /// Whole texts, one after the other.
    Frames,
}

impl Codec {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::PoolAndScripts => 1,
            Self::Frames => 2,
        }
    }
}

/// The indexes of a chunk's sections. The sections of the columns follow.
pub(crate) const ENTRIES: usize = 0;
pub(crate) const CHECKS: usize = 1;
/// The literals, or the whole texts.
pub(crate) const TEXTS: usize = 2;
/// The scripts, or the lengths of the texts.
pub(crate) const SCRIPTS: usize = 3;
pub(crate) const FIRST_COLUMN: usize = 4;

/// The name of a section in errors.
pub(crate) fn section_name(section: usize) -> &'static str {
    ["entries", "checksums", "texts", "scripts"].get(section).copied().unwrap_or("columns")
}

/// The description of a chunk in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The number of entries, at least one.
    pub(crate) entries: usize,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The number of erased entries.
    pub(crate) erased: usize,
    pub(crate) sections: Vec<Section>,
}

impl Chunk {
    /// Whether the ordinals of the chunk are consecutive, and no entry is erased.
    pub(crate) fn is_plain(&self) -> bool {
        self.erased == 0 && self.last - self.first == self.entries as u64 - 1
    }

    pub(crate) fn stored(&self) -> usize {
        self.sections.iter().map(|section| section.stored).sum()
    }

    pub(crate) fn unpacked(&self) -> usize {
        self.sections.iter().map(|section| section.raw).sum()
    }
}

/// The directory of a block.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    pub(crate) version: Version,
    pub(crate) codec: Codec,
    pub(crate) columns: Vec<Column>,
    pub(crate) chunks: Vec<Chunk>,
}

/// A directory that was read, and the chunks after it.
#[derive(Debug)]
pub(crate) struct OpenedDirectory<'a> {
    pub(crate) directory: Directory,
    pub(crate) body: &'a [u8],
    /// Whether the strong hash matches.
    pub(crate) intact: bool,
}

impl Directory {
    /// Builds the bytes of a block. `body` has all chunks.
    pub(crate) fn seal(&self, body: &[u8]) -> Vec<u8> {
        let mut directory = Vec::new();
        varint::put(&mut directory, self.columns.len() as u64);
        for column in &self.columns {
            directory.push(column.kind.code());
            varint::put(&mut directory, column.name.len() as u64);
            directory.extend_from_slice(column.name.as_bytes());
        }
        varint::put(&mut directory, self.chunks.len() as u64);
        let mut next = 0;
        for chunk in &self.chunks {
            varint::put(&mut directory, chunk.entries as u64);
            varint::put(&mut directory, chunk.first - next);
            varint::put(&mut directory, chunk.last - chunk.first - (chunk.entries as u64 - 1));
            varint::put(&mut directory, chunk.erased as u64);
            chunk.sections.iter().for_each(|section| section.put(&mut directory));
            next = chunk.last + 1;
        }

        let mut block = Vec::with_capacity(AFTER_HASH + 16 + directory.len() + body.len());
        block.extend_from_slice(&MAGIC);
        block.extend([self.version.code(), self.codec.code()]);
        block.extend([0; blake3::OUT_LEN]);
        varint::put(&mut block, directory.len() as u64);
        block.extend_from_slice(&xxh3_64(&directory).to_le_bytes());
        block.extend_from_slice(&directory);
        block.extend_from_slice(body);
        let hash = hash(&block);
        block[BEFORE_HASH..AFTER_HASH].copy_from_slice(hash.as_bytes());
        block
    }

    /// Reads the directory of a block. Returns an error if the directory declares more than the limits allow.
    pub(crate) fn open<'a>(block: &'a [u8], limits: &Limits) -> Result<OpenedDirectory<'a>, Error> {
        within_limit("bytes of a block", block.len(), limits.block)?;
        let mut input = Input(block);
        if input.array() != Some(MAGIC) {
            return Err(Error::NotABlock);
        }
        let [version, codec] = input.array().ok_or(Damage::Length)?;
        let version = Version::of(version)?;
        let codec = [Codec::PoolAndScripts, Codec::Frames]
            .into_iter()
            // Frames need no further version: each of their chunks can be read alone.
            .find(|known| {
                known.code() == codec && (version == Version::One || *known == Codec::PoolAndScripts)
            })
            .ok_or(Error::UnknownCodec(codec))?;
        let stated = input.take(blake3::OUT_LEN).ok_or(Damage::Length)?;
        let intact = hash(block).as_bytes().as_slice() == stated;
        let (directory, body) = Self::find(input).ok_or(Damage::Length)?;
        let directory =
            Self::read(version, codec, directory.ok_or(Damage::Directory)?).ok_or(Damage::Directory)?;
        directory.check(limits)?;
        Ok(OpenedDirectory { directory, body, intact })
    }

    /// The bytes of the directory, if they agree with their checksum, and the bytes after them. Returns `None` if
    /// the end of the directory is missing.
    fn find(mut input: Input<'_>) -> Option<(Option<&[u8]>, &[u8])> {
        let length = input.size()?;
        let check = u64::from_le_bytes(input.array()?);
        let directory = input.take(length)?;
        // The fuzzer cannot guess checksums, so fuzzing does not check them.
        let matches = xxh3_64(directory) == check || cfg!(fuzzing);
        Some((matches.then_some(directory), input.0))
    }

    fn read(version: Version, codec: Codec, directory: &[u8]) -> Option<Self> {
        let mut input = Input(directory);
        // Each column and each chunk takes some bytes of the directory, so the vectors cannot become larger
        // than it.
        let mut columns = Vec::new();
        for _ in 0..input.size()? {
            let [kind] = input.array()?;
            let length = input.size()?;
            let name = String::from_utf8(input.take(length)?.to_vec()).ok()?;
            columns.push(Column { name, kind: Kind::of(kind)? });
        }
        check_columns(&columns).ok()?;
        let mut chunks = Vec::new();
        let mut next = Some(0_u64);
        for _ in 0..input.size()? {
            let entries = input.size().filter(|entries| *entries > 0)?;
            let first = next?.checked_add(input.number()?)?;
            let last = first.checked_add(input.number()?)?.checked_add(entries as u64 - 1)?;
            let erased = input.size().filter(|erased| *erased <= entries)?;
            let sections = (0..FIRST_COLUMN + columns.len()).map(|_| Section::read(&mut input));
            chunks.push(Chunk { entries, first, last, erased, sections: sections.collect::<Option<_>>()? });
            next = last.checked_add(1);
        }
        input.end()?;
        Some(Self { version, codec, columns, chunks })
    }

    /// The approximate use of memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let sections = self.chunks.iter().map(|chunk| chunk.sections.capacity()).sum::<usize>();
        let columns =
            self.columns.iter().map(|column| size_of::<Column>() + column.name.capacity()).sum::<usize>();
        size_of::<Self>()
            + columns
            + self.chunks.capacity() * size_of::<Chunk>()
            + sections * size_of::<Section>()
    }

    /// The chunk whose ordinals include this one, or begin before it and end after it.
    pub(crate) fn chunk_with(&self, ordinal: u64) -> Option<usize> {
        let chunk = self.chunks.partition_point(|chunk| chunk.last < ordinal);
        self.chunks.get(chunk).filter(|found| found.first <= ordinal).map(|_| chunk)
    }

    fn check(&self, limits: &Limits) -> Result<(), Error> {
        let sum = |of: &dyn Fn(&Chunk) -> usize| self.chunks.iter().map(of).fold(0, usize::saturating_add);
        within_limit("chunks of a block", self.chunks.len(), limits.chunks)?;
        within_limit("entries of a block", sum(&|chunk| chunk.entries), limits.entries)?;
        for section in 0..FIRST_COLUMN + self.columns.len() {
            let limit = if section == TEXTS { limits.texts } else { limits.scripts };
            within_limit("bytes of a section", sum(&|chunk| chunk.sections[section].raw), limit)?;
        }
        Ok(())
    }
}

/// The hash of a block's bytes, except those of the hash itself.
fn hash(block: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&block[..BEFORE_HASH]);
    hasher.update(&block[AFTER_HASH..]);
    hasher.finalize()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic in a test names its line.
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Block, BlockBuilder, Settings, Value};

    /// A block of several groups, and its contents.
    fn block() -> (Vec<u8>, BTreeMap<u64, Vec<u8>>) {
        let settings =
            Settings { group_entries: 4, group_pool: 100, first_group_pool: 100, ..Settings::default() };
        let mut builder = BlockBuilder::new(settings, vec![Column::bytes("user")], 0).unwrap();
        let mut contents = BTreeMap::new();
        for number in 0..40_u64 {
            builder.may_begin_group(true).unwrap();
            let content = format!("content {number}: {:x}", xxh3_64(&number.to_le_bytes())).repeat(9);
            let user = Value::Bytes(format!("user {}", number % 5).into_bytes());
            builder.push(format!("page {}", number / 2).as_bytes(), content.as_bytes(), &[user]).unwrap();
            contents.insert(number, content.into_bytes());
        }
        (builder.finish().unwrap(), contents)
    }

    /// The directories that say something else of this chunk.
    fn lies(directory: &Directory, chunk: usize) -> Vec<(String, Directory)> {
        let mut lies = Vec::new();
        let mut add = |what: String, lie: &dyn Fn(&mut Vec<Chunk>)| {
            let mut lying = directory.clone();
            lie(&mut lying.chunks);
            if lying.chunks != directory.chunks {
                lies.push((what, lying));
            }
        };
        for section in 0..=FIRST_COLUMN {
            for raw in [1, 2, 1 << 20, 1 << 32, usize::MAX >> 2] {
                add(format!("section {section}: {raw} bytes more"), &|chunks| {
                    chunks[chunk].sections[section].raw += raw;
                });
                add(format!("section {section}: {raw} stored bytes more"), &|chunks| {
                    chunks[chunk].sections[section].raw += raw;
                    chunks[chunk].sections[section].stored += raw;
                });
            }
            add(format!("section {section}: a stored byte less"), &|chunks| {
                let section = &mut chunks[chunk].sections[section];
                section.stored = section.stored.saturating_sub(1);
            });
            add(format!("section {section}: empty"), &|chunks| {
                chunks[chunk].sections[section] = Section::default();
            });
            add(format!("section {section}: that of another chunk"), &|chunks| {
                let other = (chunk + 1) % chunks.len();
                chunks[chunk].sections[section] = chunks[other].sections[section];
            });
        }
        add("all sections of another chunk".to_owned(), &|chunks| {
            let other = (chunk + 1) % chunks.len();
            chunks[chunk].sections = chunks[other].sections.clone();
        });
        add("an erased entry".to_owned(), &|chunks| chunks[chunk].erased += 1);
        add("an ordinal that is not used".to_owned(), &|chunks| {
            chunks[chunk..].iter_mut().for_each(|chunk| chunk.last += 1);
            chunks[chunk + 1..].iter_mut().for_each(|chunk| chunk.first += 1);
        });
        add("an entry more".to_owned(), &|chunks| {
            chunks[chunk].entries += 1;
            chunks[chunk..].iter_mut().for_each(|chunk| chunk.last += 1);
            chunks[chunk + 1..].iter_mut().for_each(|chunk| chunk.first += 1);
        });
        add("no chunk".to_owned(), &|chunks| drop(chunks.remove(chunk)));
        lies
    }

    /// The checksums of these directories are right. A directory that gives entries other numbers may return a content
    /// under another number, as a forged block may return anything. But no content is made of parts of others.
    #[test]
    fn directory_that_lies_is_found_out() {
        let (bytes, contents) = block();
        let opened = Directory::open(&bytes, &Limits::default()).unwrap();
        assert!(opened.directory.chunks.len() > 4);
        for chunk in 0..opened.directory.chunks.len() {
            for (what, lying) in lies(&opened.directory, chunk) {
                let numbers = |directory: &Directory| {
                    directory.chunks.iter().map(|chunk| (chunk.first, chunk.last)).collect::<Vec<_>>()
                };
                let is_numbered_alike = numbers(&lying) == numbers(&opened.directory);
                let lying = lying.seal(opened.body);
                let found = Block::open(&lying, Limits::default()).and_then(|block| block.verify());
                assert!(found.is_err(), "chunk {chunk}, {what}");
                let Ok(block) = Block::salvage(&lying, Limits::default()) else { continue };
                let check = |ordinal: u64, content: &Vec<u8>| {
                    let is_right = if is_numbered_alike {
                        contents.get(&ordinal) == Some(content)
                    } else {
                        contents.values().any(|known| known == content)
                    };
                    assert!(is_right, "chunk {chunk}, {what}: {ordinal}");
                };
                let groups: Vec<_> =
                    (0..block.groups()).filter_map(|group| block.unpack(group, None).ok()).collect();
                for ordinal in 0..50 {
                    block.get(ordinal).iter().for_each(|content| check(ordinal, content));
                    for group in &groups {
                        group.get(ordinal).iter().for_each(|content| check(ordinal, content));
                    }
                }
            }
        }
    }
}
