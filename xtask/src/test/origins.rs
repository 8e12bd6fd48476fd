//! Web pages of other origins in a browser cannot change a server, unless their origin is configured.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{browser, steps};
use crate::{http::Client, process::log_file, service::Service};

/// The time limit of the browser's request to the server of the page.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// The interval between two checks whether the server of the page is still needed.
const POLL: Duration = Duration::from_millis(10);

/// A name that resolves to the loopback, as an attacker's name does after DNS rebinding.
const REBOUND: &str = "rebound.example";

/// A page that tries to write with a form, and with `fetch` with and without CORS. Its document shows the results.
/// `SERVER` is the server, and `PAGE` is the beginning of the titles.
const ATTACK: &str = r#"<!DOCTYPE html><title>another origin</title><pre id="said"></pre>
<iframe name="sink"></iframe>
<form id="form" method="post" target="sink" action="http://SERVER/v1/attacked/page/PAGE-form?rev/">
<input name="_rev" value="1"><input name="html" value="x"></form>
<script>
const say = text => document.getElementById("said").append(text + "\n");
const url = title => "http://SERVER/v1/attacked/page/" + title + "?rev/";
const body = () => new URLSearchParams({ _rev: "1", html: "x" });
document.getElementById("form").submit();
fetch(url("PAGE-fetch"), { method: "POST", body: body() })
    .then(answer => say("fetch:" + answer.status), () => say("fetch:failed"));
fetch(url("PAGE-opaque"), { method: "POST", body: body(), mode: "no-cors" })
    .then(answer => say("opaque:" + answer.type), () => say("opaque:failed"));
</script>
"#;

/// The ends of the titles that the page tries to write.
const WRITE_METHODS: [&str; 3] = ["form", "fetch", "opaque"];

/// Opens the page in the browser from several origins, and checks which writes arrived. Returns the number of checks.
pub(super) fn check(chromium: &Path) -> Result<usize> {
    let page = PageServer::start()?;
    let port = page.address.port();
    let settings = tempfile::tempdir()?;
    let file = settings.path().join("rashomon.toml");
    fs::write(&file, format!("[access]\norigins = [\"http://localhost:{port}\"]\n"))?;
    let log = log_file("browser-origins-service");
    let arguments = [
        "serve",
        "--store",
        "memory:",
        "--config",
        file.to_str().context("the path of the configuration file is not UTF-8")?,
    ];
    let service = Service::start(&steps::binary(), &arguments, &log)?;
    let server = service.address();

    // The page can write if its origin is configured. So failures elsewhere are not bugs of the page.
    let trusted = open(chromium, "trusted", &format!("http://localhost:{port}"), server)?;
    ensure!(trusted.contains("fetch:201"), "a page of a configured origin cannot write:\n{trusted}");
    // Another port is the same site, but another origin. Another name is another site.
    let rules = format!("--host-resolver-rules=MAP {REBOUND} 127.0.0.1");
    for (name, origin) in
        [("port", format!("http://127.0.0.1:{port}")), ("site", format!("http://{REBOUND}:{port}"))]
    {
        let said = open_with(chromium, name, &origin, server, &rules)?;
        ensure!(said.contains("fetch:failed"), "the page {origin} reads what the server answers:\n{said}");
        ensure!(said.contains("opaque:opaque"), "the page {origin} sent no request without CORS:\n{said}");
    }
    let mut client = Client::connect(server)?;
    for (page, expected) in [("trusted", 200), ("port", 404), ("site", 404)] {
        for method in WRITE_METHODS {
            let (status, _) = client.get(&format!("/v1/attacked/page/{page}-{method}?rev/latest/html"))?;
            ensure!(status == expected, "{page}-{method} is answered with {status}, not {expected}");
        }
    }
    // The server's own pages work under its own names, but not under another name.
    for (host, expected) in [("localhost", "<title>"), (REBOUND, "urn:rashomon:problem:misdirected")] {
        let url = format!("http://{host}:{}/", server.port());
        let document = browser::dump(chromium, &url, &format!("host-{host}"), &[&rules])?;
        ensure!(document.contains(expected), "`{expected}` is not in what {url} shows:\n{document}");
    }
    let status = service.stop()?;
    ensure!(status.success(), "the server ended with {status}");
    Ok(WRITE_METHODS.len() * 3 + 2)
}

fn open(chromium: &Path, name: &str, origin: &str, server: SocketAddr) -> Result<String> {
    open_with(chromium, name, origin, server, "--no-first-run")
}

/// Opens the page under an origin, and returns its final document.
fn open_with(chromium: &Path, name: &str, origin: &str, server: SocketAddr, flag: &str) -> Result<String> {
    browser::dump(chromium, &format!("{origin}/{server}/{name}"), &format!("origin-{name}"), &[flag])
}

/// Serves the attacking page on its own port. The path `/SERVER/PAGE` names the attacked server.
struct PageServer {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PageServer {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let (address, ended) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let end = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                match listener.accept() {
                    // Each connection has a thread, since browsers open connections before they have anything
                    // to request. A failed connection does not matter.
                    Ok((stream, _)) => drop(thread::spawn(|| answer(stream))),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(POLL),
                    Err(_) => return,
                }
            }
        });
        Ok(Self { address, ended, thread: Some(thread) })
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers one request, and closes the connection.
fn answer(mut stream: std::net::TcpStream) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(READ_LIMIT))?;
    let mut request = vec![0; 8 << 10];
    let read = stream.read(&mut request)?;
    let request = String::from_utf8_lossy(&request[..read]).into_owned();
    let path = request.split(' ').nth(1).unwrap_or_default();
    let body = match path.trim_start_matches('/').split_once('/') {
        Some((server, page)) => ATTACK.replace("SERVER", server).replace("PAGE", page),
        None => String::new(),
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    Ok(())
}
