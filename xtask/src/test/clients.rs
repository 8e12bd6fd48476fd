//! Tests the API with clients that others have written: those of the JDK and of PHP follow every redirect, and
//! memento_client and pywb find the states of pages.

use std::{fs, process::Command, time::Duration};

use anyhow::{Result, ensure};

use super::{Outcome, resources::StepResources, steps};
use crate::{
    http::Client,
    process::{log_file, run_logged},
    service::{Service, free_address},
    tools::Tool,
};

/// The folder with the programs that use the clients.
const PROGRAMS: &str = "xtask/clients";

/// The time limit of a program.
const RUN_LIMIT: Duration = Duration::from_secs(5 * 60);

/// The titles of the pages, as they are written in URLs. Parsers of links take some of these characters for their own.
const TITLES: [&str; 5] = ["Odd", "A;B,_C", "%C3%9Cber/uns_(alle)", "R&D's_1+1=2", "100%25_%3F"];

/// The times of the revisions. The same in the notation of the programs.
const TIMES: [(&str, &str); 4] = [
    ("2001-02-03T04:05:06Z", "20010203040506"),
    ("2003-01-01T00:00:00Z", "20030101000000"),
    ("2005-06-01T00:00:00.25Z", "20050601000000"),
    ("2007-12-31T23:59:59Z", "20071231235959"),
];

/// The html of the last revision.
const LAST: &str = "number 4";

/// The queries that lead to the last revision by a redirect.
const REDIRECTS: [&str; 5] =
    ["", "?rev/latest", "?rev/4/html", "?rev/2010-01-01T12:00:00Z/html", "?timegate/html"];

pub(super) fn run(resources: &mut StepResources) -> Result<Outcome> {
    let folder = tempfile::tempdir()?;
    let address = free_address()?;
    let settings = folder.path().join("rashomon.toml");
    fs::write(&settings, format!("listen = \"{address}\"\n[domains.w]\nhosts = [\"{address}\"]\n"))?;
    let arguments =
        ["serve".as_ref(), "--store".as_ref(), "memory:".as_ref(), "--config".as_ref(), settings.as_os_str()];
    let service = Service::start_at(address, &steps::binary(), &arguments, &log_file("clients-service"))?;
    let mut client = Client::connect(address)?;
    for (title, (number, (time, _))) in
        TITLES.iter().flat_map(|title| TIMES.iter().enumerate().map(move |time| (title, time)))
    {
        let number = number + 1;
        let form = format!("_rev={number}&_timestamp={time}&html=number+{number}&wikitext={number}");
        let request = format!(
            "POST /v1/w/page/{title}?rev/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{form}",
            form.len()
        );
        let (status, body) = client.send(request.as_bytes())?;
        ensure!(status == 201, "{title} is answered with {status}: {}", String::from_utf8_lossy(&body));
    }
    let pages: Vec<String> = (TITLES.iter())
        .flat_map(|title| ["/wiki/", "/v1/w/page/"].map(|path| format!("http://{address}{path}{title}")))
        .collect();
    let urls: Vec<String> =
        pages.iter().flat_map(|page| REDIRECTS.map(|query| format!("{page}{query}"))).collect();
    let mut remarks = Vec::new();
    for (tool, name, file) in
        [(Tool::Jdk, "the JDK", "Redirects.java"), (Tool::PhpCurl, "PHP", "redirects.php")]
    {
        let Ok(program) = resources.toolbox.fetch(tool) else { continue };
        let mut command = Command::new(program);
        command.arg(crate::root().join(PROGRAMS).join(file)).arg(LAST).args(&urls);
        run_program(command, file)?;
        remarks.push(format!("{} redirects with {name}", urls.len()));
    }
    if let Ok(python) = resources.toolbox.fetch(Tool::MementoClients) {
        let mut command = Command::new(&python);
        // The libraries of these clients warn of what they themselves call.
        command.args(["-W", "ignore"]).arg(crate::root().join(PROGRAMS).join("memento.py"));
        command.arg(TIMES.map(|(_, time)| time).join(",")).args(&pages);
        run_program(command, "memento.py")?;
        remarks.push(format!("{} pages with memento_client and pywb", pages.len()));
    }
    let status = service.stop()?;
    ensure!(status.success(), "the service ended with {status}");
    Ok(Outcome::Passed(remarks.join(", ")))
}

fn run_program(command: Command, name: &str) -> Result<()> {
    let log = log_file(&format!("clients-{name}"));
    let finished = run_logged(command, &log, RUN_LIMIT, |_| true)?;
    let last = finished.shown.last().map_or("", String::as_str);
    ensure!(finished.status.success(), "{name}: {last}; the whole output is in {}", log.display());
    Ok(())
}
