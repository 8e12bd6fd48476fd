//! The bytes that each stream takes in a block.

use crate::{
    block::{Block, stream_names},
    chunks::Chunks,
    delta::reader::read_scripts,
    directory::{Codec, SCRIPTS, TEXTS},
    error::{Damage, Error},
    frames::Frame,
};

impl Block<'_> {
    /// The names of [`Self::streams`], each with the number of stored bytes that its contents take.
    ///
    /// The stored texts of a chunk are divided in proportion to the literals that each content added,
    /// although other contents may use these literals, too. The stored scripts of a chunk are divided in
    /// proportion to the number of their edits plus one. The other parts of the block do not count.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn stored_by_stream(&self) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        let (chunks, all) = (self.chunks(), self.all_entries()?);
        let streams: usize = all.iter().map(|entries| entries.new_streams.len()).sum();
        let mut stored = vec![0.0; streams];
        for (chunk, entries) in all.iter().enumerate() {
            let weights = self.weights(&chunks, chunk)?;
            for (section, weights) in [(TEXTS, &weights.texts), (SCRIPTS, &weights.scripts)] {
                let bytes = chunks.get(chunk).sections[section].stored as f64;
                let whole = weights.iter().sum::<usize>().max(1) as f64;
                for (stream, weight) in entries.streams.iter().zip(weights) {
                    stored[*stream as usize] += bytes * *weight as f64 / whole;
                }
            }
        }
        Ok(stream_names(&all).into_iter().zip(stored.into_iter().map(|bytes| bytes.round() as u64)).collect())
    }

    /// The names of [`Self::streams`], each with the number of bytes that its contents added to the literals.
    /// For frames, this is the number of bytes of the contents.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn literals_by_stream(&self) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        let (chunks, all) = (self.chunks(), self.all_entries()?);
        let mut literals = vec![0; all.iter().map(|entries| entries.new_streams.len()).sum()];
        for (chunk, entries) in all.iter().enumerate() {
            let weights = self.weights(&chunks, chunk)?;
            for (stream, weight) in entries.streams.iter().zip(weights.texts) {
                literals[*stream as usize] += weight as u64;
            }
        }
        Ok(stream_names(&all).into_iter().zip(literals).collect())
    }

    fn weights(&self, chunks: &Chunks<'_>, chunk: usize) -> Result<Weights, Error> {
        let mut weights = Weights::default();
        match self.codec() {
            Codec::PoolAndScripts => {
                let scripts = read_scripts(chunks, chunk)?;
                for place in 0..chunks.get(chunk).entries {
                    let edits = scripts.edits(scripts.get(place));
                    weights.texts.push(edits.iter().map(|edit| edit.literal as usize).sum());
                    weights.scripts.push(edits.len() + 1);
                }
            }
            Codec::Frames => {
                let frame = Frame::read(chunks, chunk)?;
                for place in 0..chunks.get(chunk).entries {
                    let text = frame.text(place).ok_or_else(|| Damage::of(chunk, SCRIPTS))?;
                    weights.texts.push(text.len());
                    weights.scripts.push(1);
                }
            }
        }
        Ok(weights)
    }
}

/// The weights by which the sections of a chunk are divided among its entries.
#[derive(Debug, Default)]
struct Weights {
    texts: Vec<usize>,
    scripts: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use crate::{Block, BlockBuilder, Codec, Limits, Settings};

    /// Builds a block of these contents, each given with its stream. Checks that the stored bytes of all
    /// streams add up to the stored bytes of texts and scripts, and returns the bytes of each stream.
    fn stored(codec: Codec, contents: &[(&str, Vec<u8>)]) -> Vec<u64> {
        let mut builder = BlockBuilder::new(Settings::default(), Vec::new(), 0).unwrap();
        for (stream, content) in contents {
            builder.push(stream.as_bytes(), content, &[]).unwrap();
        }
        let bytes = builder.finish().unwrap();
        let block = Block::open(&bytes, Limits::default()).unwrap();
        assert_eq!(block.codec(), codec);
        let literals: u64 = block.literals_by_stream().unwrap().into_iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(literals, block.sizes()[2].2 as u64);
        let streams: Vec<u64> =
            block.stored_by_stream().unwrap().into_iter().map(|(_, bytes)| bytes).collect();
        let whole: usize = block.sizes()[2..4].iter().map(|(_, stored, _)| stored).sum();
        assert!(streams.iter().sum::<u64>().abs_diff(whole as u64) <= 3, "{streams:?} of {whole}");
        streams
    }

    #[test]
    fn each_stream_is_charged_for_its_literals() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut noise = |bytes: usize| (0..bytes).map(|_| rng.alphanumeric() as u8).collect::<Vec<u8>>();
        let (long, short) = (noise(30_000), noise(10_000));
        let mut contents = Vec::new();
        for version in 0..40 {
            let more = noise(10);
            contents.push(("long", [&long[..], &more].concat()));
            if version % 4 == 0 {
                contents.push(("short", [&short[..], &more].concat()));
            }
        }
        contents.push(("same as long", long));
        let [long, short, same] = stored(Codec::PoolAndScripts, &contents)[..] else {
            panic!("three streams")
        };
        let ratio = long as f64 / short as f64;
        assert!((2.5..3.5).contains(&ratio), "{long} and {short}");
        assert!(same < 100, "its text was stored already: {same}");
    }

    #[test]
    fn streams_of_frames_are_charged_for_their_bytes() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut noise = |bytes: usize| (0..bytes).map(|_| rng.u8(..)).collect::<Vec<u8>>();
        let contents = [("long", 30_000), ("short", 10_000), ("long", 30_000)];
        let contents = contents.map(|(stream, bytes)| (stream, noise(bytes)));
        let streams = stored(Codec::Frames, &contents);
        assert!(streams[0].abs_diff(60_000) < 100 && streams[1].abs_diff(10_000) < 100, "{streams:?}");
    }
}
