//! The tools that the commands need besides Rust, and how to get them.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Result, anyhow, bail};

use crate::process::{cargo_command, find_program, log_file, run_logged};

/// The version of cargo-deny. It is fixed, so that a new version does not change the result.
const CARGO_DENY: &str = "0.20.2";
/// The version of schemathesis, fixed for the same reason.
const SCHEMATHESIS: &str = "4.32.5";
/// The versions of the clients of RFC 7089, fixed for the same reason.
const MEMENTO_CLIENTS: [&str; 2] = ["memento_client==0.6.1", "pywb==2.10.0"];
/// The version of PHP for Node.js, fixed for the same reason.
const PHP_WASM: &str = "3.1.56";
/// The oldest version of Node.js that runs this PHP.
const NODE: u32 = 20;
/// The time limit of a download or a build. Building cargo-deny takes minutes on a small machine.
const FETCH_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Debian's packages of MediaWiki.
struct MediaWiki {
    packages: [&'static str; 2],
    /// The folder in which the packages put their files.
    files: &'static str,
    /// A file of each package.
    parts: [&'static str; 2],
}

const MEDIAWIKI: MediaWiki = MediaWiki {
    packages: ["mediawiki", "mediawiki-classes"],
    files: "/usr/share/mediawiki",
    parts: ["index.php", "includes/libs/mime/defines.php"],
};

impl MediaWiki {
    fn is_whole(&self, files: &Path) -> bool {
        self.parts.iter().all(|part| files.join(part).is_file())
    }
}

/// Extensions of PHP, and the Debian packages that have them.
struct Php {
    extensions: &'static [&'static str],
    packages: &'static [&'static str],
}

const PHP_FOR_MEDIAWIKI: Php = Php {
    extensions: &["intl", "mbstring", "pdo_sqlite", "xml"],
    packages: &["php-cli", "php-sqlite3", "php-mbstring", "php-xml", "php-intl"],
};

const PHP_FOR_CLIENT: Php =
    Php { extensions: &["curl", "json", "openssl"], packages: &["php-cli", "php-curl"] };

impl Php {
    fn has_extensions(&self, php: &Path) -> bool {
        let Ok(output) = Command::new(php).arg("-m").output() else { return false };
        let modules = String::from_utf8_lossy(&output.stdout).to_lowercase();
        self.extensions.iter().all(|wanted| modules.lines().any(|module| module == *wanted))
    }
}

/// Debian's packages of Varnish and its modules, with the libraries that other programs rarely have.
const VARNISH: &[&str] =
    &["varnish", "varnish-modules", "libvarnishapi3", "libjemalloc2", "libedit2", "libbsd0"];

/// Whether Varnish and the modules of docs/varnish.vcl are below a folder.
fn has_varnish(folder: &Path) -> bool {
    let libraries = fs::read_dir(folder.join("usr/lib")).into_iter().flatten().flatten();
    let has_modules = |entry: fs::DirEntry| entry.path().join("varnish/vmods/libvmod_xkey.so").is_file();
    folder.join("usr/sbin/varnishd").is_file() && libraries.into_iter().any(has_modules)
}

/// A tool that a step needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Tool {
    CargoDeny,
    Chromium,
    Curl,
    Ip,
    Java,
    /// Java that compiles the source of a program.
    Jdk,
    Maven,
    /// A folder with MediaWiki's files.
    MediaWiki,
    /// Python with clients of RFC 7089.
    MementoClients,
    Nft,
    Nginx,
    Openssl,
    /// PHP with the extensions that MediaWiki needs.
    Php,
    /// PHP with the extensions of the PHP client.
    PhpCurl,
    /// The program that runs several versions of PHP in Node.js.
    PhpWasm,
    RedisServer,
    Schemathesis,
    SevenZip,
    SlowHttpTest,
    /// The folder below which the files of Varnish and its modules are.
    Varnish,
    Xmllint,
    TestData,
}

/// The tools that were looked for so far.
#[derive(Debug)]
pub(crate) struct Toolbox {
    must_have_all: bool,
    found: HashMap<Tool, Result<PathBuf, String>>,
    package_lists_are_new: bool,
}

impl Toolbox {
    pub(crate) fn new(must_have_all: bool) -> Self {
        Self { must_have_all, found: HashMap::new(), package_lists_are_new: false }
    }

