//! `blocks`: packs real histories in compression blocks, and in other formats for comparison.

mod git;
mod others;
pub(crate) mod sets;
mod store;

use std::{collections::BTreeMap, fs::File, io, path::PathBuf};

use anyhow::{Result, ensure};
use fastrand::Rng;
use rashomon_blocks::{Block, BlockBuilder, Codec, Column, Limits, Settings};
use rashomon_clock::Clock;

use super::report::Report;
use sets::{Set, Version, columns};

/// The size from which texts are measured separately, because their reads have another speed.
const LARGE: usize = 50 << 10;
/// The number of random reads in each run.
const READS: usize = 3_000;

/// The histories to measure, and what to compare them with.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure these sets: `ovirt-wiki`, `documents`, `renders` [default: all].
    #[arg(value_parser = ["ovirt-wiki", "documents", "renders"])]
    sets: Vec<String>,
    /// Measure only blocks, without other formats.
    #[arg(long)]
    alone: bool,
    /// Measure only the sizes of the parts of the blocks in the SQLite store in this folder.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["sets", "alone"])]
    store: Option<PathBuf>,
}

/// The way in which the pages of a set are put into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// Pages share blocks.
    Shared,
    /// Each page has blocks of its own.
    Separate,
}

pub(crate) fn run(options: &Options, runs: usize, clock: &dyn Clock) -> Result<Report> {
    if let Some(folder) = &options.store {
        let mut report = Report::new(
            "blocks",
            "The sizes of the parts of all blocks of a store, in per cent of the bodies in the blocks",
        );
        store::measure(folder, &mut report)?;
        return Ok(report);
    }
    let mut report = Report::new(
        "blocks",
        format!(
            "Whole histories are packed into compression blocks, in the order of titles, with the default settings. \
             Sizes are in per cent of the texts. Random reads: for each of {READS} random texts, a block in memory is \
             opened and its hash compared, and the text is read; \"large\" are texts of {} KiB and more. Sequential: \
             on one core, every block is opened, and every text decoded and compared with its checksum; and the set's \
             own file is unpacked with zstd. Memory: the peak of the resident memory while blocks are made, less the \
             resident memory before",
            LARGE >> 10
        ),
    );
    for name in ["ovirt-wiki", "documents", "renders"] {
        if !options.sets.is_empty() && !options.sets.iter().any(|set| set == name) {
            continue;
        }
        let set = Set::load(name)?;
        eprintln!("{name}: {} bytes of text", set.raw());
        for _ in 0..runs {
            measure(&set, &mut report, clock)?;
        }
        sizes(&set, &mut report)?;
        if !options.alone {
            pack_in_other_formats(&set, &mut report)?;
        }
    }
    Ok(report)
}

/// Packs the texts of a set in the other formats.
pub(crate) fn pack_in_other_formats(set: &Set, report: &mut Report) -> Result<()> {
    for (other, pack) in others::PACKERS {
        eprintln!("{}: {other}", set.name);
        report.add(&format!("{}: {other}", set.name), "%", percent(pack(set)?, set));
    }
    report.add(&format!("{}: git, blobs alone", set.name), "%", percent(git::pack(set)?, set));
    Ok(())
}

/// Measures the sizes, which are the same in every run.
fn sizes(set: &Set, report: &mut Report) -> Result<()> {
    let mut add = |what: &str, size: usize| {
        report.add(&format!("{}: {what}", set.name), "%", percent(size, set));
    };
    let total = |blocks: &[Vec<u8>]| blocks.iter().map(Vec::len).sum();
    add("blocks, each page on its own", total(&pack(set, Packing::Separate, Settings::default(), &[])?));
    add(
        "blocks with all that is known of revisions",
        total(&pack(set, Packing::Shared, Settings::default(), &columns())?),
    );
    let blocks = pack(set, Packing::Shared, Settings::default(), &[])?;
    let mut frames = 0;
    let mut parts: BTreeMap<String, usize> = BTreeMap::new();
    for block in &blocks {
        let block = Block::open(block, Limits::default())?;
        frames += usize::from(block.codec() == Codec::Frames);
        for (name, stored, _) in block.sizes() {
            *parts.entry(name).or_default() += stored;
        }
    }
    for (name, size) in parts {
        add(&format!("blocks, of which {name}"), size);
    }
    report.add(&format!("{}: blocks", set.name), "", blocks.len() as f64);
    report.add(&format!("{}: of them frames", set.name), "", frames as f64);
    Ok(())
}

