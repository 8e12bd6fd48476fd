//! Bodies to write and to read. The bodies are generated from a seed, and compress as well as real bodies.

use fastrand::Rng;

/// The number of different bodies. With more bodies, the load generator's own cache misses would affect the
/// result.
const BODIES: usize = 64;
/// The size of an html body.
pub(crate) const HTML_SIZE: usize = 20 << 10;
/// The size of a data-parsoid body.
pub(crate) const DATA_PARSOID_SIZE: usize = 5 << 10;
/// The number of different words that a text draws from.
const WORDS: usize = 3_000;
/// The preference for the first words. With this value html compresses to a quarter, as real html does.
const WORD_SKEW: i32 = 8;
/// A placeholder that each body contains once. A stamp replaces the placeholder, so that the bodies of each write are
/// unique.
const STAMP: &[u8; 16] = b"stamp-goes-here!";

/// Bodies to choose from.
#[derive(Debug)]
pub(crate) struct Contents {
    html: Vec<Stamped>,
    data_parsoid: Vec<Stamped>,
}

impl Contents {
    /// Makes the bodies. The same seed gives the same bodies.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let words: Vec<String> = (0..WORDS).map(|_| word(&mut rng)).collect();
        let mut stamped = |make: fn(&mut Rng, &[String]) -> Vec<u8>| {
            (0..BODIES).map(|_| Stamped::new(make(&mut rng, &words))).collect()
        };
        Self { html: stamped(html), data_parsoid: stamped(data_parsoid) }
    }

    /// Makes bodies of the same sizes that compress to only about seven tenths: html and data-parsoid of one write
    /// together take 18 KB in the store.
    pub(crate) fn dense(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut stamped = |size: usize| (0..BODIES).map(|_| Stamped::new(dense(&mut rng, size))).collect();
        Self { html: stamped(HTML_SIZE), data_parsoid: stamped(DATA_PARSOID_SIZE) }
    }

    /// The html of the write with this number.
    pub(crate) fn html(&self, number: u64) -> Vec<u8> {
        let mut body = Vec::new();
        self.append_html(number, &mut body);
        body
    }

    /// The data-parsoid of the write with this number.
    pub(crate) fn data_parsoid(&self, number: u64) -> Vec<u8> {
        let mut body = Vec::new();
        self.append_data_parsoid(number, &mut body);
        body
    }

    pub(crate) fn append_html(&self, number: u64, out: &mut Vec<u8>) {
        self.html[number as usize % BODIES].append(number, out);
    }

    pub(crate) fn append_data_parsoid(&self, number: u64, out: &mut Vec<u8>) {
        self.data_parsoid[number as usize % BODIES].append(number, out);
    }
}

#[derive(Debug)]
struct Stamped {
    body: Vec<u8>,
    at: usize,
}

impl Stamped {
    fn new(body: Vec<u8>) -> Self {
        let at =
            body.windows(STAMP.len()).position(|part| part == STAMP).expect("each body has the placeholder");
        Self { body, at }
    }

    fn append(&self, number: u64, out: &mut Vec<u8>) {
        let start = out.len() + self.at;
        out.extend_from_slice(&self.body);
        out[start..start + STAMP.len()].copy_from_slice(format!("{number:016x}").as_bytes());
    }
}

/// Makes a page of paragraphs with links, as Parsoid writes them.
fn html(rng: &mut Rng, words: &[String]) -> Vec<u8> {
    let stamp = std::str::from_utf8(STAMP).expect("the stamp is ASCII");
    let mut text = format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"/><title>{stamp}</title></head><body>\n"
    );
    let mut id = 0;
    while text.len() < HTML_SIZE {
        id += 1;
        text.push_str(&format!("<p id=\"mw{id:X}\">"));
        for _ in 0..rng.usize(30..90) {
            let word = pick(rng, words);
            match rng.u8(0..16) {
                0 => {
                    id += 1;
                    text.push_str(&format!(
                        "<a rel=\"mw:WikiLink\" href=\"./{word}\" title=\"{word}\" id=\"mw{id:X}\">{word}</a>, "
                    ));
                }
                1 => text.push_str(&format!("<i>{word}</i> ")),
                2 => text.push_str(&format!("{word}. ")),
                _ => text.push_str(&format!("{word} ")),
            }
        }
        text.push_str("</p>\n");
    }
    // All words are ASCII, so the text may be cut anywhere.
    text.truncate(HTML_SIZE);
    text.into_bytes()
}

