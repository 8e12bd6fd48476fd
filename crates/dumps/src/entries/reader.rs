//! Reads the lines of an export on a thread of its own.

use std::io::{self, BufRead, BufReader, Read};

use crate::{DecompressionLimits, Source, compression, describe_other_format};
use tokio::sync::mpsc;

use crate::entries::line::{Line, MAX_LINE_BYTES};

/// The maximum number of lines that were read and wait to be stored.
const MAX_WAITING_LINES: usize = 4;

/// The number of a line, counted from 1, and the line, or the reason why it cannot be read.
pub(crate) type NumberedLine = (u64, Result<Line, String>);

/// Starts to read the lines. The channel ends after the last line, or after an error.
pub(crate) fn start(source: Source, limits: DecompressionLimits) -> mpsc::Receiver<NumberedLine> {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_LINES);
    tokio::task::spawn_blocking(move || {
        let mut number = 0;
        let read = compression::read(source, &limits, |input, _| read_lines(input, &mut number, &sender));
        if let Err(error) = read.unwrap_or_else(Err) {
            // The receiver is gone if the import has ended.
            let _ = sender.blocking_send((number + 1, Err(describe(&error))));
        }
    });
    receiver
}

/// Describes an error of the input.
pub(crate) fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the input is truncated".to_owned(),
        _ => format!("cannot read the rest of the input: {error}"),
    }
}

fn read_lines(input: &mut dyn Read, number: &mut u64, sender: &mpsc::Sender<NumberedLine>) -> io::Result<()> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let mut text = Vec::new();
    loop {
        text.clear();
        let count = (&mut input).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut text)?;
        if count == 0 {
            return Ok(());
        }
        *number += 1;
        let line = parse_line(*number, &text);
        let is_last = line.is_err();
        if sender.blocking_send((*number, line)).is_err() || is_last {
            return Ok(());
        }
    }
}

/// Reads only the first line. `None` if the input is empty.
pub(crate) fn first_line(
    source: Source,
    limits: &DecompressionLimits,
) -> io::Result<Option<Result<Line, String>>> {
    compression::read(source, limits, |input, _| {
        let mut text = Vec::new();
        BufReader::new(input).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut text)?;
        Ok(Some(text).filter(|text| !text.is_empty()).map(|text| parse_line(1, &text)))
    })?
}

fn parse_line(number: u64, text: &[u8]) -> Result<Line, String> {
    let line = if text.last() == Some(&b'\n') {
        serde_json::from_slice(text).map_err(|error| {
            let reason = if error.is_eof() { "it ends too early".to_owned() } else { error.to_string() };
            format!("this is no line of an export of entries: {reason}")
        })
    } else if text.len() > MAX_LINE_BYTES {
        Err(format!(
            "the line has more than {MAX_LINE_BYTES} bytes, more than any line of an export of entries"
        ))
    } else {
        Err("the input is truncated: the line has no end".to_owned())
    };
    line.map_err(|problem| describe_other_format(text).filter(|_| number == 1).unwrap_or(problem))
}
