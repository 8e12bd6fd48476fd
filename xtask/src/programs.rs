//! The test programs of the workspace, built by the command that all steps use, and run one by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process::{cargo_command, cargo_with_clippy};

/// A compiled test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// The package whose tests it has.
    pub(crate) package: String,
    /// The name of its target: that of a file or folder in `tests`, or of the package's library or program.
    pub(crate) target: String,
    /// The file to run.
    pub(crate) file: PathBuf,
    /// The folder of the package, in which tests run.
    pub(crate) folder: PathBuf,
}

impl TestProgram {
    /// The command that runs the program as `cargo test` would.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// What a build printed, and the test programs that it has made or found.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) programs: Vec<TestProgram>,
    /// Errors and warnings of the compiler, as it renders them.
    pub(crate) diagnostics: Vec<String>,
    pub(crate) succeeded: bool,
}

/// Builds all programs and tests of the workspace with clippy. What has not changed is not compiled again.
pub(crate) fn build() -> Result<Built> {
    let mut command = cargo_with_clippy("build")?;
    command.args(["--all-targets", "--quiet", "--message-format=json"]).current_dir(crate::root());
    let output = command.stderr(std::process::Stdio::inherit()).output().context("cannot start cargo")?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(built(messages, output.status.success()))
}

fn built(messages: impl Iterator<Item = Value>, succeeded: bool) -> Built {
    let mut built = Built { programs: Vec::new(), diagnostics: Vec::new(), succeeded };
    for message in messages {
        if let Some(text) = message["message"]["rendered"].as_str() {
            built.diagnostics.push(text.to_owned());
        }
        built.programs.extend(test_program(&message));
    }
    built
}

/// The test program of a message of cargo. `None` for any other message.
fn test_program(message: &Value) -> Option<TestProgram> {
    let is_test = message["profile"]["test"].as_bool()?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = package_name(message["package_id"].as_str()?);
    is_test.then_some(TestProgram {
        package: package.to_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        file: message["executable"].as_str()?.into(),
        folder: folder.to_owned(),
    })
}

/// The name in a package id: `path+file:///a/b#name@0.1.0`, or `path+file:///a/name#0.1.0` if the folder has the same
/// name.
fn package_name(id: &str) -> &str {
    let (before, after) = id.rsplit_once('#').unwrap_or((id, id));
    match after.split_once('@') {
        Some((name, _)) => name,
        None => before.rsplit('/').next().unwrap_or(before),
    }
}

/// The packages of the workspace, where they are, and which use which.
#[derive(Debug)]
pub(crate) struct Packages {
    folders: BTreeMap<String, PathBuf>,
    /// The packages that a package or its tests use directly.
    uses: BTreeMap<String, BTreeSet<String>>,
}

impl Packages {
    pub(crate) fn load() -> Result<Self> {
        let mut command = cargo_command();
        command.args(["metadata", "--no-deps", "--format-version", "1", "--locked"]);
        let output = command.current_dir(crate::root()).output().context("cannot start cargo")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self::of(&serde_json::from_slice(&output.stdout)?).context("cargo metadata has an unknown form")
    }

    fn of(metadata: &Value) -> Option<Self> {
        let (mut folders, mut uses) = (BTreeMap::new(), BTreeMap::new());
        for package in metadata["packages"].as_array()? {
            let name = package["name"].as_str()?.to_owned();
            let folder = Path::new(package["manifest_path"].as_str()?).parent()?.to_owned();
            let used = package["dependencies"].as_array()?.iter();
            let used = used.filter(|used| used["path"].is_string());
            let used = used.filter_map(|used| Some(used["name"].as_str()?.to_owned())).collect();
            folders.insert(name.clone(), folder);
            uses.insert(name, used);
        }
        Some(Self { folders, uses })
    }

    /// The package of a file: the one with the innermost folder. `None` for a file outside of all packages.
    pub(crate) fn of_file(&self, file: &Path) -> Option<&str> {
        let within = self.folders.iter().filter(|(_, folder)| file.starts_with(folder));
        within.max_by_key(|(_, folder)| folder.components().count()).map(|(name, _)| name.as_str())
    }

    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.folders.keys().cloned().collect()
    }

    /// These packages, and all that use one of them, directly or indirectly.
    pub(crate) fn with_users(&self, mut found: BTreeSet<String>) -> BTreeSet<String> {
        loop {
            let users =
                self.uses.iter().filter(|(name, used)| !found.contains(*name) && !used.is_disjoint(&found));
            let users: Vec<String> = users.map(|(name, _)| name.clone()).collect();
            if users.is_empty() {
                return found;
            }
            found.extend(users);
        }
    }
}

/// Whether sources declare a test or a module of tests with this in its path.
#[cfg(test)]
pub(crate) fn selects_a_test(part: &str, sources: &str) -> bool {
    let name = part.trim_end_matches(':').rsplit(':').next().unwrap_or_default();
    if part.ends_with("::") {
        return sources.contains(&format!("mod {name};")) || sources.contains(&format!("mod {name} {{"));
    }
    let mut declarations = sources.lines().filter(|line| line.contains("fn ") || line.contains("mod "));
    declarations.any(|line| line.contains(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn test_programs_and_diagnostics_are_found_in_the_messages_of_cargo() {
        let artifact = |test: bool| {
            json!({
                "reason": "compiler-artifact", "package_id": "path+file:///w/crates/a#rashomon-a@0.1.0",
                "manifest_path": "/w/crates/a/Cargo.toml", "target": {"name": "http"},
                "profile": {"test": test}, "executable": "/w/target/debug/deps/http-1",
            })
        };
        let warning = json!({"reason": "compiler-message", "message": {"rendered": "warning: a\n"}});
        let built = built([artifact(true), artifact(false), warning].into_iter(), true);
        let expected = TestProgram {
            package: "rashomon-a".into(),
            target: "http".into(),
            file: "/w/target/debug/deps/http-1".into(),
            folder: "/w/crates/a".into(),
        };
        assert_eq!((built.programs, built.diagnostics), (vec![expected], vec!["warning: a\n".to_owned()]));
        assert_eq!(package_name("path+file:///w/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn users_of_a_package_are_found_through_others_and_through_tests() {
        let package = |name: &str, folder: &str, uses: &[&str]| {
            let uses: Vec<_> =
                uses.iter().map(|used| json!({"name": used, "path": "/w", "kind": "dev"})).collect();
            json!({"name": name, "manifest_path": format!("{folder}/Cargo.toml"), "dependencies": uses})
        };
        let metadata = json!({"packages": [
            package("a", "/w/a", &[]), package("b", "/w/b", &["a"]), package("c", "/w/c", &["b"]),
            package("inner", "/w/a/inner", &[]),
        ]});
        let packages = Packages::of(&metadata).unwrap();
        let users = |name: &str| {
            packages.with_users(BTreeSet::from([name.to_owned()])).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(users("a"), ["a", "b", "c"]);
        assert_eq!(users("c"), ["c"]);
        assert_eq!(packages.of_file(Path::new("/w/a/inner/src/lib.rs")), Some("inner"));
        assert_eq!(packages.of_file(Path::new("/w/docs/a.md")), None);
    }
}
