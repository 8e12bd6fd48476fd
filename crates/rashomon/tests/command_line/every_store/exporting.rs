//! `rashomon export`: which pages and revisions it writes, and that an imported export is exported unchanged.

use std::fs;

use crate::{home::Home, wiki::dump};

#[test]
fn export_of_an_imported_export_is_the_same() {
    let Some(home) = Home::new() else { return };
    home.import(&dump("A/Ä", &[("1", "one &amp; &lt;two&gt;"), ("2", ""), ("3", "one")]));
    for (name, second) in [("first.xml", "second.xml"), ("first.jsonl.zst", "second.jsonl.zst")] {
        home.export(&["--history", "--output", name]).ends_with(0);
        let other = if name.contains("xml") { "xml" } else { "jsonl" };
        home.run_on(other, &["import", "--domain", "wiki", name]).ends_with(0).stdout_contains(&["3 stored"]);
        home.run_on(other, &["export", "--domain", "wiki", "--history", "--output", second]).ends_with(0);
        let read = |name| fs::read(home.path().join(name)).unwrap();
        assert!(read(name) == read(second), "{name}");
    }
}

#[test]
fn only_requested_pages_are_exported() {
    let Some(home) = Home::new() else { return };
    home.import(&dump("A", &[("1", "old"), ("2", "new")]));
    home.import(&dump("B", &[("3", "other")]));
    let current = home.export(&[]).ends_with(0).stdout;
    assert!(current.contains("new") && current.contains("other") && !current.contains("old"), "{current}");
    let one = home.export(&["--title", "A", "--history"]).ends_with(0).stdout;
    assert!(one.contains("new") && one.contains("old") && !one.contains("other"), "{one}");
    let ran = home.export(&["--title", "A", "--title", "No such"]).ends_with(3);
    ran.stderr_contains(&["there is no page No_such"]);
    let ran = home.run(&["export", "--domain", "other"]).ends_with(1);
    ran.stderr_contains(&["the store has no domain other; it has wiki"]);
}
