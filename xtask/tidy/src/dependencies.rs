//! The allowed dependencies between crates. The map in `ARCHITECTURE.md` is made from this table.

use toml::{Table, Value};

use super::{Problem, Tree};

/// Every crate of this project, and the crates that it may depend on.
///
/// The tests of a crate may use every crate that it depends on, directly or indirectly. The tests of the bucket layer
/// and of the crates above it may also use those of [`FOR_TESTS`] that do not depend on the tested crate. The tests of
/// [`TESTED_WITH_API`] may use the API, and what the API uses; those of [`PURGES`] may also use [`FOR_TESTS`].
pub(super) const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("rashomon-clock", &[]),
    ("rashomon-audit", &["rashomon-clock"]),
    ("rashomon-watched-file", &[]),
    ("rashomon-admission", &[]),
    ("rashomon-openapi", &[]),
    ("rashomon-connections", &["rashomon-watched-file", "rashomon-clock"]),
    ("rashomon-blocks", &[]),
    ("rashomon-tables", &["rashomon-clock"]),
    ("rashomon-tables-sqlite", &["rashomon-tables", "rashomon-clock"]),
    ("rashomon-tables-cassandra", &["rashomon-tables", "rashomon-clock"]),
    ("rashomon-test-stores", &["rashomon-tables-cassandra", "rashomon-tables", "rashomon-clock"]),
    ("rashomon-records", &["rashomon-tables", "rashomon-clock"]),
    (
        "rashomon-archive-format",
        &["rashomon-records", "rashomon-blocks", "rashomon-tables", "rashomon-clock"],
    ),
    (
        "rashomon-archive",
        &[
            "rashomon-admission",
            "rashomon-archive-format",
            "rashomon-records",
            "rashomon-blocks",
            "rashomon-tables",
            "rashomon-clock",
        ],
    ),
    ("rashomon-retention", &["rashomon-records", "rashomon-tables", "rashomon-clock"]),
    ("rashomon-key-value", &["rashomon-records", "rashomon-tables", "rashomon-clock"]),
    ("rashomon-migration", &["rashomon-records", "rashomon-tables", "rashomon-clock"]),
    (
        "rashomon-buckets",
        &[
            "rashomon-admission",
            "rashomon-archive",
            "rashomon-migration",
            "rashomon-records",
            "rashomon-retention",
            "rashomon-tables",
            "rashomon-clock",
        ],
    ),
    ("rashomon-timeline-redis", &["rashomon-buckets", "rashomon-clock"]),
    ("rashomon-http-client", &["rashomon-records", "rashomon-watched-file"]),
    ("rashomon-transformer-http", &["rashomon-http-client", "rashomon-http-semantics", "rashomon-records"]),
    (
        "rashomon-purges",
        &[
            "rashomon-access",
            "rashomon-http-client",
            "rashomon-http-semantics",
            "rashomon-records",
            "rashomon-tables",
            "rashomon-clock",
        ],
    ),
    ("rashomon-rewriting", &["rashomon-buckets", "rashomon-http-semantics", "rashomon-transformer-http"]),
    ("rashomon-generator-http", &["rashomon-http-client", "rashomon-buckets"]),
    (
        "rashomon-simulation",
        &[
            "rashomon-service",
            "rashomon-buckets",
            "rashomon-key-value",
            "rashomon-tables",
            "rashomon-tables-cassandra",
            "rashomon-tables-sqlite",
            "rashomon-test-stores",
            "rashomon-clock",
        ],
    ),
    ("rashomon-dumps", &["rashomon-buckets", "rashomon-clock"]),
    ("rashomon-entry-dumps", &["rashomon-dumps", "rashomon-buckets", "rashomon-key-value", "rashomon-clock"]),
    ("rashomon-comparison", &["rashomon-dumps", "rashomon-buckets", "rashomon-tables", "rashomon-clock"]),
    (
        "rashomon-service",
        &[
            "rashomon-buckets",
            "rashomon-key-value",
            "rashomon-archive",
            "rashomon-records",
            "rashomon-retention",
            "rashomon-tables",
            "rashomon-clock",
        ],
    ),
    ("rashomon-sample-wiki", &["rashomon-service", "rashomon-buckets", "rashomon-tables", "rashomon-clock"]),
    ("rashomon-backup", &["rashomon-tables-sqlite", "rashomon-tables", "rashomon-clock"]),
    ("rashomon-forms", &["rashomon-records"]),
    ("rashomon-http-semantics", &["rashomon-records", "rashomon-clock"]),
    ("rashomon-access", &["rashomon-records", "rashomon-tables", "rashomon-watched-file", "rashomon-clock"]),
    (
        "rashomon-answers",
        &[
            "rashomon-access",
            "rashomon-forms",
            "rashomon-http-semantics",
            "rashomon-buckets",
            "rashomon-key-value",
            "rashomon-clock",
        ],
    ),
    (
        "rashomon-api",
        &[
            "rashomon-access",
            "rashomon-admission",
            "rashomon-answers",
            "rashomon-audit",
            "rashomon-connections",
            "rashomon-openapi",
            "rashomon-forms",
            "rashomon-http-semantics",
            "rashomon-transformer-http",
            "rashomon-dumps",
            "rashomon-buckets",
            "rashomon-key-value",
            "rashomon-clock",
        ],
    ),
    ("rashomon-forward", &["rashomon-api", "rashomon-client", "rashomon-forms", "rashomon-buckets"]),
    (
        "rashomon-configuration",
        &[
            "rashomon-api",
            "rashomon-forward",
            "rashomon-access",
            "rashomon-audit",
            "rashomon-service",
            "rashomon-generator-http",
            "rashomon-transformer-http",
            "rashomon-http-client",
            "rashomon-purges",
            "rashomon-timeline-redis",
            "rashomon-buckets",
            "rashomon-key-value",
            "rashomon-tables-cassandra",
            "rashomon-clock",
        ],
    ),
    (
        "rashomon",
        &[
            "rashomon-configuration",
            "rashomon-forward",
            "rashomon-api",
            "rashomon-access",
            "rashomon-audit",
            "rashomon-service",
            "rashomon-backup",
            "rashomon-comparison",
            "rashomon-sample-wiki",
            "rashomon-rewriting",
            "rashomon-dumps",
            "rashomon-entry-dumps",
            "rashomon-http-client",
            "rashomon-purges",
            "rashomon-buckets",
            "rashomon-key-value",
            "rashomon-tables",
            "rashomon-tables-cassandra",
            "rashomon-tables-sqlite",
            "rashomon-clock",
        ],
    ),
    (
        "rashomon-fuzz-targets",
        &[
            "rashomon-access",
            "rashomon-api",
            "rashomon-dumps",
            "rashomon-buckets",
            "rashomon-http-semantics",
            "rashomon-key-value",
            "rashomon-blocks",
            "rashomon-tables",
            "rashomon-tables-sqlite",
            "rashomon-clock",
        ],
    ),
    ("rashomon-fuzz", &["rashomon-fuzz-targets"]),
    // The client library is published on its own.
    ("rashomon-client", &[]),
    (
        "rashomon-damage",
        &[
            "rashomon-access",
            "rashomon-api",
            "rashomon-service",
            "rashomon-dumps",
            "rashomon-buckets",
            "rashomon-key-value",
            "rashomon-tables",
            "rashomon-tables-sqlite",
            "rashomon-clock",
        ],
    ),
    ("xtask-tidy", &[]),
    ("xtask", &["xtask-tidy"]),
    ("xtask-calls", &["xtask", "xtask-tidy"]),
    ("xtask-varnish", &["xtask"]),
    // The benchmarks measure these layers beside the service. They use the service as a user would: through
    // the binary and over HTTP.
    (
        "xtask-bench",
        &[
            "xtask",
            "xtask-varnish",
            "rashomon-access",
            "rashomon-blocks",
            "rashomon-dumps",
            "rashomon-buckets",
            "rashomon-key-value",
            "rashomon-tables",
            "rashomon-tables-sqlite",
            "rashomon-clock",
        ],
    ),
];

