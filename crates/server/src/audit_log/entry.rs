//! The entries of the audit log, as JSON lines.

use std::{io, net::IpAddr};

use rashomon_clock::{Timestamp, rfc3339};
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

/// The entry of a request in the audit log. It has neither the body of the request nor the text of a token.
///
/// The caller limits the lengths of the texts, and removes secrets from [`Self::path`].
#[derive(Debug, Clone, Serialize)]
pub struct Entry<'a> {
    /// When the request arrived.
    #[serde(serialize_with = "micros")]
    pub time: Timestamp,
    /// The id of the request, which is also in its answer and in the log.
    pub request_id: &'a str,
    /// The name of the token that the client sent; `None` if the client sent no valid token.
    pub token: Option<&'a str>,
    /// The address of the client; `None` if it is unknown.
    pub address: Option<IpAddr>,
    /// The method.
    pub method: &'a str,
    /// The path and the query.
    pub path: &'a str,
    /// The status of the answer; `None` if the client was gone before there was an answer.
    pub status: Option<u16>,
    /// The state of the write; `None` if the request has not reached the store as a write.
    pub write: Option<WriteState>,
    /// How many bytes of the body were received.
    pub bytes: u64,
    /// The time from the arrival of the request to the end of its write, or to its answer if that was later.
    pub microseconds: u64,
}

/// The state of a write, as far as the server knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteState {
    /// The write was begun, and ended without a result. It may be stored.
    Begun,
    /// The write is stored.
    Done,
    /// The write was refused or failed. A part of an import may be stored. If the store did not answer, the
    /// write may be stored.
    Failed,
}

impl Entry<'_> {
    /// The entry as a line of JSON. All characters are printable ASCII, except the newline at the end.
    pub(crate) fn to_line(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(512);
        let mut serializer = serde_json::Serializer::with_formatter(&mut line, PrintableAscii);
        self.serialize(&mut serializer).expect("texts and numbers can be written to memory as JSON");
        line.push(b'\n');
        line
    }
}

fn micros<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339::format_micros(*time))
}

/// Escapes everything in texts that is not printable ASCII. Programs differ in which other characters they take
/// for the end of a line (such as U+2028) or for a command to the terminal (such as U+009B).
struct PrintableAscii;

impl Formatter for PrintableAscii {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|letter: char| !matches!(letter, ' '..='~')) {
            let (printable, special) = rest.split_at(at);
            writer.write_all(printable.as_bytes())?;
            let mut letters = special.chars();
            let mut units = [0; 2];
            for unit in letters.next().map_or(&[][..], |letter| letter.encode_utf16(&mut units)) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = letters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn entry<'a>() -> Entry<'a> {
        Entry {
            time: Timestamp::from_micros(1_704_067_200_000_000),
            request_id: "00000007-0000000000000001",
            token: None,
            address: None,
            method: "POST",
            path: "/v1/enwiki/page/A?rev/",
            status: None,
            write: None,
            bytes: 0,
            microseconds: 0,
        }
    }

    #[test]
    fn line_has_all_fields_in_a_fixed_order() {
        let full = Entry {
            token: Some("t1"),
            address: Some(Ipv4Addr::new(192, 0, 2, 1).into()),
            status: Some(201),
            write: Some(WriteState::Done),
            bytes: 13,
            microseconds: 250,
            ..entry()
        };
        assert_eq!(
            String::from_utf8(full.to_line()).unwrap(),
            "{\"time\":\"2024-01-01T00:00:00.000000Z\",\"request_id\":\"00000007-0000000000000001\",\
             \"token\":\"t1\",\"address\":\"192.0.2.1\",\"method\":\"POST\",\
             \"path\":\"/v1/enwiki/page/A?rev/\",\"status\":201,\"write\":\"done\",\"bytes\":13,\
             \"microseconds\":250}\n"
        );
        let line = String::from_utf8(entry().to_line()).unwrap();
        for absent in ["token", "address", "status", "write"] {
            assert!(line.contains(&format!("\"{absent}\":null")), "{line}");
        }
    }

    #[test]
    fn line_is_printable_ascii_and_keeps_every_character() {
        let path = "/\n\r\t\0\u{1b}[2J\u{7f}\u{85}\u{9b}\u{2028}é𝄞\"\\{}/end";
        let line = Entry { path, ..entry() }.to_line();
        let (end, text) = line.split_last().unwrap();
        assert_eq!(*end, b'\n');
        assert!(text.iter().all(|byte| (b' '..=b'~').contains(byte)), "{}", String::from_utf8_lossy(text));
        let parsed: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(parsed["path"], path);
    }
}
