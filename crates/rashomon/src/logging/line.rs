//! Limits the length of each log line, however long its fields are, and escapes characters that could control a
//! terminal.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use crate::configuration::LogFormat;
use rashomon_pages::{Shown, shorten, visible};
use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

/// The maximum size of a log line in bytes.
pub(super) const MAX_LINE_BYTES: usize = 16 << 10;

/// The maximum size of each string, in bytes, if a JSON line is too long.
const MAX_STRING_BYTES: usize = 1 << 10;

/// Creates writers that shorten each line to [`MAX_LINE_BYTES`].
#[derive(Debug)]
pub(super) struct BoundedLines<M> {
    pub(super) inner: M,
    pub(super) format: LogFormat,
    /// Whether lines of text have sequences that set colours.
    pub(super) is_coloured: bool,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for BoundedLines<M> {
    type Writer = LineWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter { inner: self.inner.make_writer(), format: self.format, is_coloured: self.is_coloured }
    }
}

/// A writer for which every call writes one line.
#[derive(Debug)]
pub(super) struct LineWriter<W> {
    inner: W,
    format: LogFormat,
    is_coloured: bool,
}

impl<W: Write> Write for LineWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let line_of_text = shorten_line(line, self.format);
        let (text, end) = match line_of_text.strip_suffix(b"\n") {
            Some(text) => (text, "\n"),
            None => (&*line_of_text, ""),
        };
        let text = String::from_utf8_lossy(text);
        let shown = match self.format {
            LogFormat::Json => Shown::AsJson,
            LogFormat::Text if self.is_coloured => Shown::InColouredLine,
            LogFormat::Text => Shown::InLine,
        };
        self.inner.write_all((visible(&text, shown) + end).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Shortens a line that is too long. A JSON line stays valid JSON. If shorter strings are not enough, a message takes
/// the place of its other fields.
fn shorten_line(line: &[u8], format: LogFormat) -> Cow<'_, [u8]> {
    if line.len() <= MAX_LINE_BYTES {
        return Cow::Borrowed(line);
    }
    let shortened = match format {
        LogFormat::Text => shorten(String::from_utf8_lossy(line), MAX_LINE_BYTES),
        LogFormat::Json => shorten_json(line) + "\n",
    };
    Cow::Owned(shortened.into_bytes())
}

fn shorten_json(line: &[u8]) -> String {
    let mut event: Value = serde_json::from_slice(line).unwrap_or_default();
    shorten_strings(&mut event);
    let shortened = event.to_string();
    if shortened.len() < MAX_LINE_BYTES {
        return shortened;
    }
    let message = format!("log line left out: it has {} bytes", line.len());
    let field = |name: &str| event.get(name).filter(|value| value.is_string()).cloned().unwrap_or_default();
    serde_json::json!({ "timestamp": field("timestamp"), "level": field("level"), "message": message })
        .to_string()
}

fn shorten_strings(value: &mut Value) {
    match value {
        Value::String(text) => *text = shorten(&*text, MAX_STRING_BYTES),
        Value::Array(values) => values.iter_mut().for_each(shorten_strings),
        Value::Object(fields) => fields.values_mut().for_each(shorten_strings),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_control_terminals_are_escaped() {
        let written = |format, line: &str, is_coloured| {
            let mut writer = LineWriter { inner: Vec::new(), format, is_coloured };
            writer.write_all(line.as_bytes()).unwrap();
            String::from_utf8(writer.inner).unwrap()
        };
        let line = "INFO url=/\u{9b}2J\u{202e}\u{1b}[31m\nERROR forged\n";
        let escaped = "INFO url=/\\u{9b}2J\\u{202e}\\u{1b}[31m\\nERROR forged\n";
        assert_eq!(written(LogFormat::Text, line, false), escaped);
        assert!(written(LogFormat::Text, line, true).contains("\\u{202e}\u{1b}[31m\\nERROR"));
        let json = "{\"url\":\"/\u{9b}\u{202e}\"}\n";
        assert_eq!(written(LogFormat::Json, json, false), "{\"url\":\"/\\u009b\\u202e\"}\n");
    }

    #[test]
    fn long_line_of_text_is_shortened_and_keeps_its_end() {
        let line = format!("INFO request url={} status=400\n", "x".repeat(1 << 20));
        let shortened = shorten_line(line.as_bytes(), LogFormat::Text).into_owned();
        assert!(shortened.len() <= MAX_LINE_BYTES, "{}", shortened.len());
        assert!(shortened.starts_with(b"INFO request") && shortened.ends_with(b" status=400\n"));
        assert_eq!(&*shorten_line(b"short\n", LogFormat::Text), b"short\n");
    }

    #[test]
    fn long_line_of_json_stays_json() {
        let line = format!(r#"{{"level":"INFO","detail":"{}","status":400}}"#, "x".repeat(1 << 20)) + "\n";
        let shortened = shorten_line(line.as_bytes(), LogFormat::Json).into_owned();
        assert!(shortened.len() <= MAX_LINE_BYTES && shortened.ends_with(b"}\n"), "{}", shortened.len());
        let event: Value = serde_json::from_slice(&shortened).unwrap();
        assert_eq!((&event["level"], &event["status"]), (&Value::from("INFO"), &Value::from(400)));
    }

    #[test]
    fn json_line_of_very_many_fields_is_replaced_by_a_message() {
        let fields: Vec<String> = (0..5000).map(|field| format!("\"field{field}\":true")).collect();
        let line = format!(r#"{{"level":"WARN",{}}}"#, fields.join(","));
        let event: Value = serde_json::from_slice(&shorten_line(line.as_bytes(), LogFormat::Json)).unwrap();
        assert_eq!(event["level"], "WARN");
        assert!(event["message"].as_str().unwrap().contains("left out"), "{event}");
    }
}
