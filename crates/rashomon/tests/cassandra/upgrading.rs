//! `rashomon upgrade` on a keyspace with a table of an earlier version.

use std::fs;

use tempfile::tempdir;

use crate::{
    cluster::run_statements,
    process::run,
    test_stores::{TestStores, ask},
    wiki::dump,
};

/// The statements of this version, with the index of the archive as it was before its last column.
fn earlier(schema: &str) -> String {
    let earlier = schema
        .replace("    kept_at bigint,\n    positions blob\n", "    kept_at bigint\n")
        .replace("archive_index version 3", "archive_index version 2")
        .replace(", kept_at time, positions blob)", ", kept_at time)");
    assert_eq!(schema.len() - earlier.len(), ",\n    positions blob".len() + 2 * ", positions blob".len());
    earlier
}

#[test]
fn table_that_lacks_columns_is_refused_until_the_upgrade() {
    let directory = tempdir().unwrap();
    let path = directory.path();
    let Some(stores) = TestStores::new(path) else { return };
    fs::write(path.join("dump.xml"), dump("A", &[("1", "one"), ("2", "two")])).unwrap();
    let store = stores.arguments("data");
    let on_store = |words: &[&str]| {
        let store: Vec<&str> = store.iter().map(AsRef::as_ref).collect();
        run(path, &[words, &store].concat())
    };
    let schema = on_store(&["cassandra", "schema"]).ends_with(0).stdout;
    ask(stores.node(), async |session| run_statements(&session, &earlier(&schema)).await);

    let import = ["import", "--domain", "wiki", "dump.xml"];
    for words in [&import[..], &["serve", "--listen", "127.0.0.1:0"], &["stats"]] {
        on_store(words).ends_with(1).stderr_contains(&[
            "table archive_index lacks columns in keyspace ",
            "run `rashomon upgrade --store cassandra://",
        ]);
    }
    let upgraded = on_store(&["upgrade"]).ends_with(0);
    assert_eq!(upgraded.stdout, "table archive_index: columns added\n");
    on_store(&["upgrade"]).ends_with(0).stdout_contains(&["no table lacks columns: nothing was changed"]);
    on_store(&import).ends_with(0).stdout_contains(&["2 stored"]);
    on_store(&["verify"]).ends_with(0).stdout_contains(&["sound: 1 page, 2 revisions"]);
}
