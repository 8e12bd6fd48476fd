//! Tests of the late-write window that the store reports.

use std::{sync::LazyLock, time::Duration};

use rashomon_tables::{Schema, TableStore as _, contract::block_on};

use crate::fixtures::{Keyspace, pages, system_clock};

static ONE: LazyLock<Schema> = LazyLock::new(|| pages("one").build());
static OTHER: LazyLock<Schema> = LazyLock::new(|| pages("other").build());

/// The `gc_grace_seconds` of a new table.
const DEFAULT: Duration = Duration::from_secs(864_000);

#[test]
fn late_write_window_is_the_largest_gc_grace_of_the_tables() {
    let Some(keyspace) = Keyspace::new() else { return };
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&ONE).await.expect("created");
        store.create(&OTHER).await.expect("created");
        assert_eq!(store.late_write_window().await.expect("read"), DEFAULT);
        let session = keyspace.session().await;
        for (seconds, expected) in [(3_600, DEFAULT), (1_000_000, Duration::from_secs(1_000_000))] {
            let alter = format!("ALTER TABLE {}.other WITH gc_grace_seconds = {seconds}", keyspace.name());
            session.query_unpaged(alter, ()).await.expect("altered");
            assert_eq!(store.late_write_window().await.expect("read"), expected);
        }
    });
}
