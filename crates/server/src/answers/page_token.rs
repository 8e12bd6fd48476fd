//! The position in a list at which a result page begins, in links and queries.

use std::{
    fmt::{self, Write},
    str::FromStr,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use rashomon_clock::Timestamp;
use rashomon_pages::{MementoPosition, Revision, Tid};

/// The start of a result page, as an opaque token for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageToken<T>(pub T);

impl<T: Position> PageToken<T> {
    /// Parses a token. `None` if the text is not a token of such a list.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        T::parse(&String::from_utf8(bytes).ok()?).map(Self)
    }
}

impl<T: Position> fmt::Display for PageToken<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(self.0.to_text()))
    }
}

/// A position in a list.
pub(crate) trait Position: Sized {
    /// The position as a text.
    fn to_text(&self) -> String;
    /// Parses a text of [`Self::to_text`]; `None` for any other text.
    fn parse(text: &str) -> Option<Self>;
}

impl Position for Revision {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Position for Tid {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Position for MementoPosition {
    fn to_text(&self) -> String {
        let (time, rev) = self.examined;
        let mut text = format!("{}/{rev}", time.as_micros());
        if let Some((time, rev, listed)) = self.state {
            let listed = listed.map_or_else(String::new, |tid| tid.to_string());
            let _ = write!(text, "/{}/{rev}/{listed}", time.as_micros());
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let time = |text: &str| text.parse().ok().map(Timestamp::from_micros);
        let rev = |text| Revision::from_str(text).ok();
        let (state, examined) = match text.split('/').collect::<Vec<_>>()[..] {
            [at, number] => (None, (at, number)),
            [at, number, state_at, state_number, listed] => {
                let listed = match listed {
                    "" => None,
                    tid => Some(Tid::from_str(tid).ok()?),
                };
                (Some((time(state_at)?, rev(state_number)?, listed)), (at, number))
            }
            _ => return None,
        };
        Some(Self { state, examined: (time(examined.0)?, rev(examined.1)?) })
    }
}

/// Makes the link to a part of a list, which starts at the beginning or after an entry.
pub(crate) fn list_href<T: Position>(list: &str, limit: Option<usize>, after: Option<T>) -> String {
    let limit = limit.map_or_else(String::new, |limit| format!("&limit={limit}"));
    let after = after.map_or_else(String::new, |after| format!("&page={}", PageToken(after)));
    format!("{list}{limit}{after}")
}