/// Generates the data that Parsoid stores about each element: offsets in the wikitext, and how the element
/// was written.
fn data_parsoid(rng: &mut Rng, words: &[String]) -> Vec<u8> {
    let stamp = std::str::from_utf8(STAMP).expect("the stamp is ASCII");
    let mut text = format!("{{\"stamp\":\"{stamp}\",\"ids\":{{");
    let (mut id, mut offset) = (0, 0);
    while text.len() < DATA_PARSOID_SIZE {
        id += 1;
        let (start, length) = (offset, rng.usize(5..400));
        offset += length;
        if rng.u8(0..3) == 0 {
            let word = pick(rng, words);
            text.push_str(&format!(
                "\"mw{id:X}\":{{\"stx\":\"simple\",\"a\":{{\"href\":\"./{word}\"}},\"sa\":{{\"href\":\"{word}\"}},\"dsr\":[{start},{offset},2,2]}},"
            ));
        } else {
            text.push_str(&format!("\"mw{id:X}\":{{\"dsr\":[{start},{offset},0,0]}},"));
        }
    }
    text.truncate(DATA_PARSOID_SIZE);
    text.into_bytes()
}

/// Makes a text of random letters, which has no repetitions.
fn dense(rng: &mut Rng, size: usize) -> Vec<u8> {
    const LETTERS: &[u8; 48] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv";
    let mut text = STAMP.to_vec();
    text.extend((STAMP.len()..size).map(|_| LETTERS[rng.usize(0..LETTERS.len())]));
    text
}

/// Draws a word. The first words are the most frequent, as in a language.
fn pick<'a>(rng: &mut Rng, words: &'a [String]) -> &'a str {
    let at = rng.f64().powi(WORD_SKEW) * words.len() as f64;
    &words[at as usize]
}

fn word(rng: &mut Rng) -> String {
    const SYLLABLES: &[&str] = &[
        "ba", "con", "de", "el", "fi", "gra", "ho", "in", "ju", "ka", "lo", "men", "na", "or", "pre", "qui",
        "ra", "sta", "ti", "un", "ver", "wi", "xe", "yo", "zen", "tion", "er", "ing", "al", "os",
    ];
    (0..rng.usize(1..5)).map(|_| SYLLABLES[rng.usize(0..SYLLABLES.len())]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_size_and_compress_as_real_ones_do() {
        let contents = Contents::new(1);
        let (html, data) = (contents.html(7), contents.data_parsoid(7));
        assert_eq!((html.len(), data.len()), (HTML_SIZE, DATA_PARSOID_SIZE));
        let packed = zstd::bulk::compress(&html, 3).unwrap().len();
        let ratio = packed as f64 / html.len() as f64;
        assert!((0.24..0.28).contains(&ratio), "{ratio}");
    }

    #[test]
    fn dense_bodies_take_18_kb_a_write() {
        let contents = Contents::dense(1);
        let (html, data) = (contents.html(7), contents.data_parsoid(7));
        assert_eq!((html.len(), data.len()), (HTML_SIZE, DATA_PARSOID_SIZE));
        let packed = [html, data].map(|body| zstd::bulk::compress(&body, 3).unwrap().len());
        let sum: usize = packed.iter().sum();
        assert!((17_500..18_500).contains(&sum), "{packed:?}");
    }

    #[test]
    fn two_writes_never_have_the_same_bodies() {
        let contents = Contents::new(1);
        assert_ne!(contents.html(1), contents.html(1 + BODIES as u64));
        assert_ne!(contents.data_parsoid(1), contents.data_parsoid(1 + BODIES as u64));
        assert_eq!(contents.html(5), Contents::new(1).html(5));
    }
}