    /// Whether a missing tool is a failure.
    pub(crate) const fn must_have_all(&self) -> bool {
        self.must_have_all
    }

    /// Returns the path of a tool. Downloads a missing tool; installing a Debian package needs root.
    pub(crate) fn fetch(&mut self, tool: Tool) -> Result<PathBuf> {
        if !self.found.contains_key(&tool) {
            let found = self.find_or_fetch(tool).map_err(|error| format!("{error:#}"));
            self.found.insert(tool, found);
        }
        self.found[&tool].clone().map_err(|reason| anyhow!(reason))
    }

    fn find_or_fetch(&mut self, tool: Tool) -> Result<PathBuf> {
        match tool {
            Tool::CargoDeny => cargo_deny(),
            Tool::Chromium => self.debian("chromium", "chromium"),
            Tool::Curl => self.debian("curl", "curl"),
            Tool::Ip => self.debian("ip", "iproute2"),
            Tool::Java => self.java(),
            Tool::Jdk => self.jdk(),
            Tool::Maven => self.debian("mvn", "maven"),
            Tool::MediaWiki => self.mediawiki(),
            Tool::MementoClients => self.memento_clients(),
            Tool::Nft => self.debian("nft", "nftables"),
            Tool::Nginx => self.find_or_unpack("nginx", "usr/sbin/nginx"),
            Tool::Openssl => self.debian("openssl", "openssl"),
            Tool::Php => self.php(&PHP_FOR_MEDIAWIKI),
            Tool::PhpCurl => self.php(&PHP_FOR_CLIENT),
            Tool::PhpWasm => self.php_wasm(),
            Tool::RedisServer => self.debian("redis-server", "redis-server"),
            Tool::Schemathesis => self.schemathesis(),
            Tool::SevenZip => self.debian("7z", "p7zip-full"),
            Tool::SlowHttpTest => self.find_or_unpack("slowhttptest", "usr/bin/slowhttptest"),
            Tool::Varnish => self.varnish(),
            Tool::Xmllint => self.debian("xmllint", "libxml2-utils"),
            Tool::TestData => test_data(),
        }
    }

    /// Java 17, the only Java version on which Cassandra 5.0 is run here.
    fn java(&mut self) -> Result<PathBuf> {
        let java = self.debian("java", "openjdk-17-jre-headless")?;
        let version = Command::new(&java).arg("-version").output()?.stderr;
        let version = String::from_utf8_lossy(&version);
        if !version.contains("version \"17") {
            bail!(
                "{} is not Java 17, which Cassandra needs (Debian: openjdk-17-jre-headless): {}",
                java.display(),
                version.lines().next().unwrap_or_default()
            );
        }
        Ok(java)
    }

    /// PHP with some extensions.
    fn php(&mut self, wanted: &Php) -> Result<PathBuf> {
        if let Some(php) = find_program("php").filter(|php| wanted.has_extensions(php)) {
            return Ok(php);
        }
        self.install(&format!("PHP with {}", wanted.extensions.join(", ")), wanted.packages)?;
        find_program("php")
            .filter(|php| wanted.has_extensions(php))
            .ok_or_else(|| anyhow!("PHP lacks one of the extensions {}", wanted.extensions.join(", ")))
    }

    /// PHP for Node.js of exactly this version, below `target`.
    fn php_wasm(&mut self) -> Result<PathBuf> {
        let own = crate::target().join("tools").join(format!("php-wasm-{PHP_WASM}"));
        let program = own.join("node_modules/@php-wasm/cli/main.js");
        if program.is_file() {
            return Ok(program);
        }
        let npm = self.debian("npm", "npm")?;
        let node = self.debian("node", "nodejs")?;
        let version = Command::new(&node).arg("--version").output()?.stdout;
        let version = String::from_utf8_lossy(&version).trim().to_owned();
        if !node_is_new_enough(&version) {
            bail!("{} is {version}; PHP for Node.js needs {NODE} or later", node.display());
        }
        println!("    npm install @php-wasm/cli {PHP_WASM}");
        let partly = own.with_extension("partly");
        if partly.exists() {
            fs::remove_dir_all(&partly)?;
        }
        fs::create_dir_all(&partly)?;
        let mut command = Command::new(npm);
        command.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(&partly);
        command.arg(format!("@php-wasm/cli@{PHP_WASM}"));
        run_to_success(command, "npm-install")?;
        fs::rename(partly, &own)?;
        Ok(program)
    }

