//! Recognises files that are often taken for exports, and says what to do with them.

/// The number of bytes at the beginning of an input that are looked at.
pub(crate) const LOOK_BYTES: usize = 1024;

/// The offset and the value of the mark in the header of a tar archive.
const TAR_MARK: (usize, &[u8]) = (257, b"ustar");

/// The first bytes of files of other formats, and their names.
const ARCHIVES: [(&[u8], &str); 8] = [
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"PK\x07\x08", "a ZIP archive of several parts"),
    (b"Rar!", "a RAR archive"),
    (b"\x04\x22\x4d\x18", "compressed by lz4"),
    (b"\x1f\x9d", "compressed by compress (.Z)"),
    (b"LZIP", "compressed by lzip"),
    (b"!<arch>", "an ar archive"),
];

/// The beginnings of statements and comments in SQL dumps, in upper case.
const SQL: [&str; 12] = [
    "--",
    "/*!",
    "CREATE ",
    "DROP ",
    "INSERT ",
    "SET ",
    "USE ",
    "LOCK ",
    "BEGIN;",
    "BEGIN TRANSACTION",
    "PRAGMA ",
    "COPY ",
];

/// Returns what an input is that begins with these bytes, and what to do. `None` if it is not known. A kibibyte is
/// enough.
#[must_use]
pub fn describe_other_format(first: &[u8]) -> Option<String> {
    if let Some((_, name)) = ARCHIVES.iter().find(|(mark, _)| first.starts_with(mark)) {
        return Some(format!("the input is {name}: unpack it, and import the exports in it"));
    }
    if first.get(TAR_MARK.0..).is_some_and(|rest| rest.starts_with(TAR_MARK.1)) {
        let what = "the input is a tar archive: unpack it (tar -xf FILE), and import the exports in it";
        return Some(what.to_owned());
    }
    if first.starts_with(b"SQLite format 3\0") {
        let what = "the input is a SQLite database, not an export: name a store with --data, and export a wiki from \
                    its MediaWiki with maintenance/dumpBackup.php --full";
        return Some(what.to_owned());
    }
    let text = String::from_utf8_lossy(first).trim_start().to_ascii_uppercase();
    SQL.iter().any(|begin| text.starts_with(begin)).then(|| {
        "the input is an SQL dump of a database, and only exports can be imported: load it into the database of a \
         MediaWiki, and export the wiki with maintenance/dumpBackup.php --full; of Wikimedia's dumps, take the files \
         pages-meta-history*.xml"
            .to_owned()
    })
}

/// Whether an input that begins with these bytes is an export, in XML or as JSON lines.
pub(crate) fn looks_like_export(first: &[u8]) -> bool {
    let text = String::from_utf8_lossy(first);
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    if rest.starts_with('{') {
        let line: String = rest.chars().filter(|c| !c.is_whitespace()).take(128).collect();
        return line.contains("\"kind\":\"siteinfo\"");
    }
    loop {
        let end = match rest {
            _ if rest.starts_with("<?") => "?>",
            _ if rest.starts_with("<!--") => "-->",
            _ => break,
        };
        let Some((_, after)) = rest.split_once(end) else { return false };
        rest = after.trim_start();
    }
    ["<mediawiki", "<page"].into_iter().any(|tag| {
        let after = rest.strip_prefix(tag);
        after.is_some_and(|after| after.starts_with(|c: char| c.is_whitespace() || matches!(c, '>' | '/')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_told_from_other_files() {
        for export in [
            "<mediawiki xmlns=\"x\">",
            "\u{feff}<?xml version=\"1.0\"?>\n<!-- a --> <mediawiki>",
            "  <page>",
            "{\"kind\": \"siteinfo\", \"version\": 1}",
        ] {
            assert!(looks_like_export(export.as_bytes()), "{export}");
        }
        for other in ["", "<html>", "<!DOCTYPE html>", "<pages>", "{\"query\":{}}", "Title", "<?xml"] {
            assert!(!looks_like_export(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn known_formats_are_named_with_what_to_do() {
        let tar = [&[b'a'; 257][..], b"ustar\0", &[0; 300]].concat();
        for (first, name) in [
            (&b"PK\x03\x04\x14\0"[..], "ZIP"),
            (&tar, "tar archive"),
            (b"-- MySQL dump 10.13", "SQL dump"),
            (b"/*!40101 SET NAMES utf8 */;", "SQL dump"),
            (b"\n\nDROP TABLE IF EXISTS `page`;", "SQL dump"),
            (b"create table page (", "SQL dump"),
            (b"SQLite format 3\0\x10", "SQLite database"),
            (b"Rar!\x1a\x07", "RAR"),
        ] {
            let described = describe_other_format(first).unwrap();
            assert!(described.contains(name), "{described}");
        }
        for other in [&b""[..], b"hello", b"[1,2]", &[0x89, b'P', b'N', b'G']] {
            assert_eq!(describe_other_format(other), None, "{other:?}");
        }
    }
}
