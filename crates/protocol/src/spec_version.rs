//! Spec versions: selects the version of a document's format that a client accepts.
//!
//! A content type names the version with the parameter `profile`, such as
//! `profile="https://www.mediawiki.org/wiki/Specs/HTML/2.8.0"`. An `Accept` header names versions in the same way. The
//! source is note 002, "Minor-version API versioning per entry point via Accept header".

use std::fmt;

use http::{HeaderMap, header};
use mediatype::{MediaType, MediaTypeList, Name, ReadParams};

/// The parameter of a content type that names a spec and its version.
const PROFILE: Name<'_> = Name::new_unchecked("profile");

/// The parameter of a member of `Accept` that is its weight.
const QUALITY: Name<'_> = Name::new_unchecked("q");

/// A spec and one of its versions.
///
/// The version is the part after the last slash: two or three numbers. `https://example.org/Specs/HTML/2.8.0` is
/// version 2.8 of the spec `https://example.org/Specs/HTML/`. The third number, the patch, has no meaning here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Profile {
    text: String,
    /// The number of bytes of the spec's name, with the slash.
    name_length: usize,
    major: u32,
    minor: u32,
}

impl Profile {
    /// Parses the value of the parameter `profile`. `None` if the value does not end with a version.
    pub fn parse(text: &str) -> Option<Self> {
        let name_length = text.rfind('/')? + 1;
        let mut numbers = text[name_length..].split('.').map(number);
        let (major, minor) = (numbers.next()??, numbers.next()??);
        let patch = numbers.next();
        if matches!(patch, Some(None)) || numbers.next().is_some() {
            return None;
        }
        Some(Self { text: text.to_owned(), name_length, major, minor })
    }

    /// The profile of a content type. `None` if the content type is malformed or has no profile, or if the profile has
    /// no version.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let parsed = MediaType::parse(content_type).ok()?;
        Self::parse(&profile_of(&parsed)?)
    }

    /// Whether a content type has a profile, with or without a version.
    pub fn is_in(content_type: &str) -> bool {
        may_name_a_profile(content_type.as_bytes())
            && MediaType::parse(content_type).is_ok_and(|parsed| parsed.get_param(PROFILE).is_some())
    }

    /// The spec, with the slash that precedes the version.
    pub fn spec(&self) -> &str {
        &self.text[..self.name_length]
    }

    /// The version as it was written.
    pub fn version(&self) -> &str {
        &self.text[self.name_length..]
    }

    /// Whether this is a later version of the same spec. The patch number is ignored.
    pub fn is_later_than(&self, other: &Self) -> bool {
        self.spec() == other.spec() && (self.major, self.minor) > (other.major, other.minor)
    }

    /// Whether a document of this version can be read by a client that asks for `wanted`: the spec and the major
    /// version are equal, and the minor version is at least as high.
    pub fn satisfies(&self, wanted: &Self) -> bool {
        self.spec() == wanted.spec() && self.major == wanted.major && self.minor >= wanted.minor
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses a number without a sign and without leading zeros.
fn number(digits: &str) -> Option<u32> {
    let is_number =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if is_number { digits.parse().ok() } else { None }
}

/// The version to return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The stored version.
    Stored,
    /// Another version, which can be made from the stored version.
    Other(Profile),
    /// The client accepts neither the stored version nor a version that can be made.
    NotAcceptable {
        /// The profile that the client prefers.
        expected: String,
        /// The stored profile, or the whole content type if it has no profile.
        received: String,
    },
}

/// Chooses the version of a document with this content type by the `Accept` header of a request. `can_make` returns
/// whether a version can be made from the stored version.
///
/// Of several versions that can be returned, the version with the highest weight is chosen. A member of the header
/// without a profile accepts the stored version. If no member has the media type of the document, or if the content
/// type is malformed, the header is treated as absent. Members that are malformed, or have the weight 0, are ignored.
pub fn choose(headers: &HeaderMap, content_type: &str, can_make: impl Fn(&Profile) -> bool) -> Choice {
    if !headers.get_all(header::ACCEPT).iter().any(|value| may_name_a_profile(value.as_bytes())) {
        return Choice::Stored;
    }
    let Ok(stored_type) = MediaType::parse(content_type) else { return Choice::Stored };
    let stored_text = profile_of(&stored_type);
    let stored = stored_text.as_deref().and_then(Profile::parse);
    let mut best: Option<(u16, Choice)> = None;
    // The profile with the highest weight among those that cannot be returned.
    let mut expected: Option<(u16, String)> = None;
    for value in headers.get_all(header::ACCEPT) {
        for member in MediaTypeList::new(value.to_str().unwrap_or_default()).flatten() {
            let weight = weight(&member);
            if weight == 0 || !matches(&member, &stored_type) {
                continue;
            }
            let choice = match profile_of(&member) {
                None => Some(Choice::Stored),
                // Equal profiles satisfy each other, even if they have no version.
                Some(wanted) if Some(&wanted) == stored_text.as_ref() => Some(Choice::Stored),
                Some(wanted) => match Profile::parse(&wanted) {
                    Some(wanted) if stored.as_ref().is_some_and(|stored| stored.satisfies(&wanted)) => {
                        Some(Choice::Stored)
                    }
                    Some(wanted) if can_make(&wanted) => Some(Choice::Other(wanted)),
                    _ => {
                        if expected.as_ref().is_none_or(|(highest, _)| weight > *highest) {
                            expected = Some((weight, wanted));
                        }
                        None
                    }
                },
            };
            let Some(choice) = choice else { continue };
            // Among members of equal weight, the stored version is preferred, since it costs least; then the first one.
            let is_better = best.as_ref().is_none_or(|(highest, chosen)| {
                weight > *highest
                    || (weight == *highest && *chosen != Choice::Stored && choice == Choice::Stored)
            });
            if is_better {
                best = Some((weight, choice));
            }
        }
    }
    match (best, expected) {
        (Some((_, choice)), _) => choice,
        (None, Some((_, expected))) => {
            let received = stored_text.unwrap_or_else(|| content_type.to_owned());
            Choice::NotAcceptable { expected, received }
        }
        (None, None) => Choice::Stored,
    }
}

/// Whether a value of `Accept` can have a profile. Most requests have no profile, and are not parsed further.
fn may_name_a_profile(value: &[u8]) -> bool {
    value.windows(PROFILE.as_str().len()).any(|part| part.eq_ignore_ascii_case(PROFILE.as_str().as_bytes()))
}

/// Returns the value of the parameter `profile`.
fn profile_of(media_type: &MediaType<'_>) -> Option<String> {
    media_type.get_param(PROFILE).map(|value| value.unquoted_str().into_owned())
}

/// Whether the media range of a member of `Accept` contains a media type. Parameters are ignored.
fn matches(member: &MediaType<'_>, stored: &MediaType<'_>) -> bool {
    (member.ty == "*" && member.subty == "*")
        || (member.ty == stored.ty
            && (member.subty == "*" || (member.subty == stored.subty && member.suffix == stored.suffix)))
}

/// Returns the weight in thousandths: 1000 if there is none, and 0 if it is malformed.
fn weight(member: &MediaType<'_>) -> u16 {
    let Some(value) = member.get_param(QUALITY) else { return 1000 };
    let weight = value.as_str().parse::<f32>().ok().filter(|weight| (0.0..=1.0).contains(weight));
    weight.map_or(0, |weight| (weight * 1000.0).round() as u16)
}

#[cfg(test)]
mod tests;
