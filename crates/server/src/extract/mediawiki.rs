//! Queries that readers' links have: those of MediaWiki (`?oldid=12345`), and parameters that other programs add to the
//! links of any site (`?utm_source=newsletter`). A read with such a query is redirected to the URL that means the same
//! here, so that caches keep an answer under one URL.

use rashomon_pages::Revision;

use super::{percent_decode, query::truncate_for_error};
use crate::problem::{Problem, Result};

/// Beginnings of the names of parameters by which programs follow a reader from site to site.
const TRACKING_PREFIXES: [&str; 8] = ["utm_", "mtm_", "pk_", "piwik_", "matomo_", "hsa_", "_hs", "fb_"];

/// Further names of such parameters.
const TRACKING: [&str; 42] = [
    "_ga",
    "_gl",
    "_ke",
    "_openstat",
    "at_campaign",
    "at_medium",
    "campaign_id",
    "cmpid",
    "dclid",
    "epik",
    "fbclid",
    "gad_campaignid",
    "gad_source",
    "gbraid",
    "gclid",
    "gclsrc",
    "hsctatracking",
    "igsh",
    "igshid",
    "irclickid",
    "li_fat_id",
    "mc_cid",
    "mc_eid",
    "mkt_tok",
    "msclkid",
    "oly_anon_id",
    "oly_enc_id",
    "rdt_cid",
    "ref_src",
    "ref_url",
    "s_cid",
    "sccid",
    "spm",
    "srsltid",
    "ttclid",
    "twclid",
    "vero_conv",
    "vero_id",
    "wbraid",
    "wickedid",
    "wprov",
    "yclid",
];

/// Parameters of MediaWiki that change only the frame around a page, or that repeat what the path says.
const WITHOUT_EFFECT: [&str; 7] =
    ["curid", "redirect", "printable", "useskin", "uselang", "useformat", "mobileaction"];

/// Parameters of `action=raw` that change only the headers of the answer.
const OF_RAW: [&str; 4] = ["ctype", "maxage", "smaxage", "templates"];

/// A query that is redirected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Translation {
    /// The title that the query names, percent-decoded.
    pub(crate) title: Option<String>,
    /// The query to which the request is redirected. `None`: without a query.
    pub(crate) query: Option<String>,
}

/// Translates a raw query. Returns `None` if the query is not redirected: it is one of this API, or unknown.
/// `is_public`: whether the URL is the public one of the page, to which other programs add parameters.
///
/// # Errors
///
/// Returns 400 for a value that MediaWiki would not take either, or that has no counterpart here.
pub(crate) fn translate(query: &str, is_public: bool) -> Result<Option<Translation>> {
    let is_tracking = |name: &str| is_public && is_tracking(name);
    if query.is_empty() {
        return Ok(None);
    }
    // The path of a sub-resource comes first. Only parameters of other programs may be beside it.
    let first = query.split('&').find(|part| !part.is_empty() && !is_tracking(name_of(part)));
    if first.is_some_and(|first| !first.contains('=')) {
        let kept = query.split('&').filter(|part| !is_tracking(name_of(part)));
        let kept = kept.skip_while(|part| part.is_empty()).collect::<Vec<_>>().join("&");
        return Ok((kept != query).then_some(Translation { title: None, query: Some(kept) }));
    }
    let mut wanted = Wanted::default();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        if !is_tracking(name_of(part)) && !wanted.take(part)? {
            return Ok(None);
        }
    }
    wanted.translation()
}

fn name_of(part: &str) -> &str {
    part.split('=').next().unwrap_or_default()
}

