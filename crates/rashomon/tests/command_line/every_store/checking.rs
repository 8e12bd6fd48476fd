//! `rashomon verify` and `rashomon stats`.

use serde_json::Value;

use crate::{home::Home, wiki::dump};

#[test]
fn verify_and_stats_count_a_sound_store() {
    let Some(home) = Home::new() else { return };
    home.import_rows(&dump("A", &[("1", "one"), ("2", "three")]));
    let ran = home.run(&["verify"]).ends_with(0);
    ran.stdout_contains(&["sound: 1 page, 2 revisions, 2 renders, 2 bodies"]);
    let ran = home.run(&["stats"]).ends_with(0);
    ran.stdout_contains(&["wiki: 1 page, 2 revisions, 2 renders", "8 B", "wikitext: 2"]);
    let ran = home.run(&["stats", "--json"]).ends_with(0);
    let stats: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(stats["domains"]["wiki"]["revisions"], 2);
    assert_eq!(stats["domains"]["wiki"]["raw_bytes"], 8);
    assert_eq!(stats["domains"]["wiki"]["properties"]["wikitext"]["bodies"], 2);
}

#[test]
fn missing_store_is_not_created() {
    let Some(home) = Home::new() else { return };
    for words in [&["verify"][..], &["stats"], &["export", "--domain", "wiki"]] {
        for _ in 0..2 {
            home.run(words).ends_with(2).stderr_contains(&["there is no ", "--"]);
        }
    }
}
