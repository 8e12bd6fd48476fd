//! The `siteinfo` element.

use std::io::Read;

use rashomon_pages::{Namespace, SiteInfo, excerpt};

use super::{
    tokens::{MAX_FIELD_BYTES, Token, Tokens, attribute},
    unexpected::{Unexpected, nested_page},
};
use crate::{MisplacedFault, Problem};

/// The maximum number of namespaces of a wiki.
const MAX_NAMESPACES: usize = 10_000;

/// Reads the rest of the element, whose start tag has been read. Reports other elements to `unexpected`.
pub(super) fn read<R: Read>(
    tokens: &mut Tokens<R>,
    language: Option<String>,
    unexpected: &mut Unexpected,
) -> Result<SiteInfo, Problem> {
    let mut info = SiteInfo {
        name: None,
        database: None,
        base: None,
        generator: None,
        case: None,
        namespaces: Vec::new(),
        language,
        as_of: None,
    };
    let mut seen = Vec::new();
    loop {
        let name = match tokens.next()? {
            Token::Start(start) => start.name().as_ref().to_owned(),
            Token::End | Token::Eof => return Ok(info),
            token => {
                let is_space = token.is_space();
                unexpected.check_characters(is_space, tokens.position().0, "siteinfo");
                continue;
            }
        };
        if seen.contains(&name) {
            unexpected.add(tokens.position().0, &name, MisplacedFault::Repeated);
            tokens.skip()?;
            continue;
        }
        if ["sitename", "dbname", "base", "generator", "case", "namespaces"].contains(&&*name) {
            seen.push(name.clone());
        }
        match name.as_str() {
            "sitename" => info.name = tokens.word()?,
            "dbname" => info.database = tokens.word()?,
            "base" => info.base = tokens.word()?,
            "generator" => info.generator = tokens.word()?,
            "case" => info.case = tokens.word()?,
            "namespaces" => info.namespaces = namespaces(tokens, unexpected)?,
            "page" => return Err(nested_page(tokens, "siteinfo")),
            _ => unexpected.skip(tokens, &name, "siteinfo")?,
        }
    }
}

fn namespaces<R: Read>(
    tokens: &mut Tokens<R>,
    unexpected: &mut Unexpected,
) -> Result<Vec<Namespace>, Problem> {
    let mut namespaces = Vec::new();
    loop {
        let (element, key, case) = match tokens.next()? {
            Token::Start(start) => {
                (start.name().as_ref().to_owned(), attribute(&start, "key")?, attribute(&start, "case")?)
            }
            Token::End | Token::Eof => return Ok(namespaces),
            token => {
                let is_space = token.is_space();
                unexpected.check_characters(is_space, tokens.position().0, "namespaces");
                continue;
            }
        };
        match &*element {
            "namespace" => {}
            "page" => return Err(nested_page(tokens, "namespaces")),
            other => {
                unexpected.skip(tokens, other, "namespaces")?;
                continue;
            }
        }
        let name = tokens.text(MAX_FIELD_BYTES)?;
        let key = key.and_then(|key| key.trim().parse().ok());
        let key = key.ok_or_else(|| {
            Problem::Malformed(format!(
                "namespace {:?}: the attribute 'key' is missing or is not an integer",
                excerpt(&name)
            ))
        })?;
        if namespaces.len() == MAX_NAMESPACES {
            return Err(Problem::TooLarge(format!("there are more than {MAX_NAMESPACES} namespaces")));
        }
        namespaces.push(Namespace { key, case, name });
    }
}