fn is_tracking(name: &str) -> bool {
    let Some(name) = percent_decode(name) else { return false };
    let name = name.to_ascii_lowercase();
    TRACKING.contains(&name.as_str()) || TRACKING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// What the parameters of MediaWiki ask for. If one is given several times, the last counts, as in PHP.
#[derive(Debug, Default)]
struct Wanted {
    title: Option<String>,
    /// `None` for the latest.
    oldid: Option<Revision>,
    action: String,
    limit: Option<String>,
    /// Whether there is a parameter of `action=raw` alone.
    has_raw_only: bool,
}

impl Wanted {
    /// Takes a parameter. Returns `false` if it is unknown.
    fn take(&mut self, part: &str) -> Result<bool> {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let Some(name) = percent_decode(name) else { return Ok(false) };
        match &*name {
            "title" => self.title = Some(decoded(value)?),
            "oldid" => self.oldid = parse_oldid(&decoded(value)?)?,
            "action" => self.action = decoded(value)?,
            "limit" => self.limit = Some(decoded(value)?),
            name if OF_RAW.contains(&name) => self.has_raw_only = true,
            name => return Ok(WITHOUT_EFFECT.contains(&name)),
        }
        Ok(true)
    }

    fn translation(self) -> Result<Option<Translation>> {
        let Self { title, oldid, action, limit, has_raw_only } = self;
        let property = |name: &str| match oldid {
            Some(rev) => format!("rev/{rev}/{name}"),
            None => format!("rev/latest/{name}"),
        };
        // A limit belongs to the history alone, and so on.
        if (limit.is_some() && action != "history") || (has_raw_only && action != "raw") {
            return Ok(None);
        }
        let query = match &*action {
            "" | "view" | "render" => oldid.map(|_| property("html")),
            "raw" => Some(property("wikitext")),
            "history" => Some(limit.map_or_else(|| "rev/".to_owned(), |limit| format!("rev/&limit={limit}"))),
            other => {
                return Err(Problem::malformed(format!(
                    "action={} has no counterpart here; action=raw and action=history have",
                    truncate_for_error(other).escape_debug()
                )));
            }
        };
        Ok(Some(Translation { title, query }))
    }
}

/// Decodes a value as a form does: a `+` is a space.
fn decoded(value: &str) -> Result<String> {
    let value = value.replace('+', " ");
    percent_decode(&value).map(std::borrow::Cow::into_owned).ok_or_else(|| {
        Problem::malformed("a value must be percent-encoded UTF-8: two hex digits follow each %, and the bytes are valid UTF-8")
    })
}

/// Parses the number of a revision as MediaWiki does: none, and 0, mean the latest.
fn parse_oldid(text: &str) -> Result<Option<Revision>> {
    match text.trim().trim_start_matches('0') {
        "" => Ok(None),
        number => Ok(Some(number.parse()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Kind;

    #[test]
    fn queries_of_mediawiki_are_translated() {
        for (query, expected) in [
            ("oldid=12345", Some("rev/12345/html")),
            ("oldid=0012345&", Some("rev/12345/html")),
            ("oldid=0", None),
            ("oldid=", None),
            ("oldid=1&oldid=2", Some("rev/2/html")),
            ("action=raw", Some("rev/latest/wikitext")),
            ("action=raw&ctype=text/css", Some("rev/latest/wikitext")),
            ("oldid=7&action=raw", Some("rev/7/wikitext")),
            ("action=history", Some("rev/")),
            ("action=history&oldid=7&limit=500", Some("rev/&limit=500")),
            ("action=view", None),
            ("action=render&oldid=7", Some("rev/7/html")),
            ("curid=5", None),
            ("curid=5&oldid=7", Some("rev/7/html")),
            ("redirect=no", None),
            ("%6fldid=7", Some("rev/7/html")),
            ("utm_source=a&utm_medium=b", None),
            ("fbclid", None),
            ("UTM_Source=a", None),
            ("utm%5Fsource=a", None),
            ("oldid=7&gclid=x", Some("rev/7/html")),
            ("rev/latest/html&utm_source=a", Some("rev/latest/html")),
            ("rev/&fbclid=x&limit=5&wprov=sfla1", Some("rev/&limit=5")),
            ("utm_source=a&rev/latest/html", Some("rev/latest/html")),
            ("&fbclid&utm_source=a&rev/&limit=5", Some("rev/&limit=5")),
        ] {
            let expected = Translation { title: None, query: expected.map(str::to_owned) };
            assert_eq!(translate(query, true).unwrap(), Some(expected), "{query}");
        }
        let named = translate("title=A+B%26C&oldid=3", false).unwrap().unwrap();
        assert_eq!((named.title.as_deref(), named.query.as_deref()), (Some("A B&C"), Some("rev/3/html")));
    }

    #[test]
    fn other_queries_are_not_translated() {
        for query in [
            "",
            "rev/latest/html",
            "rev/&limit=5",
            "rev/&x=1",
            "rev/&oldid=5",
            "foo",
            "foo=1",
            "oldid=5&foo=1",
            "oldid=5&diff=prev",
            "utm_source=a&foo=1",
            "limit=5",
            "ctype=text/css",
            "blob/a/b",
            "=",
            "%",
        ] {
            assert_eq!(translate(query, true).unwrap(), None, "{query}");
        }
        for query in ["utm_source=a", "oldid=5&fbclid=x", "rev/&gclid=x", "fbclid"] {
            assert_eq!(translate(query, false).unwrap(), None, "{query}");
        }
    }

    #[test]
    fn values_without_a_counterpart_are_malformed() {
        for query in [
            "oldid=x",
            "oldid=-1",
            "oldid=1.5",
            "oldid=99999999999999999999",
            "oldid=%ff",
            "action=edit",
            "action=Raw",
            "title=%",
        ] {
            assert_eq!(translate(query, true).unwrap_err().kind(), Kind::Malformed, "{query}");
        }
    }
}
