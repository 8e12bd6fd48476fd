//! Follows the page docs/access.md as an operator does: a public wiki with one writer, by itself with TLS, and behind a
//! real nginx. The files and commands are those of the page, with other paths and ports, with another certificate, and
//! with an audit log in addition.

mod sandbox;

use std::{
    io::Write,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use self::sandbox::{HOST, Sandbox, header, request};
use super::{Outcome, resources::StepResources};
use crate::{documents::code_blocks, process::Stopwatch, service::Service, tools::Tool};

/// The wiki page that docs/access.md tells the reader to write.
const PAGE: &str = "/v1/enwiki/page/Main_Page?rev/";
/// Addresses of clients. 127.0.0.1 is that of nginx.
const CLIENTS: [&str; 2] = ["127.0.0.2", "127.0.0.3"];
/// The number of wrong tokens: more than a client may send at once.
const WRONG_TOKENS: usize = 40;
/// The time limit until a part of an import is readable.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// The number of revisions of an import that is sent in two halves. Each revision has a megabyte.
const REVISIONS: usize = 80;

pub(super) fn run(resources: &mut StepResources) -> Result<Outcome> {
    let [nginx, openssl] = [Tool::Nginx, Tool::Openssl].map(|tool| resources.toolbox.fetch(tool));
    let [toml, shell, sites] =
        ["toml", "sh", "nginx"].map(|language| code_blocks("docs/access.md", language));
    let (toml, shell, sites) = (toml?, shell?, sites?);
    let ([plain, with_tls, behind_nginx, ..], [variables, writer, admin, requests, revoking], [site]) =
        (&toml[..], &shell[..], &sites[..])
    else {
        bail!("docs/access.md has other blocks than this test expects");
    };

    let sandbox = Sandbox::new(variables, &openssl?)?;
    sandbox.configure(plain)?;
    sandbox.shell(writer)?;
    sandbox.shell(admin)?;
    let service = sandbox.serve("plain", sandbox.http)?;
    let answers = sandbox.shell(requests)?;
    for expected in ["\"Created\"", "<p>Hello</p>", "HTTP/1.1 401 "] {
        ensure!(answers.contains(expected), "{expected} is not in the answers:\n{answers}");
    }
    end(service)?;

    sandbox.configure(with_tls)?;
    let service = sandbox.serve("with-tls", sandbox.https)?;
    check(&sandbox, "alone").context("by itself, with TLS")?;
    end(service)?;
    check_audit_log(&sandbox)?;

    sandbox.configure(behind_nginx)?;
    let service = sandbox.serve("behind-nginx", sandbox.http)?;
    let proxy = sandbox.start_nginx(&nginx?, site)?;
    check(&sandbox, "proxied").context("behind nginx")?;
    let id = sandbox.read("writer.token")?.split('_').nth(1).context("a token without an id")?.to_owned();
    let to = format!("https://localhost:{}", sandbox.https.port());
    let listed = sandbox.shell(&revoking.replace(HOST, &to).replace("6a4e7f30a1b2c3d4e5f6", &id))?;
    ensure!(listed.contains("MediaWiki") && listed.contains(&id), "the token is not in the list:\n{listed}");
    sandbox.status(CLIENTS[1], 401, &sandbox.with_token("writer.token", PAGE)?)?;
    end(service)?;
    end(proxy)?;
    check_audit_log(&sandbox)?;
    Ok(Outcome::Passed("by itself and behind nginx".to_owned()))
}

fn end(service: Service) -> Result<()> {
    let status = service.stop()?;
    ensure!(status.success(), "the program ended with {status}");
    Ok(())
}

/// Checks the promises of docs/access.md to clients. `name` is part of the titles that are written.
fn check(sandbox: &Sandbox, name: &str) -> Result<()> {
    let [one, other] = CLIENTS;
    let page = format!("/v1/enwiki/page/{name}/A%3FB?rev/");
    let body = ["-d", "_rev=1", "-d", "html=x-body-x"];
    sandbox.status(one, 401, &request(&page, &body))?;
    let written = [sandbox.with_token("writer.token", &page)?, body.map(str::to_owned).to_vec()].concat();
    let answer = sandbox.status(one, 201, &written)?;
    let location = header(&answer, "location").context("no Location")?;
    ensure!(location.starts_with(&page), "the Location is not a path to the page: {location}");
    let stored = format!("{location}html");
    let read = sandbox.status(other, 200, &request(&stored, &[]))?;
    ensure!(read.ends_with("x-body-x"), "the read has another body than was written:\n{read}");
    let redirected = request("/v1/enwiki/page/Main%20Page?rev/latest/html", &["--location"]);
    let followed = sandbox.curl(one, &redirected).output()?.stdout;
    ensure!(followed.ends_with(b"<p>Hello</p>"), "redirected to: {}", String::from_utf8_lossy(&followed));

    sandbox.status(one, 401, &request("/metrics", &[]))?;
    sandbox.status(one, 403, &sandbox.with_token("writer.token", "/metrics")?)?;
    let docs = sandbox.status(one, 200, &sandbox.with_token("admin.token", "/docs")?)?;
    ensure!(docs.contains(&format!("{HOST}/v1/")), "the examples in /docs have another address");

    sandbox.status(one, 401, &request(&page, &["-F", "_rev=2", "-F", "html=@large"]))?;
    import_in_two_halves(sandbox, name).context("a large import")?;
    check_wrong_tokens(sandbox, one, other).context("wrong tokens")
}

/// Checks that the real address of a client counts, and not the address in a header of the client.
fn check_wrong_tokens(sandbox: &Sandbox, one: &str, other: &str) -> Result<()> {
    let guess = |number: usize, forged: &str| {
        let token = format!("Authorization: Bearer rashomon_{}_{number:064x}", "0".repeat(20));
        request(PAGE, &["-H", &token, "-H", &format!("X-Forwarded-For: {forged}")])
    };
    let is_refused = |number| sandbox.status(one, 429, &guess(number, &format!("192.0.2.{number}"))).is_ok();
    let refused = (0..WRONG_TOKENS).find(|number| is_refused(*number)).context("no token was refused")?;
    ensure!(refused >= 10, "only {refused} wrong tokens were allowed");
    sandbox.status(other, 401, &guess(WRONG_TOKENS, one))?;
    sandbox.status(one, 200, &sandbox.with_token("writer.token", PAGE)?).map(drop)
}

/// Sends an import, and reads a page of its first half before the second half is sent.
fn import_in_two_halves(sandbox: &Sandbox, name: &str) -> Result<()> {
    let path = format!("/v1/{name}/import");
    let arguments =
        [sandbox.with_token("admin.token", &path)?, ["-X", "POST", "-T", "-"].map(str::to_owned).to_vec()]
            .concat();
    let mut curl = sandbox.curl(CLIENTS[1], &arguments);
    let mut curl = curl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let sent = send_halves(sandbox, &mut curl, name);
    let output = curl.wait_with_output()?;
    let answer = sandbox.expect(200, &output)?;
    sent.with_context(|| answer.clone())?;
    let last: Value = serde_json::from_str(answer.trim_end().lines().last().unwrap_or_default())?;
    ensure!(last["status"] == "done" && last["created"] == REVISIONS, "the import is incomplete: {answer}");
    Ok(())
}

fn send_halves(sandbox: &Sandbox, curl: &mut Child, name: &str) -> Result<()> {
    let mut input = curl.stdin.take().context("curl has no input")?;
    writeln!(input, r#"{{"kind":"siteinfo","version":1,"site":{{}}}}"#)?;
    writeln!(input, r#"{{"kind":"page","title":"A"}}"#)?;
    for rev in 1..=REVISIONS {
        let text = fastrand::alphanumeric().to_string().repeat(1_000_000);
        let time = "2020-01-01T00:00:00Z";
        writeln!(
            input,
            r#"{{"kind":"revision","rev":{rev},"timestamp":"{time}","properties":{{"wikitext":{{"text":"{text}"}}}}}}"#
        )?;
        if rev == REVISIONS / 2 {
            let clock = Stopwatch::start();
            let first = request(&format!("/v1/{name}/page/A?rev/latest/wikitext"), &[]);
            while sandbox.status(CLIENTS[0], 200, &first).is_err() {
                ensure!(clock.elapsed() < READ_LIMIT, "the first half is not readable in time");
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
    writeln!(input, r#"{{"kind":"end","pages":1,"revisions":{REVISIONS},"renders":0}}"#)?;
    Ok(())
}

/// Checks that the audit log of a server that has ended names the client. Removes the log.
fn check_audit_log(sandbox: &Sandbox) -> Result<()> {
    let log = sandbox.read("audit.log")?;
    let lines = log.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let has = |status: u16| {
        lines
            .iter()
            .any(|line| line["method"] == "POST" && line["status"] == status && line["address"] == CLIENTS[0])
    };
    ensure!(has(201) && has(401), "the audit log lacks the address of the client:\n{log}");
    sandbox.remove("audit.log")
}
