//! Scripts, and their encoding.
//!
//! In the encoding of a chunk's scripts, each field has a separate stream with its values of all scripts,
//! since numbers of one kind compress well together. The lengths of the streams come first, and then the
//! streams in order.

use std::ops::Range;

use crate::chunks::Sources;
use crate::varint::{self, Input, unzigzag, zigzag};

/// The number of fields.
const FIELDS: usize = 7;
/// The index of each field's stream.
const ORIGIN: usize = 0;
const EDITS: usize = 1;
const COPY: usize = 2;
const LITERAL: usize = 3;
const SKIP: usize = 4;
const POOL_LENGTH: usize = 5;
const POOL_PLACE: usize = 6;

/// The text that a script begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The script begins with no text.
    Empty,
    /// The text of the entry was erased.
    Erased,
    /// The text of the entry this many entries earlier. A script without edits makes the same text.
    Parent(u32),
}

/// One step of a script. A script has a position in its parent, which begins at 0. After the last edit, the
/// parent's bytes from that position on are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Edit {
    /// This many bytes are copied from the parent, and the position moves to their end.
    pub(crate) copy: u32,
    /// Then this many bytes of the pool follow, which come directly after the literals of the previous edits.
    pub(crate) literal: u32,
    /// Then this many bytes from anywhere in the pool follow.
    pub(crate) pool_len: u32,
    /// The position in the pool at which these bytes begin.
    pub(crate) pool_at: u32,
    /// Then the position in the parent moves by this much, back if the number is negative.
    pub(crate) skip: i32,
}

impl Edit {
    pub(crate) fn is_nothing(self) -> bool {
        self.literal == 0 && self.pool_len == 0 && self.skip == 0
    }
}

/// The edits that derive a text from another text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) origin: Origin,
    pub(crate) edits: Vec<Edit>,
}

/// Scripts that are being written to a chunk.
#[derive(Debug, Default)]
pub(crate) struct ScriptWriter {
    fields: [Vec<u8>; FIELDS],
    /// The end of the last piece that was copied from the pool. The next piece often begins near it.
    pool_place: u32,
}

impl ScriptWriter {
    pub(crate) fn push(&mut self, script: &Script) {
        let origin = match script.origin {
            Origin::Empty => 0,
            Origin::Erased => 1,
            Origin::Parent(distance) => u64::from(distance) + 1,
        };
        varint::put(&mut self.fields[ORIGIN], origin);
        varint::put(&mut self.fields[EDITS], script.edits.len() as u64);
        for edit in &script.edits {
            varint::put(&mut self.fields[COPY], edit.copy.into());
            varint::put(&mut self.fields[LITERAL], edit.literal.into());
            varint::put(&mut self.fields[SKIP], zigzag(edit.skip.into()));
            varint::put(&mut self.fields[POOL_LENGTH], edit.pool_len.into());
            if edit.pool_len > 0 {
                let moved = i64::from(edit.pool_at) - i64::from(self.pool_place);
                varint::put(&mut self.fields[POOL_PLACE], zigzag(moved));
                self.pool_place = edit.pool_at + edit.pool_len;
            }
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.fields.iter().map(Vec::len).sum()
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size() + 3 * FIELDS);
        for field in &self.fields {
            varint::put(&mut out, field.len() as u64);
        }
        out.extend(self.fields.concat());
        out
    }
}

/// A script that was read from a chunk.
#[derive(Debug, Clone)]
pub(crate) struct StoredScript {
    pub(crate) origin: Origin,
    edits: Range<u32>,
    /// The position of the script's first literal in the pool.
    pub(crate) literals_at: u32,
}

/// The scripts of a chunk.
#[derive(Debug)]
pub(crate) struct Scripts {
    scripts: Vec<StoredScript>,
    edits: Vec<Edit>,
}

impl Scripts {
    /// Decodes the scripts of `count` entries, whose literals fill the pool of `sources`. `None` if they are damaged.
    pub(crate) fn read(bytes: &[u8], count: usize, sources: &Sources) -> Option<Self> {
        let mut input = Input(bytes);
        let mut lengths = [0; FIELDS];
        for length in &mut lengths {
            *length = input.size()?;
        }
        let mut fields = [Input(&[]); FIELDS];
        for (field, length) in fields.iter_mut().zip(lengths) {
            *field = Input(input.take(length)?);
        }
        input.end()?;

        // An entry takes at least two bytes of the fields, and an edit takes four. So the size of the vectors
        // is bounded by the number of bytes, whatever counts these bytes declare.
        let mut scripts = Vec::with_capacity(count.min(bytes.len()));
        let mut edits = Vec::with_capacity(lengths[COPY].min(bytes.len()));
        let pool = &sources.pool;
        let mut literals_at = pool.start;
        let mut pool_place = 0;
        for index in sources.first..sources.first + count {
            let origin = match fields[ORIGIN].small()? {
                0 => Origin::Empty,
                1 => Origin::Erased,
                distance => Origin::Parent(distance - 1),
            };
            if let Origin::Parent(distance) = origin
                && !sources.has_parent(index, distance)
            {
                return None;
            }
            let (first, its_literals) = (edits.len() as u32, literals_at);
            for _ in 0..fields[EDITS].small()? {
                let edit = read_edit(&mut fields, &mut pool_place)?;
                literals_at = literals_at.checked_add(edit.literal).filter(|end| *end <= pool.end)?;
                if edit.pool_len > 0 && !sources.has_literals(edit.pool_at, edit.pool_len, literals_at) {
                    return None;
                }
                edits.push(edit);
            }
            scripts.push(StoredScript {
                origin,
                edits: first..edits.len() as u32,
                literals_at: its_literals,
            });
        }
        fields.iter().try_for_each(|field| field.end())?;
        (literals_at == pool.end).then_some(Self { scripts, edits })
    }

    pub(crate) fn get(&self, index: usize) -> &StoredScript {
        &self.scripts[index]
    }

    pub(crate) fn edits(&self, script: &StoredScript) -> &[Edit] {
        &self.edits[script.edits.start as usize..script.edits.end as usize]
    }

    /// The approximate use of memory, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.scripts.capacity() * size_of::<StoredScript>() + self.edits.capacity() * size_of::<Edit>()
    }
}

fn read_edit(fields: &mut [Input<'_>; FIELDS], pool_place: &mut u32) -> Option<Edit> {
    let mut edit = Edit {
        copy: fields[COPY].small()?,
        literal: fields[LITERAL].small()?,
        skip: i32::try_from(unzigzag(fields[SKIP].number()?)).ok()?,
        pool_len: fields[POOL_LENGTH].small()?,
        pool_at: 0,
    };
    if edit.pool_len > 0 {
        let moved = unzigzag(fields[POOL_PLACE].number()?);
        edit.pool_at = u32::try_from(i64::from(*pool_place).checked_add(moved)?).ok()?;
        *pool_place = edit.pool_at.checked_add(edit.pool_len)?;
    }
    Some(edit)
}
