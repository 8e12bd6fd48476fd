//! The HTML pages in a browser: pages render, links have targets, and the console stays empty.

use std::{fs, net::SocketAddr, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, bail, ensure};

use super::{Outcome, demo, origins, resources::StepResources};
use crate::{
    process::{log_file, run_logged},
    tools::Tool,
};

/// The time limit of a page, including the start of the browser.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// The maximum number of links of one page that are followed. A page of the demo has fewer.
const MAX_LINKS: usize = 200;

/// A page to visit.
struct Visit {
    /// The name of the visit and of its screenshot.
    name: &'static str,
    from: VisitTarget,
    /// Texts that must be in the document after the browser has rendered it.
    expect: &'static [&'static str],
}

enum VisitTarget {
    /// A path of the server.
    Path(&'static str),
    /// The first link whose address contains the second string, on the page of the earlier visit with the
    /// first name.
    Link(&'static str, &'static str),
}

const VISITS: &[Visit] = &[
    Visit { name: "front", from: VisitTarget::Path("/"), expect: &["Rashomon"] },
    Visit {
        name: "titles",
        from: VisitTarget::Link("front", "/pages/lighthouse/"),
        expect: &["The Night of the Marigold"],
    },
    Visit {
        name: "history",
        from: VisitTarget::Link("titles", "/The_Night_of_the_Marigold"),
        expect: &["<table", "Revision", "Isobel"],
    },
    Visit {
        name: "render",
        from: VisitTarget::Link("history", "?rev/latest/"),
        expect: &["<iframe", "sandbox="],
    },
    Visit {
        name: "slashes",
        from: VisitTarget::Link("titles", "/Kitchen/"),
        expect: &["Crème brûlée", "<table"],
    },
    Visit { name: "docs", from: VisitTarget::Path("/docs"), expect: &["/v1/{domain}/page/{title}"] },
];

pub(super) fn run(resources: &mut StepResources) -> Result<Outcome> {
    let chromium = resources.toolbox.fetch(Tool::Chromium)?;
    let pictures = crate::target().join("screenshots");
    fs::create_dir_all(&pictures)?;
    let (service, _) = demo::start()?;
    let mut seen: Vec<(&str, String, String)> = Vec::new();
    let mut links = 0;
    for visit in VISITS {
        let url = match visit.from {
            VisitTarget::Path(path) => format!("http://{}{path}", service.address()),
            VisitTarget::Link(page, part) => {
                let (_, url, document) =
                    seen.iter().find(|(name, ..)| *name == page).context("no such visit")?;
                let link = addresses(document).into_iter().find(|link| link.contains(part));
                let link = link.with_context(|| format!("no link to {part} on the page {page} at {url}"))?;
                resolve(service.address(), url, &link).context("a link to another server")?
            }
        };
        let document =
            look(&chromium, &url, visit, &pictures).with_context(|| format!("{} at {url}", visit.name))?;
        links += follow_links(service.address(), &url, &document)?;
        seen.push((visit.name, url, document));
    }
    let requests = origins::check(&chromium)?;
    Ok(Outcome::Passed(format!(
        "{} pages, {links} links, {requests} requests of other origins, pictures in {}",
        seen.len(),
        pictures.display()
    )))
}

/// Loads a page, takes its screenshot, and returns its document from the browser.
fn look(chromium: &Path, url: &str, visit: &Visit, pictures: &Path) -> Result<String> {
    // The page is loaded twice, because a browser that dumps the document takes the screenshot before it has painted
    // the frames in the document.
    let picture = pictures.join(format!("{}.png", visit.name));
    let screenshot = format!("--screenshot={}", picture.display());
    let painted = browse(chromium, url, &format!("{}-picture", visit.name), &[&screenshot])?;
    let document = dump(chromium, url, &format!("{}-document", visit.name), &[])?;
    ensure!(picture.is_file(), "the browser took no picture");
    let said: Vec<_> =
        painted.lines().chain(document.lines()).filter(|line| line.contains(":CONSOLE:")).collect();
    ensure!(said.is_empty(), "the console of the browser has messages:\n{}", said.join("\n"));
    for expected in visit.expect {
        ensure!(document.contains(expected), "`{expected}` is not in the document");
    }
    Ok(document)
}

/// Loads a page. Returns the console's lines and the browser's document. `name` is the name of the log.
pub(super) fn dump(chromium: &Path, url: &str, name: &str, flags: &[&str]) -> Result<String> {
    browse(chromium, url, name, &[&["--dump-dom"], flags].concat())
}

/// Runs the browser on a page, and returns its output: the console's lines, and the document on request.
fn browse(chromium: &Path, url: &str, name: &str, flags: &[&str]) -> Result<String> {
    let profile = tempfile::tempdir()?;
    let mut command = Command::new(chromium);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-extensions", "--hide-scrollbars"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=5000", "--window-size=1200,1000"])
        .args(flags)
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url);
    let log = log_file(&format!("browser-{name}"));
    let finished = run_logged(command, &log, PAGE_LIMIT, |_| false)?;
    ensure!(finished.status.success(), "the browser ended with {}, see {}", finished.status, log.display());
    let output = fs::read_to_string(&log)?;
    // The first line of the log is the command.
    Ok(output.split_once('\n').map_or("", |(_, output)| output).to_owned())
}

