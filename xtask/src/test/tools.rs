//! What the tests need beside Rust, and how it is had.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Result, anyhow, bail};

use super::cassandra::Starting;
use crate::process::{cargo, find_program, run_logged};

/// The version that the checks of dependencies are made with, so that a new one changes nothing by itself.
const CARGO_DENY: &str = "0.20.2";
/// Building cargo-deny from its source takes minutes on a small machine.
const FETCH_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Something that a step needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Tool {
    CargoDeny,
    Chromium,
    Curl,
    Ip,
    Java,
    Maven,
    Nft,
    RedisServer,
    SevenZip,
    Xmllint,
    TestData,
}

/// Where tools are, once they are looked for.
#[derive(Debug)]
pub(crate) struct Toolbox {
    must_have_all: bool,
    found: HashMap<Tool, Result<PathBuf, String>>,
    package_lists_are_new: bool,
    /// The node that was begun to be started when the run began.
    pub(super) cassandra: Option<Starting>,
}

impl Toolbox {
    pub(crate) fn new(must_have_all: bool) -> Self {
        Self { must_have_all, found: HashMap::new(), package_lists_are_new: false, cassandra: None }
    }

    /// Whether a tool that cannot be had is a failure.
    pub(super) const fn must_have_all(&self) -> bool {
        self.must_have_all
    }

    /// Where the tool is; fetches it where it is missing and we may.
    pub(crate) fn fetch(&mut self, tool: Tool) -> Result<PathBuf> {
        if !self.found.contains_key(&tool) {
            let found = self.find_or_fetch(tool).map_err(|error| format!("{error:#}"));
            self.found.insert(tool, found);
        }
        self.found[&tool].clone().map_err(|reason| anyhow!(reason))
    }

    /// Waits for what is still on its way, so that nothing is left behind when we end.
    pub(super) fn close(self) {
        drop(self.cassandra.map(Starting::wait));
    }

    fn find_or_fetch(&mut self, tool: Tool) -> Result<PathBuf> {
        match tool {
            Tool::CargoDeny => cargo_deny(),
            Tool::Chromium => self.debian("chromium", "chromium"),
            Tool::Curl => self.debian("curl", "curl"),
            Tool::Ip => self.debian("ip", "iproute2"),
            Tool::Java => self.java(),
            Tool::Maven => self.debian("mvn", "maven"),
            Tool::Nft => self.debian("nft", "nftables"),
            Tool::RedisServer => self.debian("redis-server", "redis-server"),
            Tool::SevenZip => self.debian("7z", "p7zip-full"),
            Tool::Xmllint => self.debian("xmllint", "libxml2-utils"),
            Tool::TestData => test_data(),
        }
    }

    /// The Java that Cassandra 5.0 runs on, and no other one.
    fn java(&mut self) -> Result<PathBuf> {
        let java = self.debian("java", "openjdk-17-jre-headless")?;
        let version = Command::new(&java).arg("-version").output()?.stderr;
        let version = String::from_utf8_lossy(&version);
        if !version.contains("version \"17") {
            bail!(
                "{} is not Java 17, which Cassandra 5.0 needs: {}",
                java.display(),
                version.lines().next().unwrap_or_default()
            );
        }
        Ok(java)
    }

    /// A program, from its Debian package if it is missing.
    fn debian(&mut self, program: &str, package: &str) -> Result<PathBuf> {
        if let Some(found) = find_program(program) {
            return Ok(found);
        }
        let Some(apt) = find_program("apt-get").filter(|_| rustix::process::geteuid().is_root()) else {
            bail!("no {program}; install it (Debian: apt install {package})");
        };
        if !self.package_lists_are_new {
            apt_get(&apt, &["update"])?;
            self.package_lists_are_new = true;
        }
        apt_get(&apt, &["install", "--yes", "--no-install-recommends", package])?;
        find_program(program).ok_or_else(|| anyhow!("the package {package} brought no {program}"))
    }
}

fn apt_get(apt: &Path, arguments: &[&str]) -> Result<()> {
    println!("    apt-get {}", arguments.join(" "));
    let mut command = Command::new(apt);
    command.args(["-o", "DPkg::Lock::Timeout=300"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    run_to_success(command, "apt-get")
}

/// cargo-deny of exactly our version: the one in the path, else one of our own below `target`.
fn cargo_deny() -> Result<PathBuf> {
    let own = crate::target().join("tools").join(format!("cargo-deny-{CARGO_DENY}"));
    let own_program = own.join("bin/cargo-deny");
    for program in find_program("cargo-deny").into_iter().chain([own_program.clone()]) {
        let version = Command::new(&program).arg("--version").output();
        if version.is_ok_and(|output| output.stdout.trim_ascii_end().ends_with(CARGO_DENY.as_bytes())) {
            return Ok(program);
        }
    }
    println!("    cargo install cargo-deny {CARGO_DENY}");
    let mut command = Command::new(cargo());
    command.args(["install", "--locked", "cargo-deny", "--version", CARGO_DENY, "--root"]).arg(&own);
    run_to_success(command, "cargo-install")?;
    Ok(own_program)
}

fn test_data() -> Result<PathBuf> {
    let folder = crate::test_data();
    if !folder.is_dir() {
        bail!("no real data at {}; RASHOMON_TEST_DATA says where it is", folder.display());
    }
    Ok(folder)
}

fn run_to_success(command: Command, name: &str) -> Result<()> {
    let finished = run_logged(command, &super::steps::log(name), FETCH_LIMIT, |_| false)?;
    if !finished.status.success() {
        bail!("{name} failed, see {}", finished.log.display());
    }
    Ok(())
}
