//! Rules about the answers that are stored, and about the answers if a server fails.

use std::{io::Read, net::TcpListener, sync::Arc};

use anyhow::{Context, Result, ensure};

use super::{Gate, Rule, World, wait_until};
use crate::varnish::{
    backend::Answer,
    message::{Message, Request, get},
};

/// A body that is too large to be stored.
const LARGE_BYTES: usize = (16 << 20) + 1;

pub(super) const RULES: &[(&str, Rule)] = &[
    ("an answer is stored only if the server allows it", not_stored),
    ("failures of a server are not stored", failures),
    ("an expired answer is not used again", expired),
    ("a range of a stored body comes from the cache", ranges),
    ("a large body is not stored, and its ranges come from the server", large_bodies),
    ("If-Modified-Since counts only for a render by its tid", dates),
    ("a broken answer is not sent to another reader that waits for it", broken),
    ("a server that cannot be reached is a problem that is not stored", unreachable),
];

fn not_stored(world: &World<'_>) -> Result<()> {
    for (name, value) in [
        ("none", ""),
        ("no-store", "no-store"),
        ("private", "private, max-age=3600"),
        ("revalidate", "public, max-age=0, s-maxage=0, must-revalidate"),
    ] {
        world.rashomon.script(move |_| Answer::cacheable("x").header("Cache-Control", value));
        world.expect_passed(&get(format!("/v1/enwiki/page/{name}?rev/latest/html")))?;
    }
    world.rashomon.script(|_| Answer::cacheable("").status(302).header("Location", "?rev/latest/html"));
    world.expect_cached(&get("/v1/enwiki/page/Redirect?rev/latest"))
}

fn failures(world: &World<'_>) -> Result<()> {
    for status in [404, 500, 503] {
        let url = format!("/v1/enwiki/page/Failure-{status}?rev/latest/html");
        // The service sends `no-store` with a failure. This script does not, as a service with a bug might not.
        world.rashomon.script(move |_| Answer::cacheable("x").status(status));
        for _ in 0..2 {
            ensure!(world.get(&url)?.status() == status, "another status than {status}");
        }
        ensure!(world.rashomon.requests().len() == 2, "{status} is stored");
        world.rashomon.script(|_| Answer::cacheable("x"));
        world.expect_cached(&get(url))?;
    }
    Ok(())
}

fn expired(world: &World<'_>) -> Result<()> {
    let control = "public, max-age=0, s-maxage=1, must-revalidate, stale-while-revalidate=60";
    let script = |body: &'static str| {
        move |request: &Message| {
            assert!(request.header("if-none-match").is_empty(), "an expired answer is revalidated");
            Answer::cacheable(body).header("Cache-Control", control).header("ETag", "\"1/x\"")
        }
    };
    world.rashomon.script(script("old"));
    let request = get("/v1/enwiki/page/Expired?rev/latest/html");
    world.expect_cached(&request)?;
    world.rashomon.script(script("new"));
    wait_until("the answer expires", || {
        let answer = world.send(&request)?;
        let is_old = answer.text() == "old";
        ensure!(is_old == (answer.header("x-cache") == "hit"), "an old answer: {answer:?}");
        Ok(!is_old)
    })
}

fn ranges(world: &World<'_>) -> Result<()> {
    world.rashomon.script(|request| {
        assert!(request.header("range").is_empty(), "the server is asked for a range");
        Answer::cacheable("0123456789").header("ETag", "\"1/x\"")
    });
    let url = "/v1/enwiki/page/Ranges?rev/latest/html";
    for cache in ["miss", "hit"] {
        let answer = world.expect(&get(url).header("Range", "bytes=2-4"), cache)?;
        ensure!((answer.status(), answer.text().as_str()) == (206, "234"), "{answer:?}");
    }
    let answer = world.send(&get(url).header("Range", "bytes=20-"))?;
    ensure!(answer.status() == 416, "{answer:?}");
    let matching = world.expect(&get(url).header("If-None-Match", "\"1/x\""), "hit")?;
    ensure!(matching.status() == 304, "{matching:?}");
    Ok(())
}