    /// Java with a compiler.
    fn jdk(&mut self) -> Result<PathBuf> {
        self.debian("javac", "openjdk-17-jdk-headless")?;
        self.debian("java", "openjdk-17-jdk-headless")
    }

    /// schemathesis of exactly this version.
    fn schemathesis(&mut self) -> Result<PathBuf> {
        let package = format!("schemathesis=={SCHEMATHESIS}");
        self.python_with(&format!("schemathesis-{SCHEMATHESIS}"), &[&package], "schemathesis")
    }

    /// Python with clients of RFC 7089 of exactly these versions.
    fn memento_clients(&mut self) -> Result<PathBuf> {
        let folder = MEMENTO_CLIENTS.join("-").replace("==", "-");
        let pywb = self.python_with(&folder, &MEMENTO_CLIENTS, "pywb")?;
        Ok(pywb.with_file_name("python"))
    }

    /// A program of a package of Python, in a virtual environment with these packages below `target`.
    fn python_with(&mut self, folder: &str, packages: &[&str], program: &str) -> Result<PathBuf> {
        let own = crate::target().join("tools").join(folder);
        let program = own.join("bin").join(program);
        if program.is_file() {
            return Ok(program);
        }
        let python = self.debian("python3", "python3")?;
        let mut command = Command::new(&python);
        command.args(["-c", "import ensurepip, venv"]);
        if !command.output()?.status.success() {
            self.install("Python's venv", &["python3-venv"])?;
        }
        println!("    pip install {}", packages.join(" "));
        let mut command = Command::new(&python);
        command.args(["-m", "venv"]).arg(&own);
        run_to_success(command, "python-venv")?;
        let mut command = Command::new(own.join("bin/pip"));
        command.args(["install", "--disable-pip-version-check"]).args(packages);
        run_to_success(command, "pip-install")?;
        Ok(program)
    }

    /// The folder of MediaWiki's files: where Debian's packages put them, or else unpacked below `target`.
    /// The packages are not installed, since they would start a web server. Unpacking also needs no root.
    fn mediawiki(&mut self) -> Result<PathBuf> {
        let folder = crate::target().join("tools/mediawiki");
        let unpacked = folder.join(MEDIAWIKI.files.trim_start_matches('/'));
        for files in [Path::new(MEDIAWIKI.files), &unpacked] {
            if MEDIAWIKI.is_whole(files) {
                return Ok(files.to_owned());
            }
        }
        self.unpack("MediaWiki", &MEDIAWIKI.packages, &folder)?;
        if !MEDIAWIKI.is_whole(&unpacked) {
            bail!("the packages {} lack files of {}", MEDIAWIKI.packages.join(" "), MEDIAWIKI.files);
        }
        Ok(unpacked)
    }

    /// A program from the path, or else from its Debian package, unpacked below `target`: the package of a server
    /// would start the server. The program has the name of the package.
    fn find_or_unpack(&mut self, package: &str, file: &str) -> Result<PathBuf> {
        let folder = crate::target().join("tools").join(package);
        let unpacked = folder.join(file);
        let found = find_program(package).or_else(|| Some(unpacked.clone()).filter(|it| it.is_file()));
        if let Some(program) = found {
            return Ok(program);
        }
        self.unpack(package, &[package], &folder)?;
        if !unpacked.is_file() {
            bail!("the package {package} has no {file}");
        }
        Ok(unpacked)
    }

    /// The folder below which Varnish and its modules are: `/` if both are installed, or else a folder below
    /// `target`, since the package would start a server.
    fn varnish(&mut self) -> Result<PathBuf> {
        let folder = crate::target().join("tools/varnish");
        if let Some(found) = ["/".into(), folder.clone()].into_iter().find(|folder| has_varnish(folder)) {
            return Ok(found);
        }
        self.unpack("Varnish", VARNISH, &folder)?;
        if !has_varnish(&folder) {
            bail!("the packages {} have no Varnish with its modules", VARNISH.join(" "));
        }
        Ok(folder)
    }