/// Measures the speeds, the memory and the size of shared blocks, once.
fn measure(set: &Set, report: &mut Report, clock: &dyn Clock) -> Result<()> {
    let mut add = |what: &str, unit, value| report.add(&format!("{}: {what}", set.name), unit, value);
    let megabytes = set.raw() as f64 / 1e6;

    let before = memory::reset()?;
    let started = clock.monotonic();
    let blocks = pack(set, Packing::Shared, Settings::default(), &[])?;
    let packed = (clock.monotonic() - started).as_secs_f64();
    add("memory to make blocks", "MiB", (memory::peak()?.saturating_sub(before)) as f64 / 1024.0);
    add("blocks, small pages together", "%", percent(blocks.iter().map(Vec::len).sum(), set));
    add("largest block", "KiB", blocks.iter().map(Vec::len).max().unwrap_or(0) as f64 / 1024.0);
    add("compressed", "MB/s", megabytes / packed);

    let started = clock.monotonic();
    let mut read = 0;
    for block in &blocks {
        for content in Block::open(block, Limits::default())?.iter() {
            read += content?.bytes.map_or(0, |bytes| bytes.len());
        }
    }
    add("sequential", "MB/s", megabytes / (clock.monotonic() - started).as_secs_f64());
    ensure!(read == set.raw(), "the blocks have {read} bytes of text, and {} were packed", set.raw());
    let (bytes, seconds) = unpack_files(set.name, clock)?;
    add("zstd of the whole set, unpacked", "MB/s", bytes as f64 / 1e6 / seconds);
    random_reads(set, &blocks, clock, &mut add)
}

fn random_reads(
    set: &Set,
    blocks: &[Vec<u8>],
    clock: &dyn Clock,
    add: &mut dyn FnMut(&str, &'static str, f64),
) -> Result<()> {
    let texts: Vec<&[u8]> = set.texts().collect();
    let lasts: Vec<u64> = blocks.iter().map(|block| last_ordinal(block)).collect::<Result<_>>()?;
    let mut rng = Rng::with_seed(1);
    let (mut small, mut large) = (Vec::new(), Vec::new());
    for _ in 0..READS {
        let ordinal = rng.usize(..texts.len());
        let block = &blocks[lasts.partition_point(|last| *last < ordinal as u64)];
        let started = clock.monotonic();
        let text = Block::open(block, Limits::default())?.get(ordinal as u64)?;
        let took = (clock.monotonic() - started).as_secs_f64() * 1e3;
        ensure!(text == texts[ordinal], "entry {ordinal} has another text than was packed");
        if text.len() < LARGE { small.push(took) } else { large.push(took) }
    }
    for (name, mut times) in [("random read", small), ("random read, large", large)] {
        times.sort_by(f64::total_cmp);
        for (label, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            if let Some(time) = times.get((times.len() as f64 * quantile) as usize) {
                add(&format!("{name}, {label}"), "ms", *time);
            }
        }
    }
    Ok(())
}

fn last_ordinal(block: &[u8]) -> Result<u64> {
    Ok(Block::open(block, Limits::default())?.ordinals().map_or(0, |(_, last)| last))
}

/// Packs a set into blocks. The ordinals of the contents are the positions of the texts.
fn pack(set: &Set, packing: Packing, settings: Settings, columns: &[Column]) -> Result<Vec<Vec<u8>>> {
    let mut builder = BlockBuilder::new(settings, columns.to_vec(), 0)?;
    let mut blocks = Vec::new();
    for page in &set.pages {
        if packing == Packing::Separate && !builder.is_empty() {
            blocks.push(builder.finish()?);
        }
        for (place, version) in page.versions.iter().enumerate() {
            if builder.should_seal() {
                blocks.push(builder.finish()?);
            }
            builder.may_begin_group(place == 0)?;
            push(&mut builder, &page.title, version)?;
        }
    }
    if !builder.is_empty() {
        blocks.push(builder.finish()?);
    }
    Ok(blocks)
}

/// Adds a version. If the builder has columns, adds the version's metadata, too.
fn push(builder: &mut BlockBuilder, title: &str, version: &Version) -> Result<()> {
    let values = if builder.columns().is_empty() { &[] } else { version.values.as_slice() };
    builder.push(title.as_bytes(), &version.text, values)?;
    Ok(())
}

/// Unpacks the files of a set. Returns the number of bytes and the duration in seconds.
pub(crate) fn unpack_files(name: &str, clock: &dyn Clock) -> Result<(u64, f64)> {
    let data = xtask::test_data();
    let files = match name {
        "renders" => {
            let files = std::fs::read_dir(data.join(name))?.map(|entry| Ok(entry?.path()));
            files.collect::<Result<Vec<_>>>()?
        }
        _ => vec![data.join(format!("{name}.xml.zst"))],
    };
    let (mut bytes, mut seconds) = (0, 0.0);
    for file in files {
        let mut unpacked = zstd::Decoder::new(File::open(file)?)?;
        unpacked.window_log_max(31)?;
        let started = clock.monotonic();
        bytes += io::copy(&mut unpacked, &mut io::sink())?;
        seconds += (clock.monotonic() - started).as_secs_f64();
    }
    Ok((bytes, seconds))
}

fn percent(size: usize, set: &Set) -> f64 {
    size as f64 * 100.0 / set.raw() as f64
}

/// The resident memory of this process, in KiB.
mod memory {
    use std::fs;

    use anyhow::{Context, Result};

    /// Resets the peak, and returns the current size.
    pub(super) fn reset() -> Result<u64> {
        fs::write("/proc/self/clear_refs", "5").context("cannot reset the peak of memory")?;
        field("VmRSS:")
    }

    pub(super) fn peak() -> Result<u64> {
        field("VmHWM:")
    }

    fn field(name: &str) -> Result<u64> {
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let line = line.with_context(|| format!("/proc/self/status has no line {name}"))?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}
