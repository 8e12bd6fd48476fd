//! Finds out how long the cluster keeps deleted data.

use std::time::Duration;

use rashomon_tables::Result;

use crate::{errors::unexpected, session::Cluster};

/// Returns the longest `gc_grace_seconds` of the keyspace's tables. A table keeps deletes for this time, and may keep
/// the data that they hide as long. A later compaction drops both.
pub(crate) async fn longest(cluster: &Cluster) -> Result<Duration> {
    const GRACES: &str = "SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = ?";
    let rows = cluster.query(GRACES, (cluster.keyspace().to_owned(),)).await?;
    let mut longest = 0;
    for row in rows.rows::<(Option<i32>,)>().map_err(unexpected)? {
        longest = longest.max(row.map_err(unexpected)?.0.unwrap_or(0));
    }
    Ok(Duration::from_secs(u64::try_from(longest).unwrap_or(0)))
}
