//! The tombstones of single SELECTs, from Cassandra's traces. Traces are exact; in the histogram of tombstones, a
//! SELECT without tombstones is counted with one.

use std::{collections::BTreeMap, thread, time::Duration};

use anyhow::Result;
use scylla::client::session::Session;
use tokio::runtime::Runtime;
use xtask::cassandra::Node;

use crate::cassandra::metrics;

/// The time within which the traces of a request are stored: Cassandra writes them after the request.
const UNTIL_WRITTEN: Duration = Duration::from_secs(3);

/// Traces all requests while `ask` runs. Returns, for each table, the number of tombstones of each read in the stored
/// traces, including earlier traces.
pub(super) fn tombstones(
    node: &Node,
    runtime: &Runtime,
    session: &Session,
    ask: impl FnOnce() -> Result<()>,
) -> Result<BTreeMap<String, Vec<u64>>> {
    metrics::nodetool(node, &["settraceprobability", "1"])?;
    let asked = ask();
    metrics::nodetool(node, &["settraceprobability", "0"])?;
    asked?;
    thread::sleep(UNTIL_WRITTEN);
    runtime.block_on(read(session))
}

async fn read(session: &Session) -> Result<BTreeMap<String, Vec<u64>>> {
    let sessions = "SELECT CAST(session_id AS text), parameters['query'] FROM system_traces.sessions";
    let sessions = session.query_unpaged(sessions, ()).await?.into_rows_result()?;
    let mut tables = BTreeMap::new();
    for row in sessions.rows::<(String, Option<String>)>()? {
        let (id, query) = row?;
        if let Some(table) = query.as_deref().and_then(table_of) {
            tables.insert(id, table.to_owned());
        }
    }
    let events = "SELECT CAST(session_id AS text), activity FROM system_traces.events";
    let events = session.query_unpaged(events, ()).await?.into_rows_result()?;
    let mut met: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in events.rows::<(String, String)>()? {
        let (id, activity) = row?;
        if let (Some(table), Some(tombstones)) = (tables.get(&id), tombstones_in(&activity)) {
            met.entry(table.clone()).or_default().push(tombstones);
        }
    }
    Ok(met)
}

/// The table after ` FROM `, without its keyspace and quotes. This is the table of a SELECT, or of a DELETE.
fn table_of(query: &str) -> Option<&str> {
    let (_, from) = query.split_once(" FROM ")?;
    let name = from.split([' ', ';']).next()?;
    name.rsplit('.').next().map(|name| name.trim_matches('"'))
}

/// Parses the tombstones in a line such as `Read 1 live rows and 0 tombstone cells`.
fn tombstones_in(activity: &str) -> Option<u64> {
    let (_, rest) = activity.strip_prefix("Read ")?.split_once(" live rows and ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_tombstones_are_found_in_traces() {
        assert_eq!(table_of("SELECT body FROM k.\"renders\" WHERE page = ?"), Some("renders"));
        assert_eq!(table_of("SELECT body FROM renders"), Some("renders"));
        assert_eq!(table_of("INSERT INTO renders"), None);
        assert_eq!(tombstones_in("Read 1 live rows and 12 tombstone cells"), Some(12));
        assert_eq!(tombstones_in("Merged data from memtables and 2 sstables"), None);
    }
}
