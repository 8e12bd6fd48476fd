//! Compares GET of a spec version that a transformer makes with POST of the stored body directly to the transformer.

use std::fs;

use anyhow::{Result, ensure};
use xtask::http::Client;
use xtask::varnish::cached::serve_alone;

use super::{Bench, transformer};
use crate::{content::HTML_SIZE, reads::Reads, report::Report, service, writes::page_path};

const STORED: &str = "https://www.mediawiki.org/wiki/Specs/HTML/2.8.0";
const TRANSFORMED: &str = "https://www.mediawiki.org/wiki/Specs/HTML/1.8.0";
const TITLE: &str = "Page";
const BOUNDARY: &str = "rashomon-bench-boundary";

pub(super) fn measure(bench: &Bench<'_>, report: &mut Report) -> Result<()> {
    let folder = service::data_folder()?;
    let (stored, made) = (bench.contents.html(1), bench.contents.html(2));
    let file = folder.path().join("made.html");
    fs::write(&file, &made)?;
    let transformer = transformer::start(folder.path(), &file, &content_type(TRANSFORMED))?;
    let host = transformer.address();
    let config = format!(
        "[transformers]\nhosts = [\"{host}\"]\n\n[[transformers.steps]]\nfrom = \"{STORED}\"\nto = \"{TRANSFORMED}\"\n\
         url = \"http://{host}{}\"\n",
        transformer::PATH
    );
    let server = serve_alone(bench.binary, &folder.path().join("server"), &config)?;
    let (status, body) = Client::connect(server.address())?.send(&revision(&stored))?;
    ensure!(status == 201, "a write was answered with {status}: {}", String::from_utf8_lossy(&body));

    let path = format!("{}?rev/latest/html", page_path(TITLE));
    let accept = format!("Accept: text/html; profile=\"{TRANSFORMED}\"\r\n");
    let get = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n").into_bytes();
    let post =
        with_body(transformer::PATH, &format!("{accept}Content-Type: {}", content_type(STORED)), &stored);
    for turn in 0..bench.runs {
        eprintln!("transformed reads, turn {}", turn + 1);
        let repeat = |request: &[u8]| {
            let expected = Some(vec![made.clone()]);
            Reads::of(vec![request.to_owned()], Some(HTML_SIZE), expected, bench.options.connections)
        };
        bench.compare(
            turn,
            report,
            ("GET through a transformer", server.address(), &mut repeat(&get)),
            ("POST to the transformer", host, &mut repeat(&post)),
        )?;
    }
    Ok(())
}

fn content_type(profile: &str) -> String {
    format!("text/html; charset=utf-8; profile=\"{profile}\"")
}

/// A POST request with headers and a body.
fn with_body(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// The request that writes the first revision, with html of the stored version.
fn revision(html: &[u8]) -> Vec<u8> {
    let begin = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"_rev\"\r\n\r\n1\r\n--{BOUNDARY}\r\n\
         Content-Disposition: form-data; name=\"html\"\r\nContent-Type: {}\r\n\r\n",
        content_type(STORED)
    );
    let end = format!("\r\n--{BOUNDARY}--\r\n");
    let headers = format!("Content-Type: multipart/form-data; boundary={BOUNDARY}");
    let body = [begin.as_bytes(), html, end.as_bytes()].concat();
    with_body(&format!("{}?rev/", page_path(TITLE)), &headers, &body)
}
