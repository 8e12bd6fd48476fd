//! Reads a history and prints the speed: `cargo run --release --example read-history FILE`.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // Command-line programs print.

use std::fs::File;

use rashomon_clock::{Clock, SystemClock};
use rashomon_dumps::{Event, HistoryReader, ReadLimits, Source, compression};

fn main() {
    let path = std::env::args().nth(1).expect("the name of a file");
    let clock = SystemClock::new();
    let source = Source::file(File::open(path).unwrap()).unwrap();
    let mut plain = Vec::new();
    compression::read(source, &Default::default(), |reader, _| reader.read_to_end(&mut plain))
        .unwrap()
        .unwrap();
    let unpacked = clock.monotonic();

    let mut reader = HistoryReader::new(plain.as_slice(), ReadLimits::default()).unwrap();
    let (mut revisions, mut bytes) = (0, 0);
    while let Some(event) = reader.next().unwrap() {
        if let Event::Revision(_, revision) = event {
            revisions += 1;
            bytes += revision.properties.iter().map(|property| property.body.len()).sum::<usize>();
        }
    }
    let seconds = (clock.monotonic() - unpacked).as_secs_f64();
    let speed = plain.len() as f64 / seconds / 1e6;
    println!(
        "{revisions} revisions, {bytes} bytes of text; unpacked in {unpacked:.2?}, parsed in {seconds:.3} s: {speed:.0} MB/s"
    );
}
