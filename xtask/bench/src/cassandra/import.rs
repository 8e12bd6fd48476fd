//! Imports the oVirt wiki into Cassandra and into SQLite, one after the other.

use std::{
    ffi::OsStr,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};
use rashomon_clock::Clock;
use xtask::cassandra::Node;

use super::{driver::Driver, metrics, url};
use crate::{
    import::{FILE, REVISIONS, stored_revisions},
    report::Report,
    service,
};

/// Imports into a new keyspace and into a new folder, and adds the figures of both. Drops the keyspace.
pub(super) async fn run(
    binary: &Path,
    node: &Node,
    driver: &Driver,
    keyspace: &str,
    report: &mut Report,
    clock: &dyn Clock,
) -> Result<()> {
    let data = service::data_folder()?;
    let sqlite = data.path().join("store");
    let url = url(keyspace);
    let in_cassandra = [OsStr::new("--store"), url.as_ref()];
    let in_sqlite = [OsStr::new("--data"), sqlite.as_os_str()];

    let seconds = import(binary, &in_cassandra, clock)?;
    report.add("import into Cassandra", "revisions a second", REVISIONS as f64 / seconds);
    metrics::flush(node, keyspace)?;
    let bytes = service::size(&node.data(keyspace))? as f64;
    let seconds = import(binary, &in_sqlite, clock)?;
    report.add("import into SQLite", "revisions a second", REVISIONS as f64 / seconds);
    let bytes_of_sqlite = service::size(&sqlite)? as f64;
    report.add("on disk in Cassandra", "MiB", bytes / f64::from(1 << 20));
    report.add("on disk in SQLite", "MiB", bytes_of_sqlite / f64::from(1 << 20));
    report.add("on disk, Cassandra / SQLite", "", bytes / bytes_of_sqlite);
    driver.drop_keyspace(keyspace).await
}

/// Runs an import, and returns its seconds from the start of the command to its end.
fn import(binary: &Path, store: &[&OsStr], clock: &dyn Clock) -> Result<f64> {
    let started = clock.monotonic();
    let output = Command::new(binary)
        .args(["import", "--domain", service::DOMAIN])
        .args(store)
        .arg(xtask::test_data().join(FILE))
        .stdin(Stdio::null())
        .output()?;
    let seconds = (clock.monotonic() - started).as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the import ended with {}: {said}", output.status);
    let stored = stored_revisions(binary, store)?;
    ensure!(stored == REVISIONS, "{stored} revisions are there after the import, and not {REVISIONS}");
    Ok(seconds)
}
