//! The sample wiki of `rashomon demo`: the story of one night, told by several witnesses.
//!
//! Each page is a file in `pages/`, which describes how each revision is derived from the previous revision.
//! The whole history is built from these files. Its revision numbers rise with time across the wiki, as in
//! MediaWiki. Pages are rendered again as in a wiki: when a page that they link to is created, and when the
//! renderer is replaced.

mod load;
mod wikitext;

use std::collections::{BTreeMap, BTreeSet};

use rashomon_clock::Timestamp;
use rashomon_pages::{DomainName, Parent, Revision, Title};
use serde::Deserialize;

use self::wikitext::Renderer;
pub(crate) use self::{
    load::{Loaded, load},
    wikitext::title_in_url,
};

/// The files of the pages, in no particular order.
const PAGES: [&str; 10] = [
    include_str!("pages/main_page.toml"),
    include_str!("pages/hollin_light.toml"),
    include_str!("pages/the_night.toml"),
    include_str!("pages/talk.toml"),
    include_str!("pages/keeper.toml"),
    include_str!("pages/captain.toml"),
    include_str!("pages/fisherwoman.toml"),
    include_str!("pages/creme_brulee.toml"),
    include_str!("pages/fog_signal.toml"),
    include_str!("pages/marigold.toml"),
];

/// The time at which the wiki got its second renderer, and every page was rendered again: 2010-01-01T00:00:00Z.
const SECOND_RENDERER: Timestamp = Timestamp::from_micros(1_262_304_000_000_000);

/// The domain of the sample wiki.
pub(crate) fn domain() -> DomainName {
    DomainName::new("lighthouse").expect("a well-formed domain")
}

/// An event in the history of the wiki.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// The time of the event.
    pub time: Timestamp,
    /// The title of the page.
    pub title: Title,
    /// The number of the revision.
    pub rev: Revision,
    /// The HTML rendered from the revision's text.
    pub html: String,
    /// The edit. `None` if an existing revision was only rendered again.
    pub edit: Option<Edit>,
}

/// An edit that saved a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The previous revision of the page.
    pub parent: Parent,
    /// The name of the user.
    pub user: String,
    /// The comment on the edit.
    pub comment: String,
    /// Whether the user marked the edit as minor.
    pub minor: bool,
    /// The text of the revision.
    pub wikitext: String,
}

/// The whole history, in the order of time.
pub(crate) fn history() -> Result<Vec<Event>, SampleError> {
    let mut saved = Vec::new();
    for file in PAGES {
        saved.extend(PageFile::parse(file)?.revisions()?);
    }
    saved.sort_by_key(|revision| revision.time);
    Wiki::default().replay(saved)
}

/// An error in the files of the sample wiki.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SampleError {
    /// A file cannot be parsed.
    #[error("the sample wiki is invalid: {0}")]
    File(#[from] toml::de::Error),
    /// A revision cannot be derived from the previous one.
    #[error("the sample wiki is invalid: {title}, revision {number}: {problem}")]
    Revision {
        /// The title of the page.
        title: String,
        /// The number of the revision in the file, from 1.
        number: usize,
        /// What is wrong.
        problem: String,
    },
}

/// The content of a page's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageFile {
    title: Title,
    #[serde(rename = "revision")]
    revisions: Vec<RevisionEntry>,
}

/// A revision in a page's file. It has exactly one of `text`, `append`, `replace` and `revert_to`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RevisionEntry {
    time: String,
    user: String,
    comment: String,
    #[serde(default)]
    minor: bool,
    /// The whole text.
    text: Option<String>,
    /// Text to add to the end of the previous text.
    append: Option<String>,
    /// Replacements in the previous text, in which each `old` must occur once.
    replace: Option<Vec<Replacement>>,
    /// The revision of this page, counted from 1, whose text is restored.
    revert_to: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replacement {
    old: String,
    new: String,
}

/// A revision with its whole text, not yet numbered.
#[derive(Debug)]
struct SavedRevision {
    title: Title,
    time: Timestamp,
    user: String,
    comment: String,
    minor: bool,
    wikitext: String,
}

impl PageFile {
    fn parse(file: &str) -> Result<Self, SampleError> {
        Ok(toml::from_str(file)?)
    }

