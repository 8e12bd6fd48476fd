//! Names of keyspaces, tables and columns in CQL.

use std::borrow::Cow;

use rashomon_tables::{Error, Result};

/// The maximum length of a keyspace's name.
const MAX_KEYSPACE: usize = 48;

/// Words that Cassandra or ScyllaDB reserves in CQL. A name that is a reserved word has to be quoted.
const RESERVED: &[&str] = &[
    "add",
    "allow",
    "alter",
    "and",
    "apply",
    "asc",
    "authorize",
    "batch",
    "begin",
    "by",
    "cast",
    "columnfamily",
    "create",
    "default",
    "delete",
    "desc",
    "describe",
    "drop",
    "entries",
    "execute",
    "from",
    "full",
    "grant",
    "if",
    "in",
    "index",
    "infinity",
    "insert",
    "into",
    "is",
    "keyspace",
    "limit",
    "materialized",
    "mbean",
    "mbeans",
    "modify",
    "nan",
    "norecursive",
    "not",
    "null",
    "of",
    "on",
    "or",
    "order",
    "primary",
    "rename",
    "replace",
    "revoke",
    "schema",
    "scylla_clustering_bound",
    "scylla_counter_shard_list",
    "scylla_timeuuid_list_index",
    "select",
    "set",
    "table",
    "to",
    "token",
    "truncate",
    "unlogged",
    "unset",
    "update",
    "use",
    "using",
    "view",
    "where",
    "with",
];

/// Returns the name in CQL, quoted if necessary. Names are `[a-z][a-z0-9_]*`, so no character needs to be escaped.
pub(crate) fn quoted(name: &str) -> Cow<'_, str> {
    if RESERVED.contains(&name) { format!("\"{name}\"").into() } else { name.into() }
}

/// Whether the name is valid for a keyspace: `[a-z][a-z0-9_]*`, at most 48 characters.
#[must_use]
pub fn is_keyspace(name: &str) -> bool {
    let letters = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    letters && name.starts_with(|first: char| first.is_ascii_lowercase()) && name.len() <= MAX_KEYSPACE
}

/// Checks the name of a keyspace. `Invalid` unless it is valid.
pub(crate) fn check_keyspace(name: &str) -> Result<()> {
    if is_keyspace(name) {
        Ok(())
    } else {
        Err(Error::Invalid(format!(
            "`{name}` is not a name of a keyspace: use lower-case letters, digits and `_`, a letter first, \
             at most {MAX_KEYSPACE} characters"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_cql_are_quoted() {
        assert_eq!(quoted("index"), "\"index\"");
        assert_eq!(quoted("timestamp"), "timestamp");
        assert!(RESERVED.is_sorted());
    }

    #[test]
    fn names_of_keyspaces_are_checked() {
        for good in ["a", "wiki_2"] {
            assert!(check_keyspace(good).is_ok(), "{good}");
        }
        for bad in ["", "Wiki", "2wiki", "_wiki", "wiki-2", "wiki; DROP", &"a".repeat(49)] {
            assert!(matches!(check_keyspace(bad), Err(Error::Invalid(_))), "{bad}");
        }
    }
}
