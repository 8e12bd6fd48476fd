//! Loads the sample wiki into a store, with ordinary writes.

use std::collections::BTreeMap;

use rashomon_buckets::{
    BucketName, NewProperty, NewRender, NewRevision, Page, PropertyName, RenderBase, Result, RevisionStore,
};

use super::{Event, domain};

/// The numbers of loaded revisions and renders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) revisions: u64,
    pub(crate) renders: u64,
}

/// Writes the history in its order, each event with its own time. Events that are stored already change
/// nothing.
pub(crate) async fn load(buckets: &RevisionStore, history: Vec<Event>) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    for event in history {
        let page = Page { domain: domain(), bucket: BucketName::page(), title: event.title };
        let html = property(buckets, &page, "html", &event.html).await?;
        loaded.renders += 1;
        match event.edit {
            Some(edit) => {
                let wikitext = property(buckets, &page, "wikitext", &edit.wikitext).await?;
                let new = NewRevision {
                    rev: event.rev,
                    parent: Some(edit.parent),
                    timestamp: Some(event.time),
                    user: Some(edit.user),
                    comment: Some(edit.comment).filter(|comment| !comment.is_empty()),
                    minor: edit.minor,
                    if_latest: None,
                    properties: vec![wikitext, html],
                };
                buckets.put_revision(&page, new).await?;
                loaded.revisions += 1;
            }
            None => {
                let base = RenderBase::Revision(event.rev);
                let new =
                    NewRender { base, timestamp: Some(event.time), if_latest: None, properties: vec![html] };
                buckets.put_render(&page, new).await?;
            }
        }
    }
    Ok(loaded)
}

async fn property(buckets: &RevisionStore, page: &Page, name: &str, body: &str) -> Result<NewProperty> {
    let name = PropertyName::new(name).expect("a well-formed name");
    let body = buckets.stage_bytes(page, &name, body.as_bytes()).await?;
    Ok(NewProperty { name, content_type: None, other_headers: BTreeMap::new(), body })
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use rashomon_buckets::Settings;
    use rashomon_clock::{Clock, SystemClock};
    use rashomon_tables::Memory;

    use super::*;
    use crate::demo::history;

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
        let stats = rashomon_service::stats(&buckets, &domain(), &mut |_| {}).await.unwrap();
        assert_eq!((stats.revisions, stats.renders), (first.revisions, first.renders));

        load(&buckets, events.clone()).await.unwrap();
        assert_eq!(rashomon_service::stats(&buckets, &domain(), &mut |_| {}).await.unwrap(), stats);

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
        let report = rashomon_service::verify(&buckets, &mut |_| {}).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        assert!(report.revisions >= 60, "{report:?}");
    }
}
