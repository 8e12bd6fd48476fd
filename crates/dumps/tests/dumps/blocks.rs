//! Real histories in compression blocks: every revision can be read back with the SHA-1 of the export.
#![allow(clippy::unwrap_used)] // Tests: a panic names the line.

use std::{
    fs::File,
    io::{BufRead, BufReader},
};

use crate::wiki::data;
use rashomon_blocks::{Block, BlockBuilder, Limits, Settings};
use rashomon_dumps::{Event, HistoryReader, ReadLimits, Source, compression};
use sha1::{Digest, Sha1};

/// Fills blocks, and reads each block as soon as it is full.
struct Archive {
    builder: BlockBuilder,
    /// The SHA-1 of each content of the block.
    expected: Vec<Vec<u8>>,
    read: usize,
}

impl Archive {
    fn new() -> Self {
        // A low level of zstd saves time. The contents that are read back do not depend on it.
        let settings = Settings { level: 1, ..Settings::default() };
        Self { builder: BlockBuilder::new(settings, Vec::new(), 0).unwrap(), expected: Vec::new(), read: 0 }
    }

    fn push(&mut self, stream: &str, content: &[u8], sha1: Vec<u8>) {
        if self.builder.should_seal() {
            self.read_back();
        }
        self.builder.push(stream.as_bytes(), content, &[]).unwrap();
        self.expected.push(sha1);
    }

    fn read_back(&mut self) {
        let bytes = self.builder.finish().unwrap();
        let block = Block::open(&bytes, Limits::default()).unwrap();
        assert_eq!(block.len(), self.expected.len());
        for (content, sha1) in block.iter().zip(&self.expected) {
            let content = content.unwrap();
            assert_eq!(Sha1::digest(content.bytes.unwrap()).as_slice(), sha1, "entry {}", content.ordinal);
        }
        let last = block.ordinals().unwrap().1;
        assert_eq!(Sha1::digest(block.get(last).unwrap()).as_slice(), self.expected.last().unwrap());
        self.read += self.expected.len();
        self.expected.clear();
    }
}

/// The bytes of a SHA-1 in the notation of exports, base 36.
fn from_base_36(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    for digit in text.chars() {
        let mut carry = digit.to_digit(36).unwrap();
        for byte in bytes.iter_mut().rev() {
            carry += u32::from(*byte) * 36;
            *byte = carry as u8;
            carry >>= 8;
        }
    }
    bytes
}

fn assert_read_back(name: &str, revisions: usize) {
    let Some(path) = data(name) else { return };
    let mut archive = Archive::new();
    let source = Source::file(File::open(path).unwrap()).unwrap();
    compression::read(source, &Default::default(), |input, _| {
        let mut reader = HistoryReader::new(input, ReadLimits::default()).unwrap();
        while let Some(event) = reader.next().unwrap() {
            let Event::Revision(title, revision) = event else { continue };
            let [text] = &revision.properties[..] else { panic!("each revision has one text") };
            let export = &revision.record.export;
            let declared =
                export.main.as_ref().and_then(|main| main.sha1.as_deref()).or(export.sha1.as_deref());
            let sha1 = from_base_36(declared.expect("each revision comes with its SHA-1"));
            archive.push(title.as_str(), &text.body, sha1);
        }
    })
    .unwrap();
    archive.read_back();
    assert_eq!(archive.read, revisions, "{name}");
}

#[test]
fn whole_wiki_survives_blocks() {
    assert_read_back("ovirt-wiki.xml.zst", 16_251);
}

#[test]
fn long_histories_survive_blocks() {
    assert_read_back("documents.xml.zst", 9_744);
}

#[test]
fn renders_survive_blocks() {
    let Some(folder) = data("renders") else { return };
    let mut archive = Archive::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = zstd::Decoder::new(File::open(entry.unwrap().path()).unwrap()).unwrap();
        for line in BufReader::new(file).lines() {
            let render: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            let html = render["html"].as_str().unwrap().as_bytes();
            archive.push(render["title"].as_str().unwrap(), html, Sha1::digest(html).to_vec());
        }
    }
    archive.read_back();
    assert_eq!(archive.read, 2_416);
}
