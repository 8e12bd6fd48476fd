#!/bin/sh
# Takes one of the four steps of a snapshot of Rashomon's tables, on one node of a Cassandra cluster.
#
#   sh cassandra-snapshot.sh KEYSPACE NAME STEP [OPTION OF NODETOOL...]
#
# Run step 1 on every node, then step 2 on every node, and so on. A row that refers to another row is in a
# lower step than that row, so the snapshot never refers to something that it lacks. cassandra-backup.md has
# the whole procedure.
set -eu
keyspace=$1 name=$2 step=$3
shift 3
case $step in
    1) tables='due_cursors purge_cursors retention_walks chunk_references seen_time' ;;
    2) tables='revisions_by_time revisions_by_tid revisions renders
               current by_rev historical render_content revision_content
               bucket_entries entry_parts counters' ;;
    3) tables='archive_index archive_notes archive_epochs erasures culled culled_renders heads due purges
               retention_clock revision_timeline render_timeline chunk_sets chunk_copies
               pages titles domains site_infos tokens token_uses
               entry_keys entry_chunk_sets buckets counter_requests' ;;
    4) tables='archive_blocks chunks deleted_buckets' ;;
    *) echo "the step is 1, 2, 3 or 4" >&2; exit 2 ;;
esac
list=
for table in $tables; do
    list=$list${list:+,}$keyspace.$table
done
# `snapshot` flushes, too. But it does not wait for a flush of a table that runs already, and then lacks its rows.
nodetool "$@" flush -- "$keyspace" $tables
exec nodetool "$@" snapshot -t "$name" -kt "$list"
