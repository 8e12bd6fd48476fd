use super::*;

fn edits(events: &[Event]) -> Vec<(&Event, &Edit)> {
    events.iter().filter_map(|event| event.edit.as_ref().map(|edit| (event, edit))).collect()
}

#[test]
fn sample_shows_every_feature() {
    let events = history().unwrap();
    let edits = edits(&events);
    let titles: BTreeSet<&str> = edits.iter().map(|(event, _)| event.title.as_str()).collect();
    assert!(titles.len() >= 6, "{titles:?}");
    assert!(edits.len() >= 60, "{} revisions", edits.len());
    assert!(titles.iter().any(|title| title.contains('/') && !title.is_ascii()), "{titles:?}");

    let users: BTreeSet<&str> = edits.iter().map(|(_, edit)| edit.user.as_str()).collect();
    assert!(users.len() >= 5, "{users:?}");
    assert!(edits.iter().any(|(_, edit)| edit.minor));
    assert!(edits.iter().any(|(_, edit)| edit.wikitext.is_empty()), "an empty revision");
    assert!(edits.iter().any(|(_, edit)| edit.wikitext.starts_with("#REDIRECT ")));
    assert!(
        edits.iter().any(|(event, edit)| {
            edits.iter().any(|(other, text)| {
                other.title == event.title && other.rev < event.rev && text.wikitext == edit.wikitext
            })
        }),
        "a revert"
    );

    let mut renders: BTreeMap<Revision, usize> = BTreeMap::new();
    events.iter().for_each(|event| *renders.entry(event.rev).or_default() += 1);
    assert!(renders.values().filter(|&&count| count > 1).count() >= 10);
    assert!(renders.values().any(|&count| count > 2));
}

#[test]
fn numbers_rise_with_time_and_parents_come_first() {
    let events = history().unwrap();
    let mut latest: BTreeMap<&Title, Revision> = BTreeMap::new();
    let mut last = None;
    for (event, edit) in edits(&events) {
        assert!(last < Some((event.time, event.rev)), "{event:?}");
        last = Some((event.time, event.rev));
        let parent = latest.insert(&event.title, event.rev).map_or(Parent::None, Parent::Revision);
        assert_eq!(edit.parent, parent, "{event:?}");
    }
    assert!(events.is_sorted_by_key(|event| event.time));
}

#[test]
fn every_link_target_exists_at_the_end() {
    let events = history().unwrap();
    let mut newest: BTreeMap<&Title, &Event> = BTreeMap::new();
    for event in &events {
        newest.insert(&event.title, event);
    }
    for event in newest.values() {
        assert!(!event.html.contains("class=\"new\""), "{}: {}", event.title, event.html);
    }
}

#[test]
fn page_with_a_link_to_a_new_one_is_rendered_again() {
    let events = history().unwrap();
    let renders: Vec<&Event> = (events.iter())
        .filter(|event| event.title.as_str() == "The_Night_of_the_Marigold" && event.edit.is_none())
        .collect();
    let first = renders.first().unwrap();
    assert!(!first.html.contains("class=\"new\"") || renders.len() > 1);
    for pair in renders.windows(2).filter(|pair| pair[0].rev == pair[1].rev) {
        assert_ne!(pair[0].html, pair[1].html, "a render that shows nothing new");
    }
}

#[test]
fn contradictory_file_is_reported() {
    let file = |revision: &str| {
        format!(
            "title = 'T'\n[[revision]]\ntime = '2004-01-01T00:00:00Z'\nuser = 'U'\ncomment = ''\n{revision}"
        )
    };
    let problem =
        |revision: &str| PageFile::parse(&file(revision)).unwrap().revisions().unwrap_err().to_string();
    assert!(problem("replace = [{ old = 'a', new = 'b' }]").contains("T, revision 1: 0 times in the text"));
    assert!(problem("revert_to = 1").contains("no revision 1"));
    assert!(problem("text = 'a'\nappend = 'b'").contains("exactly one of"));
    assert!(problem("").contains("exactly one of"));
}