/// The crates of the bucket layer.
const BUCKET_LAYER: [&str; 2] = ["rashomon-buckets", "rashomon-key-value"];

/// Crates that the tests of the bucket layer and of the crates above it may use: stores, because the promises
/// have to hold on a store that keeps its data, and the service, which erases revisions and verifies stores.
const FOR_TESTS: [&str; 3] = ["rashomon-tables-sqlite", "rashomon-test-stores", "rashomon-service"];

/// Crates whose tests may also use the API, and what the API uses: the tests of the client talk to a server, and those of
/// purges compare its answers before and after a change.
const TESTED_WITH_API: [&str; 2] = ["rashomon-client", PURGES];

/// The crate whose tests need a server that keeps its data, and that erases revisions.
const PURGES: &str = "rashomon-purges";

/// Checks that crates depend on one another only as the table allows.
pub(super) fn between_crates(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, manifest) in packages(tree) {
        let Ok(manifest) = manifest else {
            problems.push(Problem::file(path, "this is not TOML"));
            continue;
        };
        let name = package_name(&manifest);
        let Some((_, allowed)) = ALLOWED_DEPENDENCIES.iter().find(|(from, _)| *from == name) else {
            problems.push(Problem::file(
                path,
                format!(
                    "the crate {name} is not on the map: add it to xtask/tidy/src/dependencies.rs, and run \
                     `cargo xtask tidy --write`"
                ),
            ));
            continue;
        };
        for (used, for_tests) in our_dependencies(&manifest) {
            let above_buckets =
                BUCKET_LAYER.iter().any(|layer| reachable(&name, layer)) && !reachable(&used, &name);
            let fine_in_tests = reachable(&name, &used)
                || (above_buckets && FOR_TESTS.contains(&used.as_str()))
                || (name == PURGES && FOR_TESTS.contains(&used.as_str()))
                || (TESTED_WITH_API.contains(&name.as_str()) && reachable("rashomon-api", &used));
            let fine = allowed.contains(&used.as_str()) || (for_tests && fine_in_tests);
            if !fine {
                problems.push(Problem::file(
                    path,
                    format!(
                        "not allowed: {name} -> {used}. The table in xtask/tidy/src/dependencies.rs decides"
                    ),
                ));
            }
        }
    }
    problems
}