fn large_bodies(world: &World<'_>) -> Result<()> {
    world.rashomon.script(|request| match request.header("range") {
        "" => Answer::cacheable(vec![b'x'; LARGE_BYTES]),
        _ => {
            Answer::cacheable("part").status(206).header("Content-Range", format!("bytes 0-3/{LARGE_BYTES}"))
        }
    });
    let url = "/v1/enwiki/page/Large?rev/latest/html";
    let answer = world.get(url)?;
    ensure!(answer.status() == 200 && answer.body.len() == LARGE_BYTES, "{}", answer.first);
    let part = get(url).header("Range", "bytes=0-3");
    let got = world.expect_passed(&part)?;
    ensure!(got.header("range") == "bytes=0-3", "the server got {got:?}");
    let answer = world.send(&part)?;
    ensure!(answer.status() == 206 && answer.text() == "part", "{answer:?}");
    Ok(())
}

fn dates(world: &World<'_>) -> Result<()> {
    let date = "Tue, 01 Sep 2026 00:00:00 GMT";
    world.rashomon.script(move |_| Answer::cacheable("x").header("Last-Modified", date));
    let tid = "?rev/8f545ba0-2601-11e3-885c-4160918f0fb9/html";
    for (query, expected) in [("?rev/latest/html", 200), (tid, 304)] {
        let request = get(format!("/v1/enwiki/page/Dates{query}")).header("If-Modified-Since", date);
        for _ in 0..2 {
            let answer = world.send(&request)?;
            ensure!(answer.status() == expected, "{query} has {answer:?}");
        }
    }
    Ok(())
}

/// A fetch breaks while a second reader waits for it.
fn broken(world: &World<'_>) -> Result<()> {
    let (arrived, released) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (arrives, release) = (Arc::clone(&arrived), Arc::clone(&released));
    world.rashomon.script(move |request| {
        // Varnish sends a request again if a kept connection breaks, so the id tells the readers apart.
        if request.header("x-request-id") != "first" {
            return Answer::cacheable("whole");
        }
        arrives.open();
        release.wait(1);
        Answer::broken()
    });
    let request = get("/v1/enwiki/page/Broken?rev/latest/html");
    let mut first = request.clone().header("X-Request-Id", "first").send(world.address())?;
    arrived.wait(1);
    let mut second = request.send(world.address())?;
    // An answer on another connection gives Varnish the time to look the second request up.
    world.purge(&Request::new("PURGE", "/v1/enwiki/page/Other"))?;
    released.open();
    let answers = [Message::read(&mut first)?, Message::read(&mut second)?];
    ensure!(answers[0].status() == 503, "the first reader got {answers:?}");
    ensure!(answers[1].text() == "whole", "the second reader got {answers:?}");
    Ok(())
}

fn unreachable(world: &World<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    // A listener that was dropped leaves an address at which nothing listens.
    let nothing = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let vcl = crate::varnish::vcl([nothing, nothing, nothing])?;
    let cache = crate::varnish::start(world.files, &vcl, folder.path())?;
    let request = get("/v1/enwiki/page/Unreachable?rev/latest/html").header("X-Request-Id", "mine");
    for _ in 0..2 {
        let answer = request.answer(cache.address())?;
        let problem: serde_json::Value = serde_json::from_slice(&answer.body)?;
        ensure!(
            answer.status() == 503
                && answer.header("content-type") == "application/problem+json"
                && answer.header("x-request-id") == "mine"
                && answer.header("cache-control") == "no-store"
                && !answer.header("retry-after").is_empty()
                && problem["status"] == 503,
            "{answer:?}"
        );
    }
    let purged = Request::new("PURGE", "/v1/enwiki/page/Unreachable").answer(cache.address())?;
    ensure!(purged.status() == 200, "{purged:?}");
    // As soon as the server works, its answer is sent.
    let listener = TcpListener::bind(nothing).context("another process took the port")?;
    let gate = Arc::new(Gate::default());
    let opened = Arc::clone(&gate);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut buffer = [0; 4096];
            while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
                let answer =
                    "HTTP/1.1 200 OK\r\nCache-Control: public, s-maxage=9\r\nContent-Length: 1\r\n\r\nx";
                if std::io::Write::write_all(&mut stream, answer.as_bytes()).is_err() {
                    break;
                }
                opened.open();
            }
        }
    });
    gate.wait(1);
    wait_until("the server is healthy", || Ok(request.answer(cache.address())?.status() == 200))?;
    Ok(())
}
