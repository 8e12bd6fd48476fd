//! A request for a new token, as the API and the command line take it.

use rashomon_clock::{Timestamp, length, rfc3339};
use rashomon_records::excerpt;
use serde::{Deserialize, Serialize};

use crate::access::{
    BucketPattern, DomainPattern, Grant, MAX_PATTERNS, NewToken, Right, present::deserialize_present,
    token::MAX_NOTE_BYTES,
};

/// A request for a new token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// The rights; at least one.
    pub rights: Vec<String>,
    /// The domains, where a `*` at the end of a name matches any ending; at least one.
    pub domains: Vec<String>,
    /// The buckets, in the same notation; without them, all.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_present")]
    pub buckets: Option<Vec<String>>,
    /// When the token expires: a time in RFC 3339, or a length of time such as `90d`; without it, never.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_present")]
    pub expires: Option<String>,
    /// A note for people: who has the token, and what for.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "deserialize_present")]
    pub note: Option<String>,
}

impl TokenRequest {
    /// Checks the request.
    ///
    /// # Errors
    ///
    /// Returns a message that names the invalid member and the values that it accepts.
    pub fn check(&self, now: Timestamp) -> Result<NewToken, String> {
        let rights = (self.rights.iter())
            .map(|right| right.parse::<Right>().map_err(|error| format!("rights: {error}")))
            .collect::<Result<Vec<_>, _>>()?;
        let domains = patterns::<DomainPattern>("domains", &self.domains)?;
        let buckets = self.buckets.as_ref().map(|buckets| patterns::<BucketPattern>("buckets", buckets));
        if rights.is_empty() {
            return Err("rights: name at least one of read, write, import, rewrite and admin".to_owned());
        }
        if domains.is_empty() {
            return Err("domains: name at least one domain, or '*' for all".to_owned());
        }
        let buckets = buckets.transpose()?;
        if buckets.as_ref().is_some_and(Vec::is_empty) {
            return Err(
                "buckets: the list is empty: name at least one bucket, or omit the list to allow all buckets"
                    .to_owned(),
            );
        }
        if self.note.as_ref().is_some_and(|note| note.len() > MAX_NOTE_BYTES) {
            return Err(format!("note: a note has at most {MAX_NOTE_BYTES} bytes"));
        }
        if self.note.as_ref().is_some_and(|note| note.chars().any(char::is_control)) {
            return Err("note: a note is one line without control characters".to_owned());
        }
        Ok(NewToken {
            grant: Grant { rights: rights.into_iter().collect(), domains, buckets },
            expires_at: self.expires.as_deref().map(|text| parse_expiry(text, now)).transpose()?,
            note: self.note.clone(),
        })
    }
}

fn patterns<T>(member: &str, texts: &[String]) -> Result<Vec<T>, String>
where
    T: std::str::FromStr<Err = rashomon_records::NameError>,
{
    if texts.len() > MAX_PATTERNS {
        return Err(format!("{member}: at most {MAX_PATTERNS} names are allowed"));
    }
    texts.iter().map(|text| text.parse().map_err(|error| format!("{member}: {error}"))).collect()
}

/// Reads the time at which a token expires: a time, or a length of time from now.
fn parse_expiry(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let after = || length::parse(text).map(|length| now.saturating_add(length));
    let at = rfc3339::parse(text).or_else(after).ok_or_else(|| {
        format!(
            "expires: '{}' is neither a time such as 2030-01-31T00:00:00Z nor a length of time such as 90d or \
             1h 30m, in weeks or shorter units",
            excerpt(text)
        )
    })?;
    if at <= now {
        return Err(format!(
            "expires: '{}' is not in the future: give a later time, or a length such as 90d",
            excerpt(text)
        ));
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::access::Rights;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    fn request() -> TokenRequest {
        serde_json::from_str(r#"{"rights": ["read", "write"], "domains": ["enwiki"]}"#).unwrap()
    }

    #[test]
    fn request_becomes_a_grant() {
        let new = request().check(NOW).unwrap();
        assert_eq!(new.grant.rights, Rights::from_iter([Right::Read, Right::Write]));
        assert_eq!((new.grant.buckets, new.expires_at, new.note), (None, None, None));
        let day = Duration::from_secs(86_400);
        for (text, at) in [
            ("90d", NOW.saturating_add(90 * day)),
            ("1h 30m", NOW.saturating_add(Duration::from_secs(5400))),
            ("2030-01-01T00:00:00Z", rfc3339::parse("2030-01-01T00:00:00Z").unwrap()),
        ] {
            let new = TokenRequest { expires: Some(text.to_owned()), ..request() }.check(NOW).unwrap();
            assert_eq!(new.expires_at, Some(at), "{text}");
        }
    }

    #[test]
    fn refusal_of_an_expiry_names_accepted_lengths() {
        let at = |text: &str| TokenRequest { expires: Some(text.to_owned()), ..request() }.check(NOW);
        let error = at("1mo").unwrap_err();
        assert!(
            error.contains("a length of time such as 90d or 1h 30m, in weeks or shorter units"),
            "{error}"
        );
        for accepted in ["2w", "90d", "1h 30m", "30s", "250ms"] {
            assert!(
                at(accepted).unwrap().expires_at.is_some_and(|expires_at| NOW < expires_at),
                "{accepted}"
            );
        }
    }

    #[test]
    fn refusal_names_the_member() {
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let of = request;
        for (bad, member) in [
            (TokenRequest { rights: list(&["reed"]), ..of() }, "rights: "),
            (TokenRequest { rights: Vec::new(), ..of() }, "rights: "),
            (TokenRequest { domains: Vec::new(), ..of() }, "domains: "),
            (TokenRequest { domains: list(&["*wiki"]), ..of() }, "domains: "),
            (TokenRequest { domains: vec!["a".to_owned(); MAX_PATTERNS + 1], ..of() }, "domains: "),
            (TokenRequest { buckets: Some(Vec::new()), ..of() }, "buckets: "),
            (TokenRequest { buckets: Some(list(&["1"])), ..of() }, "buckets: "),
            (TokenRequest { expires: Some("soon".to_owned()), ..of() }, "expires: "),
            (TokenRequest { expires: Some("-1d".to_owned()), ..of() }, "expires: "),
            (TokenRequest { expires: Some("0s".to_owned()), ..of() }, "expires: "),
            (TokenRequest { expires: Some("2020-01-01T00:00:00Z".to_owned()), ..of() }, "expires: "),
            (TokenRequest { note: Some("a\nb".to_owned()), ..of() }, "note: "),
            (TokenRequest { note: Some("x".repeat(MAX_NOTE_BYTES + 1)), ..of() }, "note: "),
        ] {
            let error = bad.check(NOW).unwrap_err();
            assert!(error.starts_with(member), "{bad:?}: {error}");
        }
    }
}
