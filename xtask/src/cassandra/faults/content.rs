//! The content of writes. A write is determined by its number and the seed.

use std::{collections::BTreeMap, fmt};

use fastrand::Rng;

/// The wiki of all writes.
const DOMAIN: &str = "faults";
/// The number of pages. It is small, so that several writes of a page run at the same time.
pub(super) const PAGES: usize = 20;
/// The page of the writes that only check the judge. No reader requests this page, because its newest html may belong
/// to an incomplete write.
const CHECK_PAGE: usize = PAGES;
/// The number of the first write that only checks the judge. Traffic never makes that many writes.
const FIRST_CHECK_WRITE: u64 = 1_000_000_000;
/// The properties of a write and their sizes. `wikitext` is stored with the revision, and the others with the
/// render. So a complete write has rows in all tables.
const PROPERTIES: [(&str, usize); 3] = [("html", 8 << 10), ("data-parsoid", 2 << 10), ("wikitext", 1 << 10)];
/// Letters that a form need not encode.
const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

/// The properties of a render, by their names.
pub(super) type Properties = BTreeMap<String, Vec<u8>>;

/// One write, which makes a revision of its own with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Write(pub(super) u64);

impl Write {
    /// The writes that check the judge, on a page of their own. Each names its tid, so it can be repeated.
    pub(super) fn checks<const N: usize>() -> [Self; N] {
        std::array::from_fn(|number| Self(FIRST_CHECK_WRITE + number as u64))
    }

    /// The page of the revision.
    pub(super) const fn page(self) -> usize {
        if self.0 >= FIRST_CHECK_WRITE { CHECK_PAGE } else { self.0 as usize % PAGES }
    }

    /// Whether the write specifies its time, and thereby its tid. If it does, a retry is the same write. Half of the
    /// writes of each page specify their time.
    pub(super) const fn names_its_tid(self) -> bool {
        (self.0 as usize / PAGES).is_multiple_of(2)
    }

    /// The bodies of the write's properties.
    pub(super) fn properties(self, seed: u64) -> Properties {
        PROPERTIES.into_iter().map(|(name, size)| (name.to_owned(), self.body(seed, name, size))).collect()
    }

    /// The body of the write's html, by which readers recognise the write.
    pub(super) fn html(self, seed: u64) -> Vec<u8> {
        let (name, size) = PROPERTIES[0];
        self.body(seed, name, size)
    }

    /// A body. It begins with the write's number, so that readers of the newest html recognise the write.
    fn body(self, seed: u64, property: &str, size: usize) -> Vec<u8> {
        let mut body = format!("{}.{property}.", self.0).into_bytes();
        let mut rng = Rng::with_seed(seed ^ self.0.rotate_left(32) ^ property.len() as u64);
        body.extend(std::iter::repeat_with(|| LETTERS[rng.usize(..LETTERS.len())]).take(size));
        body
    }

    /// The request that sends the write with these properties.
    pub(super) fn request(self, properties: &Properties) -> Vec<u8> {
        let mut form = format!("_rev={}", self.0).into_bytes();
        if self.names_its_tid() {
            form.extend_from_slice(format!("&_timestamp={}", self.time()).as_bytes());
        }
        append(&mut form, properties);
        post(&format!("{}?rev/", path(self.page())), &form)
    }

    /// The request that adds one more render to the write's revision.
    pub(super) fn another_render(self, properties: &Properties) -> Vec<u8> {
        let mut form = Vec::new();
        append(&mut form, properties);
        post(&format!("{}?rev/{}/", path(self.page()), self.0), &form[1..])
    }

    /// The time of a write. Each write has a second of its own, from the beginning of 2024 on.
    fn time(self) -> String {
        let Self(second) = self;
        let (days, hours, minutes) = (second / 86_400 % 28, second / 3_600 % 24, second / 60 % 60);
        format!("2024-01-{:02}T{hours:02}:{minutes:02}:{:02}Z", days + 1, second % 60)
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revision {} of page {}", self.0, self.page())
    }
}

/// The write that an html belongs to. `None` if the html was not written by this program.
pub(super) fn write_of(html: &[u8]) -> Option<Write> {
    let number = html.split(|byte| *byte == b'.').next()?;
    std::str::from_utf8(number).ok()?.parse().ok().map(Write)
}

/// The path of a page.
pub(super) fn path(page: usize) -> String {
    format!("/v1/{DOMAIN}/page/Page_{page:02}")
}

fn append(form: &mut Vec<u8>, properties: &Properties) {
    for (name, body) in properties {
        form.extend_from_slice(format!("&{name}=").as_bytes());
        form.extend_from_slice(body);
    }
}

fn post(path: &str, form: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n",
        form.len()
    )
    .into_bytes();
    request.extend_from_slice(form);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_unique_and_repeatable() {
        assert_eq!(Write(5).properties(1), Write(5).properties(1));
        for other in [Write(6).properties(1), Write(5).properties(2)] {
            for (name, body) in Write(5).properties(1) {
                assert_ne!(other[&name], body, "{name}");
            }
        }
    }

    #[test]
    fn checks_of_the_judge_are_on_no_page_of_the_traffic() {
        let checks: [Write; 3] = Write::checks();
        for check in checks {
            assert!((0..PAGES as u64).all(|number| Write(number).page() != check.page()), "{check}");
            assert!(check.names_its_tid(), "{check} may have to be repeated");
            assert_ne!(check.html(1), Write(check.0 % PAGES as u64).html(1));
        }
        assert_ne!(checks[0], checks[1]);
    }

    #[test]
    fn html_identifies_its_write() {
        assert_eq!(write_of(&Write(17).html(1)), Some(Write(17)));
        assert_eq!(write_of(b"{\"status\": 503}"), None);
    }

    #[test]
    fn each_page_has_writes_that_name_their_tid_and_others() {
        for page in 0..PAGES as u64 {
            let writes = [Write(page), Write(page + PAGES as u64)];
            assert_eq!(writes.map(Write::page), [page as usize; 2]);
            assert_eq!(writes.map(Write::names_its_tid), [true, false]);
        }
        assert_eq!(Write(86_400 + 3_661).time(), "2024-01-02T01:01:01Z");
    }
}
