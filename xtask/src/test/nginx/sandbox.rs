//! A folder in which the files and commands of docs/access.md work.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::super::steps;
use crate::{
    process::log_file,
    service::{Service, free_address},
};

/// The address of the service in the page.
pub(super) const HOST: &str = "https://store.example.org";
/// The size of a refused body: more than the 64 MiB that the server reads of a refused body. So nginx has to stop
/// sending it.
const REFUSED_BYTES: u64 = 200 << 20;
/// The part of nginx's configuration that the page leaves to Debian's files.
const NGINX: &str = "pid nginx.pid; daemon off; user root; events {} http { gzip on; access_log nginx.log;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;\n";

/// The folder and the addresses that replace those in the page.
pub(super) struct Sandbox {
    folder: TempDir,
    pub(super) http: SocketAddr,
    pub(super) https: SocketAddr,
    /// The commands that set the variables.
    variables: String,
}

impl Sandbox {
    pub(super) fn new(variables: &str, openssl: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let made = Command::new(openssl)
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=test", "-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-addext", "subjectAltName=DNS:store.example.org,DNS:localhost"])
            .args(["-keyout", "privkey.pem", "-out", "fullchain.pem"])
            .current_dir(folder.path())
            .output()?;
        ensure!(made.status.success(), "no certificate: {}", String::from_utf8_lossy(&made.stderr));
        File::create(folder.path().join("large"))?.set_len(REFUSED_BYTES)?;
        let mut sandbox =
            Self { folder, http: free_address()?, https: free_address()?, variables: String::new() };
        sandbox.variables = sandbox.localize(variables);
        Ok(sandbox)
    }

    /// Replaces the paths and ports of the page.
    fn localize(&self, text: &str) -> String {
        let folder = self.folder.path().display().to_string();
        let (http, https) = (self.http.port(), self.https.port());
        text.replace("/etc/letsencrypt/live/store.example.org", &folder)
            .replace("/etc/rashomon.toml", &format!("{folder}/rashomon.toml"))
            .replace("/var/lib/rashomon", &format!("{folder}/store"))
            .replace(":7231", &format!(":{http}"))
            .replace(":443\"", &format!(":{https}\""))
            .replace("listen 443 ", &format!("listen {https} "))
    }

    pub(super) fn read(&self, file: &str) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join(file))
            .with_context(|| file.to_owned())?
            .trim()
            .to_owned())
    }

    pub(super) fn remove(&self, file: &str) -> Result<()> {
        Ok(fs::remove_file(self.folder.path().join(file))?)
    }

    /// Writes the configuration, with an audit log in addition.
    pub(super) fn configure(&self, toml: &str) -> Result<()> {
        let text =
            format!("audit_log = \"{}/audit.log\"\n{}", self.folder.path().display(), self.localize(toml));
        Ok(fs::write(self.folder.path().join("rashomon.toml"), text)?)
    }

    /// Runs commands of the page after those that set the variables, and returns what they print.
    pub(super) fn shell(&self, commands: &str) -> Result<String> {
        let program = steps::binary();
        let programs = program.parent().context("the program has no folder")?.display();
        let path = std::env::var("PATH").unwrap_or_default();
        let script = format!("{}\n{}", self.variables, self.localize(commands));
        let mut shell = Command::new("sh");
        shell.args(["-euc", &script]).current_dir(&self.folder).env("PATH", format!("{programs}:{path}"));
        let output = shell.env("SSL_CERT_FILE", self.folder.path().join("fullchain.pem")).output()?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        ensure!(output.status.success(), "{}:\n{script}\n{printed}", output.status);
        Ok(printed)
    }

    pub(super) fn serve(&self, name: &str, address: SocketAddr) -> Result<Service> {
        let mut command = Command::new(steps::binary());
        command.arg("serve").env("RASHOMON_CONFIG", self.folder.path().join("rashomon.toml"));
        let log = log_file(&format!("nginx-{name}"));
        fs::create_dir_all(log.parent().context("the path of the log has no folder")?)?;
        Service::start_command(address, command, &log)
    }

    pub(super) fn start_nginx(&self, nginx: &Path, site: &str) -> Result<Service> {
        let folder = self.folder.path();
        fs::write(folder.join("nginx.conf"), format!("{NGINX}{}}}\n", self.localize(site)))?;
        let mut command = Command::new(nginx);
        command.arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "stderr"]);
        Service::start_command(self.https, command, &log_file("nginx"))
    }

    /// A curl that connects to the server with TLS from this address of the loopback.
    pub(super) fn curl(&self, from: &str, arguments: &[String]) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--include", "--max-time", "60", "--noproxy", "*"])
            .args(["--cacert", "fullchain.pem", "--header", "Expect:", "--interface", from])
            .args(["--connect-to", &format!("::127.0.0.1:{}", self.https.port())])
            .args(arguments)
            .current_dir(&self.folder);
        curl
    }

    /// Sends a request, and returns its answer if it has this status.
    pub(super) fn status(&self, from: &str, status: u16, arguments: &[String]) -> Result<String> {
        let output = self.curl(from, arguments).output()?;
        self.expect(status, &output).with_context(|| format!("{arguments:?} from {from}"))
    }

    pub(super) fn expect(&self, status: u16, output: &Output) -> Result<String> {
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "not {status} but {error}{answer}");
        Ok(answer)
    }

    pub(super) fn with_token(&self, file: &str, path: &str) -> Result<Vec<String>> {
        Ok(request(path, &["-H", &format!("Authorization: Bearer {}", self.read(file)?)]))
    }
}

/// The arguments of curl for a request.
pub(super) fn request(path: &str, arguments: &[&str]) -> Vec<String> {
    let url = format!("{HOST}{path}");
    arguments.iter().copied().chain([url.as_str()]).map(str::to_owned).collect()
}

pub(super) fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let lines = answer.lines().take_while(|line| !line.is_empty());
    lines
        .filter_map(|line| line.split_once(": "))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}
