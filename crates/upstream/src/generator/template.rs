//! The URL of a property, with placeholders for the parts that differ between revisions.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rashomon_pages::{Page, Revision, excerpt};
use url::Url;

/// The characters that are percent-encoded: all but the unreserved characters of RFC 3986. So a value is always one
/// segment of a path, or one value of a query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The names of the placeholders, for error messages.
const PLACEHOLDERS: &str = "{domain}, {title} and {rev}";

/// A URL with placeholders. A title cannot change its scheme, its host or the structure of its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Domain,
    Title,
    Rev,
}

impl Template {
    /// Parses a template. The error says what is wrong, and how to correct it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(odd) = text.chars().find(|letter| !letter.is_ascii_graphic() || *letter == '\\') {
            return Err(format!("{odd:?} is not allowed in a URL: percent-encode it"));
        }
        let lower = text.to_ascii_lowercase();
        let Some(rest) = lower.strip_prefix("http://").or_else(|| lower.strip_prefix("https://")) else {
            return Err("it begins with neither http:// nor https://".to_owned());
        };
        if text.contains('#') {
            return Err("the part after # is never sent: leave it out".to_owned());
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.is_empty() {
            return Err("it names no host: write a URL such as http://wiki.example/html/{rev}".to_owned());
        }
        if authority.contains('@') {
            return Err("it must not have a user or a password: leave out the part before the @".to_owned());
        }
        let template = Self(pieces(text)?);
        if pieces(authority)?.iter().any(|piece| matches!(piece, Piece::Title | Piece::Rev)) {
            return Err("the host can have only {domain} of the placeholders".to_owned());
        }
        template.example().map(|_| template)
    }

    /// Returns the URL for an example revision.
    pub(crate) fn example(&self) -> Result<Url, String> {
        let url = self.fill("domain.example", "Title", "1");
        Url::parse(&url)
            .map_err(|error| format!("{error}; write a URL such as http://wiki.example/html/{{rev}}"))
    }

    /// Whether the host is the same for all domains.
    pub(crate) fn has_one_host(&self) -> bool {
        let host =
            |domain| Url::parse(&self.fill(domain, "Title", "1")).map(|url| url.authority().to_owned());
        host("a.example") == host("b.example")
    }

    /// Whether requests to this URL need certificates.
    pub(crate) fn is_https(&self) -> bool {
        self.example().is_ok_and(|url| url.scheme() == "https")
    }

    /// Returns the URL for a revision. The error says why the URL cannot be made.
    pub(crate) fn url(&self, page: &Page, rev: Revision) -> Result<Url, String> {
        let url = self.fill(page.domain.as_str(), page.title.as_str(), &rev.to_string());
        Url::parse(&url).map_err(|error| error.to_string())
    }

    fn fill(&self, domain: &str, title: &str, rev: &str) -> String {
        let mut url = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => url.push_str(text),
                // A domain has no characters that need to be encoded.
                Piece::Domain => url.push_str(domain),
                Piece::Title => url.extend(utf8_percent_encode(title, ENCODED)),
                Piece::Rev => url.push_str(rev),
            }
        }
        url
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, found) = rest.split_at(at);
        if !before.is_empty() {
            pieces.push(Piece::Literal(before.to_owned()));
        }
        let inside = found.strip_prefix('{').and_then(|found| found.split_once('}'));
        let Some((name, after)) = inside else {
            return Err(format!("a brace has no matching brace: the placeholders are {PLACEHOLDERS}"));
        };
        pieces.push(match name {
            "domain" => Piece::Domain,
            "title" => Piece::Title,
            "rev" => Piece::Rev,
            other => {
                let other = excerpt(other);
                return Err(format!("unknown placeholder {{{other}}}: the placeholders are {PLACEHOLDERS}"));
            }
        });
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest.to_owned()));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests;
