//! References to revisions in the fields of a write: `12345`, or `Main_Page?rev/12345` as in the server's own headers.

use rashomon_pages::{Parent, Revision, Title};

use super::parse_title;
use crate::problem::{Problem, Result};

/// A revision, with the title of its page if the field has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RevisionReference {
    title: Option<Title>,
    rev: Revision,
}

impl RevisionReference {
    /// Parses a revision, with or without a title.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text.split_once("?rev/") {
            None => Ok(Self { title: None, rev: text.parse()? }),
            Some((title, rev)) => Ok(Self { title: Some(parse_title(title)?.0), rev: rev.parse()? }),
        }
    }

    /// Returns the revision if it belongs to this page. An error names `field`.
    pub(crate) fn of_page(self, page: &Title, field: &str) -> Result<Revision> {
        match self.title {
            Some(title) if title != *page => Err(Problem::invalid(format!(
                "{field} names a revision of '{title}', but the URL names the page '{page}': leave the title \
                 out, or post to the URL of that page"
            ))),
            _ => Ok(self.rev),
        }
    }
}

/// Parses the parent in a field: a revision, or `0` for none.
pub(crate) fn parse_parent(text: &str, page: &Title, field: &str) -> Result<Parent> {
    if text == "0" {
        return Ok(Parent::None);
    }
    RevisionReference::parse(text)?.of_page(page, field).map(Parent::Revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_a_revision_number_or_a_url_of_the_same_page() {
        let page = Title::new("A & B").unwrap();
        let parse = |text: &str| parse_parent(text, &page, "_parent").map_err(|problem| problem.kind());
        let rev = |number| Ok(Parent::Revision(Revision::new(number).unwrap()));
        use crate::problem::Kind::{InvalidValue, Malformed};
        assert_eq!(parse("0"), Ok(Parent::None));
        assert_eq!(parse("12345"), rev(12345));
        assert_eq!(parse("A_%26_B?rev/7"), rev(7));
        assert_eq!(parse("A & B?rev/7"), rev(7));
        assert_eq!(parse("C?rev/7"), Err(InvalidValue));
        for malformed in ["", "-1", "07", "1.5", "?rev/7", "A?rev/", "A?rev/0", "A?rev/7/", "A%?rev/7", "A?7"]
        {
            assert_eq!(parse(malformed), Err(Malformed), "{malformed}");
        }
    }
}
