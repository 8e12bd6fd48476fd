//! Tests the API with schemathesis, which generates requests from `/openapi.json`, and checks each answer
//! against the document.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Outcome, demo, resources::StepResources};
use crate::{
    http::Client,
    process::{log_file, run_logged},
    tools::Tool,
};

/// The seed is fixed, so that a change is not stopped by an unrelated failure.
const SEED: &str = "1";

/// The number of requests generated for each operation, in addition to those of the phases `examples` and
/// `coverage`.
const EXAMPLES: &str = "50";

/// The time limit of each of the two runs.
const RUN_LIMIT: Duration = Duration::from_secs(5 * 60);

/// The settings, which list the accepted statuses besides success, with the reasons.
const SETTINGS: &str = "xtask/schemathesis.toml";

/// Types of bodies that schemathesis cannot generate.
const UNKNOWN_TYPES: [&str; 1] = ["multipart/related"];

pub(super) fn run(resources: &mut StepResources) -> Result<Outcome> {
    let program = resources.toolbox.fetch(Tool::Schemathesis)?;
    let (service, _) = demo::start()?;
    let base = format!("http://{}", service.address());
    let folder = tempfile::tempdir()?;
    let (status, document) = Client::connect(service.address())?.get("/openapi.json")?;
    ensure!(status == 200, "/openapi.json is answered with {status}");
    let with_queries = folder.path().join("with-queries.json");
    fs::write(&with_queries, sub_resources_as_paths(&document)?)?;
    let served = format!("{base}/openapi.json");
    let runs = [
        ("served", served.as_str()),
        ("queries", with_queries.to_str().context("the path of the temporary folder is not UTF-8")?),
    ];
    for (name, document) in runs {
        if let Some(failure) = run_schemathesis(&program, name, document, &base)? {
            return Ok(Outcome::Failed(failure));
        }
    }
    let status = service.stop()?;
    ensure!(status.success(), "the demo ended with {status}");
    Ok(Outcome::Passed("no finding, for paths and for queries".to_owned()))
}

/// Runs schemathesis on a document. Returns a description of the failures.
fn run_schemathesis(program: &Path, name: &str, document: &str, base: &str) -> Result<Option<String>> {
    let mut command = Command::new(program);
    command
        .current_dir(crate::root())
        .args(["--config-file", SETTINGS, "run", document, "--url", base, "--checks", "all", "--seed", SEED])
        .args(["--max-examples", EXAMPLES, "--generation-database", "none"])
        .args(["--no-shrink", "--continue-on-failure", "--no-color"]);
    let log = log_file(&format!("schemathesis-{name}"));
    let finished =
        run_logged(command, &log, RUN_LIMIT, |line| line.contains("❌") || line.starts_with("- "))?;
    Ok((!finished.status.success())
        .then(|| format!("{}; the whole output is in {}", finished.status, log.display())))
}

/// Replaces the document's `paths` by its `x-ms-paths`, which schemathesis does not know, without [`UNKNOWN_TYPES`].
fn sub_resources_as_paths(document: &[u8]) -> Result<String> {
    let mut document: Value = serde_json::from_slice(document)?;
    let members = document.as_object_mut().context("the document is not an object")?;
    let mut paths = members.remove("x-ms-paths").context("the document has no x-ms-paths")?;
    let operations = paths.as_object_mut().context("x-ms-paths is not an object")?.values_mut();
    for operation in operations.filter_map(Value::as_object_mut).flat_map(|item| item.values_mut()) {
        if let Some(Value::Object(content)) = operation.pointer_mut("/requestBody/content") {
            content.retain(|media_type, _| !UNKNOWN_TYPES.contains(&media_type.as_str()));
        }
    }
    members.insert("paths".to_owned(), paths);
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_resources_become_paths() {
        let document = r#"{"paths":{"/a":{}},"x-ms-paths":{"/a?b":{"post":{"requestBody":{"content":
            {"multipart/related":{},"multipart/mixed":{}}}}}}}"#;
        let expected = r#"{"paths":{"/a?b":{"post":{"requestBody":{"content":{"multipart/mixed":{}}}}}}}"#;
        assert_eq!(sub_resources_as_paths(document.as_bytes()).unwrap(), expected);
        assert!(sub_resources_as_paths(b"{}").is_err());
    }
}
