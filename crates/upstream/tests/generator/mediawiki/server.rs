//! A MediaWiki installation for one test. It uses the files of Debian's package, a SQLite database in a
//! directory that is deleted with the test, and the web server of PHP.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;

/// The variable that names the folder of MediaWiki's files. The default is the folder of Debian's package.
const FILES: &str = "RASHOMON_TEST_MEDIAWIKI";

const DEBIAN: &str = "/usr/share/mediawiki";

/// The maximum number of attempts to connect, one every [`CONNECT_PAUSE`].
const MAX_CONNECT_ATTEMPTS: usize = 1000;

const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// A wiki that is stopped and deleted at the end of the test.
#[derive(Debug)]
pub(crate) struct MediaWiki {
    files: PathBuf,
    directory: TempDir,
    address: SocketAddr,
    server: Option<Child>,
}

impl MediaWiki {
    /// Installs a wiki, and serves it. If MediaWiki or PHP is missing, prints a line that says so, and
    /// returns `None`; with `CI=true` that is a failure.
    pub(crate) fn start() -> Option<Self> {
        let files = std::env::var_os(FILES).filter(|files| !files.is_empty());
        let files = files.map_or_else(|| PathBuf::from(DEBIAN), PathBuf::from);
        let missing = if !files.join("index.php").is_file() {
            format!(
                "no MediaWiki in {} (Debian: apt install mediawiki; else {FILES} names the folder of its files)",
                files.display()
            )
        } else if !has_php() {
            "no PHP with what MediaWiki needs (Debian: apt install php-cli php-sqlite3 php-mbstring php-xml php-intl)"
                .to_owned()
        } else {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            let directory = tempfile::tempdir().unwrap();
            let mut wiki = Self { files, directory, address, server: None };
            wiki.install();
            // Installing takes a while, in which no other process can take the port.
            drop(listener);
            wiki.serve();
            return Some(wiki);
        };
        assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "{missing}");
        eprintln!("rendering by MediaWiki is not tested: {missing}");
        None
    }

    fn install(&self) {
        let directory = self.directory.path();
        let mut command = self.php("install.php");
        command
            .args([
                "--dbtype",
                "sqlite",
                "--dbname",
                "wiki",
                "--scriptpath",
                "",
                "--pass",
                "long enough to pass",
            ])
            .args([format!("--server=http://{}", self.address), format!("--dbpath={}", directory.display())])
            .arg(format!("--confpath={}", directory.display()))
            .args(["Wiki", "Admin"])
            .env_remove("MW_CONFIG_FILE");
        finish(command, "");
        // Background jobs are turned off, so that MediaWiki makes only requested changes.
        let mut settings = File::options().append(true).open(self.settings()).unwrap();
        writeln!(settings, "\n$wgJobRunRate = 0;").unwrap();
    }

    fn serve(&mut self) {
        let log = File::create(self.log()).unwrap();
        let server = Command::new("php")
            .arg("-S")
            .arg(self.address.to_string())
            .arg("-t")
            .arg(&self.files)
            .env("MW_CONFIG_FILE", self.settings())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.server = Some(server.unwrap());
        for _ in 0..MAX_CONNECT_ATTEMPTS {
            if TcpStream::connect(self.address).is_ok() {
                return;
            }
            thread::sleep(CONNECT_PAUSE);
        }
        panic!("PHP serves nothing: {}", fs::read_to_string(self.log()).unwrap());
    }

    /// Saves an edit, and returns the number of its revision.
    pub(crate) fn edit(&self, title: &str, wikitext: &str) -> i64 {
        let mut command = self.php("edit.php");
        command.args(["--user", "Admin", title]);
        finish(command, wikitext);
        // MediaWiki's own script returns the number, so that the server gets no request for it.
        let command = self.php("eval.php");
        let title = title.replace('\'', "\\'");
        let output = finish(
            command,
            &format!("print 'revision ' . Title::newFromText('{title}')->getLatestRevID();\n"),
        );
        let said = String::from_utf8(output.stdout).unwrap();
        let (_, number) = said.split_once("revision ").unwrap();
        number.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
    }

    /// The number of requests whose line in the log contains this part.
    pub(crate) fn asked(&self, part: &str) -> usize {
        let log = fs::read_to_string(self.log()).unwrap();
        log.lines().filter(|line| line.contains("]: GET ") && line.contains(part)).count()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// One of MediaWiki's scripts.
    fn php(&self, script: &str) -> Command {
        let mut command = Command::new("php");
        command.arg(self.files.join("maintenance").join(script)).env("MW_CONFIG_FILE", self.settings());
        command
    }

    fn settings(&self) -> PathBuf {
        self.directory.path().join("LocalSettings.php")
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("requests.log")
    }
}

impl Drop for MediaWiki {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Whether there is a PHP with the modules that MediaWiki needs.
fn has_php() -> bool {
    let modules = match Command::new("php").arg("-m").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).to_lowercase(),
        Err(error) if error.kind() == ErrorKind::NotFound => return false,
        Err(error) => panic!("php: {error}"),
    };
    let has = |module| modules.lines().any(|line| line == module);
    ["intl", "mbstring", "pdo_sqlite", "xml"].into_iter().all(has)
}

/// Runs a script to its end.
fn finish(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}
