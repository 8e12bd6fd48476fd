//! A client of the service. It sends writes and returns their outcomes, and checks the answers to reads.

use std::{borrow::Cow, net::SocketAddr, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    MAX_ATTEMPTS, RETRY_PAUSE,
    content::{self, Properties, Write},
    journal::{Outcome, ReadOutcome},
    judge::Renders,
};
use crate::http;

/// The time limit of an answer. The service itself gives up earlier.
const LIMIT: Duration = Duration::from_secs(10);

/// One connection, which is reopened after a failure.
#[derive(Debug)]
pub(super) struct Client {
    address: SocketAddr,
    connection: Option<http::Client>,
}

impl Client {
    pub(super) const fn new(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    fn send(&mut self, request: &[u8]) -> Result<(u16, Vec<u8>)> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => http::Client::connect_for(self.address, LIMIT)?,
        };
        let answer = connection.send(request)?;
        self.connection = Some(connection);
        Ok(answer)
    }

    /// Sends a read, at most [`MAX_ATTEMPTS`] times, until it is answered with a status below 500.
    fn send_with_retry(&mut self, request: &[u8]) -> Result<(u16, Vec<u8>)> {
        for _ in 1..MAX_ATTEMPTS {
            match self.send(request) {
                Ok((500.., _)) | Err(_) => thread::sleep(RETRY_PAUSE),
                answer => return answer,
            }
        }
        self.send(request)
    }

    /// Sends a write, or one more render of a write.
    pub(super) fn write(&mut self, request: &[u8]) -> Outcome {
        match self.send(request) {
            Err(error) => Outcome::Unknown(format!("{error:#}")),
            Ok((200 | 201, body)) => match tid_in(&body) {
                Some(tid) => Outcome::Acknowledged(tid),
                None => Outcome::Unknown(format!("an answer without a tid: {}", error_text(&body))),
            },
            Ok((status @ 400..500, body)) => Outcome::Refused(format!("{status} {}", error_text(&body))),
            Ok((status, body)) => Outcome::Unknown(format!("{status} {}", error_text(&body))),
        }
    }

    /// Reads the html of one render.
    pub(super) fn read(&mut self, write: Write, tid: &str, seed: u64) -> ReadOutcome {
        let path = format!("{}?rev/{tid}/html", content::path(write.page()));
        self.check_read(&path, |html| {
            (html != write.html(seed)).then(|| format!("the html of {write} differs from the written html"))
        })
    }

    /// Reads the newest html of a page on which this write was acknowledged.
    pub(super) fn read_newest(&mut self, acknowledged: Write, seed: u64) -> ReadOutcome {
        let page = acknowledged.page();
        let path = format!("{}?rev/latest/html", content::path(page));
        self.check_read(&path, |html| match content::write_of(html) {
            Some(newest) if newest.page() == page && html == newest.html(seed) => (newest < acknowledged)
                .then(|| format!("the newest is {newest}, and {acknowledged} was acknowledged before")),
            _ => Some(format!("the newest html of page {page} was never written")),
        })
    }

    fn check_read(&mut self, path: &str, wrong: impl FnOnce(&[u8]) -> Option<String>) -> ReadOutcome {
        match self.send(&http::get(path)) {
            Err(error) => ReadOutcome::Nothing(format!("{error:#}")),
            Ok((200, html)) => wrong(&html).map_or(ReadOutcome::Right, ReadOutcome::Wrong),
            Ok((status @ 500.., body)) => ReadOutcome::Nothing(format!("{status} {}", error_text(&body))),
            Ok((status, body)) => ReadOutcome::Wrong(format!("{path}: {status} {}", error_text(&body))),
        }
    }

    /// Returns all renders of a write's revision, with all their properties.
    pub(super) fn renders(&mut self, write: Write) -> Result<Renders> {
        let page = content::path(write.page());
        let (status, body) = self.send_with_retry(&http::get(&format!("{page}?rev/{}/", write.0)))?;
        if status == 404 {
            return Ok(Renders::new());
        }
        ensure!(status == 200, "{write} is answered with {status} {}", error_text(&body));
        let revision: Value = serde_json::from_slice(&body)?;
        let mut renders = Renders::new();
        for render in revision["renders"].as_array().context("the revision has no renders")? {
            let tid = render["tid"].as_str().context("a render has no tid")?;
            let mut properties = Properties::new();
            for name in render["properties"].as_object().context("a render has no properties")?.keys() {
                let (status, body) = self.send_with_retry(&http::get(&format!("{page}?rev/{tid}/{name}")))?;
                ensure!(matches!(status, 200 | 404), "{name} of {write} is answered with {status}");
                if status == 200 {
                    properties.insert(name.clone(), body);
                }
            }
            renders.insert(tid.to_owned(), properties);
        }
        Ok(renders)
    }
}

fn tid_in(body: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    Some(answer["tid"].as_str()?.to_owned())
}

/// The `detail` of a problem document, so that equal problems are counted together. For any other body, its beginning.
fn error_text(body: &[u8]) -> String {
    const MAX: usize = 300;
    let problem = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let text = problem["detail"].as_str().map_or_else(|| String::from_utf8_lossy(body), Cow::Borrowed);
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX).collect()
}
