//! Damages the write-ahead log beside the SQLite file.

use std::sync::Arc;

use fastrand::Rng;

use super::{DamageTarget, Kind, pages::flip};
use crate::damage::{
    base::Files,
    wal::{FRAME_BYTES, HEADER_BYTES, commit_ends},
};

/// The maximum number of bits that are flipped at once.
const MAX_FLIPS: usize = 4;

impl DamageTarget<'_> {
    pub(super) fn damage_log(&self, kind: Kind, random: &mut Rng) -> Option<(String, Files)> {
        let log = self.victim.files.log.as_ref()?;
        // SQLite does not read the log after the last commit.
        let end = *commit_ends(log).last()?;
        let mut damaged = log.to_vec();
        let what = match kind {
            Kind::LostLog => {
                let files = Files { file: Arc::clone(&self.victim.files.file), log: None };
                return Some(("the log is deleted".to_owned(), files));
            }
            Kind::CutLog => {
                let at = match random.bool() {
                    true => HEADER_BYTES + random.usize(..(end - HEADER_BYTES) / FRAME_BYTES) * FRAME_BYTES,
                    false => random.usize(..end),
                };
                damaged.truncate(at);
                format!("{at} of {end} bytes are left")
            }
            Kind::FlippedLog => {
                let count = random.usize(1..=MAX_FLIPS);
                if random.u8(..4) == 0 {
                    flip_header_bit(&mut damaged[..end], random)
                } else {
                    flip(&mut damaged[..end], count, random)
                }
            }
            Kind::ZeroedLog => {
                let frame = HEADER_BYTES + random.usize(..(end - HEADER_BYTES) / FRAME_BYTES) * FRAME_BYTES;
                damaged[frame..frame + FRAME_BYTES].fill(0);
                format!("the frame at {frame} of {end} zeroed")
            }
            Kind::OlderLog => {
                let with_log: Vec<_> =
                    self.victim.older.iter().filter_map(|files| files.log.as_ref()).collect();
                damaged = with_log.get(random.usize(..with_log.len().max(1)))?.to_vec();
                "an earlier log of the store".to_owned()
            }
            Kind::OtherLog => {
                let others = self.bases.iter().enumerate().filter(|(number, _)| *number != self.base);
                let logs: Vec<_> = others
                    .flat_map(|(_, base)| base.victims.iter().filter_map(|victim| victim.files.log.as_ref()))
                    .collect();
                damaged = logs.get(random.usize(..logs.len().max(1)))?.to_vec();
                "a log of another store".to_owned()
            }
            _ => return None,
        };
        Some((what, Files { file: Arc::clone(&self.victim.files.file), log: Some(Arc::new(damaged)) }))
    }
}

/// Flips a bit of the header of the log or of a frame.
fn flip_header_bit(log: &mut [u8], random: &mut Rng) -> String {
    let frames = (log.len() - HEADER_BYTES) / FRAME_BYTES;
    let start = match random.usize(..=frames) {
        0 => 0,
        frame => HEADER_BYTES + (frame - 1) * FRAME_BYTES,
    };
    let (at, bit) = (start + random.usize(..24), random.u8(..8));
    log[at] ^= 1 << bit;
    format!("byte and bit {at}.{bit}, of a header")
}