/// Requests everything on the server to which the page links.
fn follow_links(server: SocketAddr, url: &str, document: &str) -> Result<usize> {
    let mut followed: Vec<String> =
        addresses(document).iter().filter_map(|link| resolve(server, url, link)).collect();
    followed.sort();
    followed.dedup();
    followed.truncate(MAX_LINKS);
    for link in &followed {
        let answer = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "10", "--output", "/dev/null"])
            .args(["--write-out", "%{http_code}", link])
            .output()?;
        let status = String::from_utf8_lossy(&answer.stdout).into_owned();
        if !status.starts_with(['2', '3']) {
            bail!("the page {url} links to {link}, which is answered with {status}");
        }
    }
    Ok(followed.len())
}

/// The values of the document's `href` and `src` attributes.
fn addresses(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    for attribute in [" href=\"", " src=\""] {
        for (at, _) in document.match_indices(attribute) {
            let rest = &document[at + attribute.len()..];
            if let Some((address, _)) = rest.split_once('"') {
                found.push(address.replace("&amp;", "&"));
            }
        }
    }
    found
}

/// The full address of a link on a page of the server. `None` if it leads elsewhere or to the page itself.
fn resolve(server: SocketAddr, page: &str, link: &str) -> Option<String> {
    let origin = format!("http://{server}");
    let path = page.strip_prefix(&origin)?.split(['?', '#']).next()?;
    let link = link.split('#').next()?;
    if link.starts_with(&format!("{origin}/")) {
        return Some(link.to_owned());
    }
    let has_scheme =
        link.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(char::is_alphanumeric));
    if link.is_empty() || link.starts_with("//") || has_scheme {
        return None;
    }
    Some(if link.starts_with('/') {
        format!("{origin}{link}")
    } else if link.starts_with('?') {
        format!("{origin}{path}{link}")
    } else {
        // curl resolves segments of `..`.
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{origin}{folder}/{link}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_as_a_browser_does() {
        let server = SocketAddr::from(([127, 0, 0, 1], 80));
        let page = "http://127.0.0.1:80/v1/demo/page/A/B?rev/";
        let resolved = |link| resolve(server, page, link);
        assert_eq!(resolved("?rev/1/").unwrap(), "http://127.0.0.1:80/v1/demo/page/A/B?rev/1/");
        assert_eq!(resolved("/docs").unwrap(), "http://127.0.0.1:80/docs");
        assert_eq!(resolved("C").unwrap(), "http://127.0.0.1:80/v1/demo/page/A/C");
        assert_eq!(resolved("http://127.0.0.1:80/x").unwrap(), "http://127.0.0.1:80/x");
        for elsewhere in ["https://example.org/", "#top", "mailto:a@example.org", "//example.org/", "data:,"]
        {
            assert_eq!(resolved(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn addresses_are_found_in_any_element() {
        let document = r#"<a class="x" href="/a?b&amp;c">x</a><script src="/s.js"></script>"#;
        assert_eq!(addresses(document), ["/a?b&c", "/s.js"]);
    }
}
