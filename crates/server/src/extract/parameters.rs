//! The parameters of lists that are not sub-resources of a page: `?limit=50&after=a`.

use std::borrow::Cow;

use super::{
    percent_decode,
    query::{parse_limit, truncate_for_error},
};
use crate::problem::{Problem, Result};

/// The parameters of a query, each at most once. Values are percent-decoded; a `+` stays a `+`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameters<'a>(Vec<(&'a str, Cow<'a, str>)>);

impl<'a> Parameters<'a> {
    /// Parses a raw query that may have the parameters `known`.
    pub(crate) fn parse(query: Option<&'a str>, known: &[&str]) -> Result<Self> {
        let mut parameters: Vec<(&str, Cow<'_, str>)> = Vec::new();
        let query = query.filter(|query| !query.is_empty());
        for parameter in query.into_iter().flat_map(|query| query.split('&')) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let name = truncate_for_error(name);
            if !known.contains(&name) {
                let detail =
                    format!("unknown parameter '{name}'; the known parameters are {}=", known.join("=, "));
                return Err(Problem::malformed(detail));
            }
            if parameters.iter().any(|(other, _)| *other == name) {
                return Err(Problem::malformed(format!("{name}= is given twice: send it once")));
            }
            let value = percent_decode(value).ok_or_else(|| {
                Problem::malformed(format!(
                    "{name}= must be percent-encoded UTF-8: two hex digits follow each %, and the bytes are valid UTF-8"
                ))
            })?;
            parameters.push((name, value));
        }
        Ok(Self(parameters))
    }

    /// The value of a parameter, if the query has it.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// All parameters, in the order of the query.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (*name, &**value))
    }

    /// The value of `limit`, if the query has it.
    pub(crate) fn limit(&self) -> Result<Option<usize>> {
        self.get("limit").map(parse_limit).transpose()
    }
}

/// Refuses a query of a resource that takes none.
pub(crate) fn refuse_query(query: Option<&str>) -> Result<()> {
    match query.filter(|query| !query.is_empty()) {
        None => Ok(()),
        Some(_) => Err(Problem::malformed("this resource takes no query: remove the text after '?'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_invalid_parameters_are_refused() {
        let known = ["limit", "after"];
        let parse = |query| Parameters::parse(query, &known);
        for none in [None, Some("")] {
            assert_eq!(parse(none).unwrap(), Parameters(Vec::new()));
        }
        let both = parse(Some("after=a%20b+%26&limit=5")).unwrap();
        assert_eq!((both.get("after"), both.limit().unwrap()), (Some("a b+&"), Some(5)));
        assert_eq!(parse(Some("after")).unwrap().get("after"), Some(""));
        for malformed in
            ["x=1", "limit=1&", "&limit=1", "limit=1&limit=1", "after=%", "after=%ff", "Limit=1", "é"]
        {
            assert!(parse(Some(malformed)).is_err(), "{malformed}");
        }
        for limit in ["0", "501", "05", "-1", "+1", "", "x"] {
            let query = format!("limit={limit}");
            assert!(Parameters::parse(Some(&query), &known).unwrap().limit().is_err(), "{limit}");
        }
    }
}