/// Checks that every crate uses the lints of the workspace.
pub(super) fn workspace_lints(tree: &Tree) -> Vec<Problem> {
    packages(tree)
        .filter(|(_, manifest)| {
            let lints = manifest.as_ref().ok().and_then(|manifest| manifest.get("lints")?.get("workspace"));
            lints.and_then(Value::as_bool) != Some(true)
        })
        .map(|(path, _)| Problem::file(path, "add `[lints]` with `workspace = true`"))
        .collect()
}

/// The manifests of packages. The workspace's own manifest is not included.
fn packages(tree: &Tree) -> impl Iterator<Item = (&str, Result<Table, toml::de::Error>)> {
    tree.texts()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"))
        .map(|(path, text)| (path, text.parse::<Table>()))
}

fn package_name(manifest: &Table) -> String {
    let name = manifest.get("package").and_then(|package| package.get("name"));
    name.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The crates of this project that a manifest uses in any section, and whether only its tests use them.
fn our_dependencies(manifest: &Table) -> Vec<(String, bool)> {
    let mut found = section_dependencies(manifest);
    let targets = manifest.get("target").and_then(Value::as_table);
    for target in targets.into_iter().flat_map(Table::values).filter_map(Value::as_table) {
        found.extend(section_dependencies(target));
    }
    found
}

fn section_dependencies(section: &Table) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for (kind, for_tests) in
        [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
    {
        for (key, value) in section.get(kind).and_then(Value::as_table).into_iter().flatten() {
            // A dependency may be renamed.
            let name = value.get("package").and_then(Value::as_str).unwrap_or(key);
            if ALLOWED_DEPENDENCIES.iter().any(|(ours, _)| *ours == name) || name.starts_with("rashomon-") {
                found.push((name.to_owned(), for_tests));
            }
        }
    }
    found
}

/// Whether one crate depends on the other, directly or indirectly. A crate reaches itself.
pub(super) fn reachable(from: &str, to: &str) -> bool {
    let next = ALLOWED_DEPENDENCIES.iter().find(|(name, _)| *name == from).map_or(&[][..], |(_, next)| next);
    from == to || next.iter().any(|next| reachable(next, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, dependencies: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"{name}\"\n{dependencies}");
        let tree = Tree::of(&[("crates/a/Cargo.toml", &manifest)]);
        between_crates(&tree).into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn a_dependency_of_the_table_is_fine_and_another_one_is_not() {
        assert!(check("rashomon-api", "[dependencies]\nrashomon-buckets.workspace = true").is_empty());
        let new = check("rashomon-api", "[dependencies]\nrashomon-tables.workspace = true");
        assert!(new[0].contains("rashomon-api -> rashomon-tables"), "{new:?}");
    }

    #[test]
    fn a_dependency_is_seen_under_another_name_and_for_one_target() {
        let renamed = "[dependencies]\nstore = { package = \"rashomon-tables-sqlite\", path = \"x\" }";
        assert_eq!(check("rashomon-buckets", renamed).len(), 1);
        let target = "[target.'cfg(unix)'.dependencies]\nrashomon-api = { path = \"x\" }";
        assert_eq!(check("rashomon-buckets", target).len(), 1);
        assert_eq!(
            check("rashomon-buckets", "[build-dependencies]\nrashomon-api = { path = \"x\" }").len(),
            1
        );
    }

    #[test]
    fn tests_may_reach_down_and_to_a_store_or_the_service_and_not_up() {
        let tests_of = |name, used| check(name, &format!("[dev-dependencies]\n{used}.workspace = true"));
        assert!(tests_of("rashomon-api", "rashomon-tables").is_empty());
        assert!(tests_of("rashomon-buckets", "rashomon-tables-sqlite").is_empty());
        assert!(tests_of("rashomon-dumps", "rashomon-service").is_empty());
        assert_eq!(tests_of("rashomon-buckets", "rashomon-service").len(), 1);
        assert_eq!(tests_of("rashomon-records", "rashomon-service").len(), 1);
        assert_eq!(tests_of("rashomon-tables", "rashomon-buckets").len(), 1);
        assert_eq!(tests_of("rashomon-tables", "rashomon-tables-sqlite").len(), 1);
        assert_eq!(tests_of("rashomon-clock", "rashomon-tables-sqlite").len(), 1);
        assert_eq!(
            check("rashomon-buckets", "[dependencies]\nrashomon-tables-sqlite.workspace = true").len(),
            1
        );
    }

    #[test]
    fn only_the_tests_of_the_client_use_the_api() {
        let uses = |section, used| check("rashomon-client", &format!("[{section}]\n{used}.workspace = true"));
        assert!(uses("dev-dependencies", "rashomon-api").is_empty());
        assert!(uses("dev-dependencies", "rashomon-tables").is_empty());
        assert_eq!(uses("dev-dependencies", "rashomon-service").len(), 1);
        assert_eq!(uses("dependencies", "rashomon-api").len(), 1);
        assert_eq!(uses("dependencies", "rashomon-clock").len(), 1);
    }

    #[test]
    fn a_crate_that_is_not_on_the_map_is_named() {
        assert!(check("rashomon-magic", "")[0].contains("rashomon-magic is not on the map"));
        assert_eq!(check("rashomon-api", "[dependencies]\nrashomon-magic.workspace = true").len(), 1);
    }

    #[test]
    fn the_table_has_no_cycle() {
        for (name, next) in ALLOWED_DEPENDENCIES {
            assert!(!next.iter().any(|next| reachable(next, name)), "{name} reaches itself");
        }
    }

    #[test]
    fn a_crate_without_the_lints_of_the_workspace_is_named() {
        let without = Tree::of(&[("crates/a/Cargo.toml", "[package]\nname = \"a\"")]);
        assert_eq!(workspace_lints(&without).len(), 1);
        let with = Tree::of(&[("crates/a/Cargo.toml", "[package]\n[lints]\nworkspace = true")]);
        assert!(workspace_lints(&with).is_empty());
    }
}
