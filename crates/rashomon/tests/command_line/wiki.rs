//! Small dumps for the tests.

use std::fmt::Write as _;

/// A dump of one page whose revisions have these numbers and texts.
pub(crate) fn dump(title: &str, revisions: &[(&str, &str)]) -> String {
    let id = revisions[0].0;
    let mut page = format!("  <page>\n    <title>{title}</title>\n    <ns>0</ns>\n    <id>{id}</id>\n");
    for (second, (id, text)) in revisions.iter().enumerate() {
        let _ = write!(
            page,
            "    <revision>\n      <id>{id}</id>\n      <timestamp>2020-01-01T00:{:02}:{:02}Z</timestamp>\n      \
             <contributor><username>Ann</username><id>7</id></contributor>\n      <model>wikitext</model>\n      \
             <format>text/x-wiki</format>\n      <text xml:space=\"preserve\">{text}</text>\n    </revision>\n",
            second / 60,
            second % 60,
        );
    }
    wrapped(&format!("{page}  </page>\n"))
}

/// A dump of this many pages with one revision each.
pub(crate) fn pages(count: u32) -> String {
    let mut pages = String::new();
    for page in 1..=count {
        let _ = write!(
            pages,
            "<page><title>Page {page}</title><ns>0</ns><id>{page}</id><revision><id>{page}</id>\
             <timestamp>2020-01-01T00:00:00Z</timestamp><contributor><username>Ann</username></contributor>\
             <model>wikitext</model><format>text/x-wiki</format>\
             <text xml:space=\"preserve\">the text of page {page}</text></revision></page>",
        );
    }
    wrapped(&pages)
}

/// Wraps pages in the root element of a dump.
fn wrapped(pages: &str) -> String {
    format!(
        "<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.11/\" version=\"0.11\" xml:lang=\"en\">\n{pages}</mediawiki>\n"
    )
}

/// A dump that takes some time to read and write: a page with many revisions that do not compress.
pub(crate) fn large_dump(revisions: u64, bytes: usize) -> String {
    let texts: Vec<(String, String)> =
        (1..=revisions).map(|rev| (rev.to_string(), noise(rev, bytes))).collect();
    let revisions: Vec<(&str, &str)> =
        texts.iter().map(|(rev, text)| (rev.as_str(), text.as_str())).collect();
    dump("Noise", &revisions)
}

/// Random letters.
fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    };
    (0..bytes).map(letter).collect()
}