    /// Unpacks Debian packages into a folder, without installing them.
    fn unpack(&mut self, what: &str, packages: &[&str], folder: &Path) -> Result<()> {
        let (Some(apt), Some(dpkg)) = (find_program("apt-get"), find_program("dpkg-deb")) else {
            bail!("{what} is missing, and this system is not Debian: install it by hand");
        };
        if rustix::process::geteuid().is_root() {
            self.update_package_lists(&apt)?;
        }
        unpack(&apt, &dpkg, packages, folder)
    }

    /// A program, from its Debian package if it is missing.
    fn debian(&mut self, program: &str, package: &str) -> Result<PathBuf> {
        if let Some(found) = find_program(program) {
            return Ok(found);
        }
        self.install(program, &[package])?;
        find_program(program).ok_or_else(|| anyhow!("{package} put no {program} into the path"))
    }

    /// Installs Debian packages that contain a tool.
    fn install(&mut self, what: &str, packages: &[&str]) -> Result<()> {
        let Some(apt) = find_program("apt-get").filter(|_| rustix::process::geteuid().is_root()) else {
            bail!("{what} is missing: install it (Debian: apt install {})", packages.join(" "));
        };
        self.update_package_lists(&apt)?;
        apt_get(&apt, &[&["install", "--yes", "--no-install-recommends"], packages].concat())
    }

    fn update_package_lists(&mut self, apt: &Path) -> Result<()> {
        if !self.package_lists_are_new {
            apt_get(apt, &["update"])?;
            self.package_lists_are_new = true;
        }
        Ok(())
    }
}

fn apt_get(apt: &Path, arguments: &[&str]) -> Result<()> {
    // The node's files are fetched beside the first steps. apt waits for the lock of dpkg, but not for that of the package lists.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    println!("    apt-get {}", arguments.join(" "));
    let mut command = Command::new(apt);
    command.args(["-o", "DPkg::Lock::Timeout=300"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    run_to_success(command, "apt-get")
}

/// Unpacks Debian packages into a folder, without installing them. The folder appears when it is complete.
fn unpack(apt: &Path, dpkg: &Path, packages: &[&str], folder: &Path) -> Result<()> {
    let (downloads, partly) = (folder.with_extension("packages"), folder.with_extension("partly"));
    for old in [folder, &downloads, &partly] {
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    fs::create_dir_all(&downloads)?;
    println!("    apt-get download {}", packages.join(" "));
    let mut command = Command::new(apt);
    command.arg("download").args(packages).current_dir(&downloads);
    run_to_success(command, "apt-get")?;
    for package in fs::read_dir(&downloads)? {
        let mut command = Command::new(dpkg);
        command.arg("--extract").arg(package?.path()).arg(&partly);
        run_to_success(command, "dpkg-deb")?;
    }
    fs::rename(partly, folder)?;
    Ok(fs::remove_dir_all(downloads)?)
}

/// Whether a version as `node --version` prints it, such as `v20.20.2`, is not older than [`NODE`].
fn node_is_new_enough(version: &str) -> bool {
    let major = version.strip_prefix('v').and_then(|version| version.split('.').next());
    major.and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= NODE)
}

/// cargo-deny of exactly this version: in the path, or else below `target`.
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
    let mut command = cargo_command();
    // cargo-deny runs for a second. An optimized build, or one with debug information, takes longer than it saves.
    command
        .args(["install", "--locked", "--debug", "cargo-deny", "--version", CARGO_DENY, "--root"])
        .arg(&own)
        .env("CARGO_PROFILE_DEV_DEBUG", "false");
    run_to_success(command, "cargo-install")?;
    Ok(own_program)
}

fn test_data() -> Result<PathBuf> {
    let folder = crate::test_data();
    if !folder.is_dir() {
        bail!("no folder {} with real data: set RASHOMON_TEST_DATA to its path", folder.display());
    }
    Ok(folder)
}

fn run_to_success(command: Command, name: &str) -> Result<()> {
    let finished = run_logged(command, &log_file(name), FETCH_LIMIT, |_| false)?;
    if !finished.status.success() {
        bail!("{name} failed, see {}", finished.log.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_node_are_compared_as_numbers() {
        assert!(node_is_new_enough("v20.20.2") && node_is_new_enough("v100.0.0"));
        assert!(!node_is_new_enough("v18.20.8") && !node_is_new_enough("v9.0.0") && !node_is_new_enough(""));
    }
}
