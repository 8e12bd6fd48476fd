//! Loads the sample wiki into a store.

use std::collections::BTreeMap;

use rashomon_pages::{
    BucketName, Error, ImportRender, ImportRevision, NewProperty, Page, PropertyName, Result, RevisionRecord,
    RevisionStore, Tid, Title,
};

use super::{Event, domain};

/// The numbers of revisions and renders of a loaded history, including those that were stored before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// The number of revisions.
    pub revisions: u64,
    /// The number of renders.
    pub renders: u64,
}

/// Imports the history page by page, each event with its own time: into blocks if the archive of the store is
/// on, else into rows. Events that are stored already change nothing.
pub(crate) async fn load(buckets: &RevisionStore, history: Vec<Event>) -> Result<Loaded> {
    let archiver = buckets.maintenance().history_archiver();
    let staged = async |page: &Page, name: PropertyName, body: &str| {
        let body = match &archiver {
            Some(archiver) => archiver.stage_bytes(page, &name, &body.to_owned().into()).await?,
            None => buckets.stage_bytes(page, &name, body.as_bytes()).await?,
        };
        Ok::<_, Error>((NewProperty { name, content_type: None, other_headers: BTreeMap::new(), body }, None))
    };
    let mut loaded = Loaded::default();
    let mut pages: BTreeMap<Title, Vec<ImportRevision>> = BTreeMap::new();
    for event in history {
        let page = page_of(event.title);
        let html = PropertyName::new("html").expect("a well-formed name");
        let properties = vec![staged(&page, html, &event.html).await?];
        let render = ImportRender { tid: Tid::imported(&page, event.rev, event.time), properties };
        loaded.renders += 1;
        let revisions = pages.entry(page.title.clone()).or_default();
        let Some(edit) = event.edit else {
            let rendered = revisions.iter_mut().find(|revision| revision.record.rev == event.rev);
            rendered.expect("a revision is saved before it is rendered again").renders.push(render);
            continue;
        };
        let properties = vec![staged(&page, PropertyName::wikitext(), &edit.wikitext).await?];
        let record = RevisionRecord {
            rev: event.rev,
            parent: Some(edit.parent),
            timestamp: event.time,
            user: Some(edit.user),
            comment: Some(edit.comment).filter(|comment| !comment.is_empty()),
            minor: edit.minor,
            export: Default::default(),
            erased: None,
        };
        revisions.push(ImportRevision { record, properties, renders: vec![render] });
        loaded.revisions += 1;
    }
    for (title, revisions) in pages {
        match &archiver {
            Some(archiver) => archiver.import(&page_of(title), revisions).await?,
            None => buckets.import(&page_of(title), revisions).await?,
        };
    }
    if let Some(archiver) = archiver {
        archiver.finish().await?;
    }
    Ok(loaded)
}

fn page_of(title: Title) -> Page {
    Page { domain: domain(), bucket: BucketName::page(), title }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use rashomon_clock::{Clock, SystemClock};
    use rashomon_pages::Settings;
    use rashomon_tables::Memory;

    use super::*;
    use crate::sample_wiki::history;

    async fn buckets() -> RevisionStore {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = Arc::new(Memory::new(Arc::clone(&clock)));
        RevisionStore::open(store, clock, Settings::default(), 1).await.unwrap()
    }

    #[tokio::test]
    async fn sample_is_stored_and_loading_again_changes_nothing() {
        let buckets = buckets().await;
        let events = history().unwrap();
        let first = load(&buckets, events.clone()).await.unwrap();
        let stats = rashomon_pages::operations::stats(&buckets, &domain(), &mut |_| {}).await.unwrap();
        assert_eq!((stats.page.revisions, stats.page.renders), (first.revisions, first.renders));

        load(&buckets, events.clone()).await.unwrap();
        assert_eq!(rashomon_pages::operations::stats(&buckets, &domain(), &mut |_| {}).await.unwrap(), stats);

        let rendered_again = events.iter().find(|event| event.edit.is_none()).unwrap();
        let page = Page { domain: domain(), bucket: BucketName::page(), title: rendered_again.title.clone() };
        let revision = buckets.revision(&page, rendered_again.rev).await.unwrap();
        assert!(revision.renders.len() > 1);
        assert_eq!(revision.renders[0].properties.len(), 2, "html and wikitext");
    }

    #[tokio::test]
    async fn the_sample_is_sound_and_loads_in_a_second() {
        let clock = SystemClock::new();
        let buckets = buckets().await;
        load(&buckets, history().unwrap()).await.unwrap();
        assert!(clock.monotonic() < Duration::from_secs(1), "{:?}", clock.monotonic());
        let report = rashomon_pages::operations::verify(&buckets, &mut |_| {}).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        assert!(report.revisions >= 60, "{report:?}");
    }
}