    /// Derives the texts, each from the previous text.
    fn revisions(self) -> Result<Vec<SavedRevision>, SampleError> {
        let mut texts: Vec<String> = Vec::new();
        let mut saved = Vec::new();
        for entry in self.revisions {
            let failure = |problem: String| SampleError::Revision {
                title: self.title.to_string(),
                number: texts.len() + 1,
                problem,
            };
            let time: jiff::Timestamp = entry.time.parse().map_err(|error| failure(format!("{error}")))?;
            let wikitext = entry.apply(&texts).map_err(failure)?;
            texts.push(wikitext.clone());
            saved.push(SavedRevision {
                title: self.title.clone(),
                time: Timestamp::from_micros(time.as_microsecond()),
                user: entry.user,
                comment: entry.comment,
                minor: entry.minor,
                wikitext,
            });
        }
        Ok(saved)
    }
}

impl RevisionEntry {
    fn apply(&self, before: &[String]) -> Result<String, String> {
        let last = before.last().map_or("", String::as_str);
        match (&self.text, &self.append, &self.replace, self.revert_to) {
            (Some(text), None, None, None) => Ok(text.trim_end().to_owned()),
            (None, Some(more), None, None) => Ok(format!("{last}\n{}", more.trim_end())),
            (None, None, Some(replacements), None) => {
                replacements.iter().try_fold(last.to_owned(), |text, Replacement { old, new }| {
                    match text.matches(old.as_str()).count() {
                        1 => Ok(text.replace(old.as_str(), new)),
                        found => Err(format!("{found} times in the text, instead of once: {old}")),
                    }
                })
            }
            (None, None, None, Some(number)) => (number.checked_sub(1).and_then(|index| before.get(index)))
                .cloned()
                .ok_or_else(|| format!("there is no revision {number} yet")),
            _ => Err("exactly one of text, append, replace and revert_to is needed".to_owned()),
        }
    }
}

/// The state of the wiki while its history is replayed.
#[derive(Debug, Default)]
struct Wiki {
    /// The latest revision of each page, and its text.
    latest: BTreeMap<Title, (Revision, String)>,
    titles: BTreeSet<String>,
    events: Vec<Event>,
}

impl Wiki {
    fn replay(mut self, saved: Vec<SavedRevision>) -> Result<Vec<Event>, SampleError> {
        let mut numbers = (1_i64..).filter_map(Revision::new);
        let mut renderer = Renderer::One;
        for revision in saved {
            if renderer == Renderer::One && revision.time >= SECOND_RENDERER {
                renderer = Renderer::Two;
                self.render_again(SECOND_RENDERER, renderer, |_| true);
            }
            let rev = numbers.next().unwrap_or(Revision::MAX);
            let (title, time) = (revision.title.clone(), revision.time);
            let is_new = self.titles.insert(title.to_string());
            self.save(revision, rev, renderer);
            if is_new {
                let links_here = |text: &str| wikitext::links(text).contains(title.as_str());
                self.render_again(time, renderer, links_here);
            }
        }
        self.events.sort_by_key(|event| event.time);
        Ok(self.events)
    }

    fn save(&mut self, saved: SavedRevision, rev: Revision, renderer: Renderer) {
        let parent = self.latest.get(&saved.title).map_or(Parent::None, |(rev, _)| Parent::Revision(*rev));
        self.latest.insert(saved.title.clone(), (rev, saved.wikitext.clone()));
        self.events.push(Event {
            time: saved.time,
            html: wikitext::to_html(saved.title.as_str(), &saved.wikitext, &self.titles, renderer),
            title: saved.title,
            rev,
            edit: Some(Edit {
                parent,
                user: saved.user,
                comment: saved.comment,
                minor: saved.minor,
                wikitext: saved.wikitext,
            }),
        });
    }

    /// Renders the latest revision of each page again if its text matches, a second after `time`, as a job queue would.
    fn render_again(&mut self, time: Timestamp, renderer: Renderer, matches: impl Fn(&str) -> bool) {
        let time = time.saturating_add(std::time::Duration::from_secs(1));
        for (title, (rev, text)) in self.latest.iter().filter(|(_, (_, text))| matches(text)) {
            let html = wikitext::to_html(title.as_str(), text, &self.titles, renderer);
            self.events.push(Event { time, title: title.clone(), rev: *rev, html, edit: None });
        }
    }
}

#[cfg(test)]
mod tests;
