//! Rules about purges, and about answers that a purge has overtaken.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use crate::process::Stopwatch;
use anyhow::{Result, anyhow, ensure};

use super::{Gate, Rule, World, wait_until};
use crate::varnish::{
    backend::Answer,
    message::{Message, Request, get},
};

/// The age up to which the marks of an answer are compared.
const YOUNG: Duration = Duration::from_secs(3);

pub(super) const RULES: &[(&str, Rule)] = &[
    ("PURGE of a URL removes it, whatever the host of /v1/", url),
    ("PURGE of a URL removes all its variants", variants),
    ("PURGE of keys removes the answers that have one of them", keys),
    ("BAN removes everything", everything),
    ("BAN of a path removes the answers whose URLs begin with it", prefix),
    ("only operators may purge and read the metrics", acl),
    ("an answer that a PURGE of its URL has overtaken is not stored", overtaken_by_url),
    ("an answer that a PURGE of its key has overtaken is not stored", overtaken_by_key),
    ("an answer that a BAN has overtaken is not stored", overtaken_by_ban),
    ("a young answer is delivered only if no purge has touched its marks", young),
];

fn url(world: &World<'_>) -> Result<()> {
    let (purged, kept) =
        ("/v1/enwiki/page/Purged?rev/latest/html", "/v1/enwiki/page/Purged?rev/latest/wikitext");
    world.expect_cached(&get(purged))?;
    world.expect_cached(&get(kept))?;
    world.purge(&Request::new("PURGE", purged).host("other.example.org"))?;
    world.expect_cached(&get(purged))?;
    world.expect(&get(kept), "hit")?;
    let wiki = |method, host| Request::new(method, "/wiki/Purged?rev/latest/html").host(host);
    world.expect_cached(&wiki("GET", "en.example.org"))?;
    world.expect_cached(&wiki("GET", "de.example.org"))?;
    world.purge(&wiki("PURGE", "EN.example.org:80"))?;
    world.expect_cached(&wiki("GET", "en.example.org"))?;
    world.expect(&wiki("GET", "de.example.org"), "hit")?;
    ensure!(
        world.rashomon.requests().iter().all(|request| request.method() == "GET"),
        "a purge reaches the server"
    );
    Ok(())
}

fn variants(world: &World<'_>) -> Result<()> {
    world.rashomon.script(|_| Answer::cacheable("x").header("Vary", "Accept-Encoding, Accept"));
    let url = "/v1/enwiki/page/Variants?rev/latest/html";
    let all = [
        get(url),
        get(url).header("Accept-Encoding", "zstd"),
        get(url).header("Accept", "text/html;profile=\"a/1.0.0\""),
    ];
    for _ in 0..2 {
        for request in &all {
            world.expect_cached(request)?;
        }
        world.purge(&Request::new("PURGE", url))?;
    }
    Ok(())
}

fn keys(world: &World<'_>) -> Result<()> {
    world.rashomon.script(|request| {
        let (_, key) = request.url().rsplit_once('/').unwrap_or_default();
        // Both names of the header are honoured.
        Answer::cacheable("x")
            .header(if key < "k5" { "xkey" } else { "Surrogate-Key" }, format!("{key} all0"))
    });
    let page = |key: &str| get(format!("/v1/enwiki/page/Keys?rev/latest/{key}"));
    let names: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    for name in &names {
        world.expect_cached(&page(name))?;
    }
    let purge = |keys: &str| Request::new("PURGE", "/").header("Surrogate-Key", keys);
    world.purge(&purge("k1 k6").header("Surrogate-Key", "unknown2"))?;
    for name in &names {
        let removed = ["k1", "k6"].contains(&name.as_str());
        let answer = world.send(&page(name))?;
        let cache = answer.header("x-cache").to_owned();
        // The purge of `unknown2` changes the mark of all keys that end with 2. A young answer whose mark has changed
        // is not delivered, though it is still stored.
        let expected = match name.as_str() {
            _ if removed => "miss",
            "k2" => "pass",
            _ => "hit",
        };
        ensure!(cache == expected, "{name} is a {cache}, not a {expected}");
    }
    world.purge(&purge("all0"))?;
    for name in &names {
        world.expect(&page(name), "miss")?;
    }
    Ok(())
}

fn everything(world: &World<'_>) -> Result<()> {
    let all = [get("/v1/enwiki/page/Ban?rev/latest/html"), get("/wiki/Ban?rev/").host("en.example.org")];
    for _ in 0..2 {
        for request in &all {
            world.expect_cached(request)?;
        }
        world.purge(&Request::new("BAN", "/"))?;
    }
    Ok(())
}

fn prefix(world: &World<'_>) -> Result<()> {
    let below = |path: &str| get(format!("/v1/enwiki/{path}"));
    let banned = ["page/A.b(c)?rev/latest/html", "page/A.b(c)?rev/"].map(below);
    // The characters of the path have no special meaning.
    let kept = [
        below("page/Aab(c)?rev/latest/html"),
        below("page/A.b(c)d?rev/latest/html"),
        get("/wiki/v1/enwiki/page/A.b(c)?rev/"),
    ];
    for request in banned.iter().chain(&kept) {
        world.expect_cached(request)?;
    }
    world.purge(&Request::new("BAN", "/v1/enwiki/page/A.b(c)?"))?;
    for request in &banned {
        world.expect(request, "miss")?;
    }
    // Young answers are not delivered after a ban, though they are still stored.
    for request in &kept {
        world.expect(request, "pass")?;
    }
    wait_until("the answers are older", || Ok(world.send(&kept[0])?.header("x-cache") == "hit"))?;
    kept.iter().try_for_each(|request| world.expect(request, "hit").map(drop))
}

fn acl(world: &World<'_>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let backend = world.rashomon.address();
    let vcl = crate::varnish::vcl([backend, backend, backend])?;
    let others = vcl.replace("    \"127.0.0.1\";\n", "    \"192.0.2.1\";\n");
    ensure!(vcl != others, "the ACL of the VCL has changed");
    let cache = crate::varnish::start(world.files, &others, folder.path())?;
    let page = get("/v1/enwiki/page/Acl?rev/latest/html");
    page.answer(cache.address())?;
    for request in [
        Request::new("PURGE", "/v1/enwiki/page/Acl?rev/latest/html").header("X-Forwarded-For", "192.0.2.1"),
        Request::new("PURGE", "/").header("Surrogate-Key", "a"),
        Request::new("BAN", "/"),
        get("/metrics"),
    ] {
        let answer = request.answer(cache.address())?;
        let problem: serde_json::Value = serde_json::from_slice(&answer.body)?;
        ensure!(answer.status() == 403 && problem["status"] == 403, "{request:?} has {answer:?}");
    }
    ensure!(page.answer(cache.address())?.header("x-cache") == "hit", "a refused purge has an effect");
    Ok(())
}

fn overtaken_by_url(world: &World<'_>) -> Result<()> {
    let url = "/v1/enwiki/page/Overtaken?rev/latest/html";
    overtaken(world, url, &Request::new("PURGE", url))
}

fn overtaken_by_key(world: &World<'_>) -> Result<()> {
    let purge = Request::new("PURGE", "/").header("Surrogate-Key", "0c3f 07ab");
    overtaken(world, "/v1/enwiki/page/Overtaken?rev/latest/keys", &purge)
}

fn overtaken_by_ban(world: &World<'_>) -> Result<()> {
    overtaken(world, "/v1/enwiki/page/Overtaken?rev/latest/ban", &Request::new("BAN", "/"))
}

/// A fetch is in progress while a purge is acknowledged. Two readers that come after the purge get the new answer: the
/// first comes before the old answer has arrived, and the second comes later.
fn overtaken(world: &World<'_>, url: &str, purge: &Request) -> Result<()> {
    let (arrived, released, count) =
        (Arc::new(Gate::default()), Arc::new(Gate::default()), Arc::new(AtomicU32::new(0)));
    let (arrives, release, counted) = (Arc::clone(&arrived), Arc::clone(&released), Arc::clone(&count));
    world.rashomon.script(move |_| {
        let is_first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        if is_first {
            arrives.open();
            release.wait(1);
        }
        Answer::cacheable(if is_first { "old" } else { "new" }).header("xkey", "15ec 07ab")
    });
    let texts = thread::scope(|scope| -> Result<[String; 3]> {
        let first = scope.spawn(|| get(url).answer(world.address()));
        arrived.wait(1);
        world.purge(purge)?;
        let mut second = get(url).send(world.address())?;
        // An answer on another connection gives Varnish the time to look the second request up.
        world.purge(&Request::new("PURGE", "/v1/enwiki/page/Other"))?;
        released.open();
        let first = first.join().map_err(|_| anyhow!("the first reader panicked"))??;
        Ok([first.text(), Message::read(&mut second)?.text(), world.get(url)?.text()])
    })?;
    ensure!(texts == ["old", "new", "new"], "the readers got {texts:?}");
    // The new answer is stored.
    wait_until("the new answer is stored", || {
        let answer = world.get(url)?;
        ensure!(answer.text() == "new", "an old answer came back: {answer:?}");
        Ok(answer.header("x-cache") == "hit")
    })
}

fn young(world: &World<'_>) -> Result<()> {
    world.rashomon.script(|_| Answer::cacheable("x").header("xkey", "77aa3"));
    let page = get("/v1/enwiki/page/Young?rev/latest/html");
    let clock = Stopwatch::start();
    world.expect_cached(&page)?;
    // A key with the same last digit changes the mark, and removes nothing.
    world.purge(&Request::new("PURGE", "/").header("Surrogate-Key", "bb113"))?;
    let cache = world.send(&page)?.header("x-cache").to_owned();
    ensure!(cache == "pass" || clock.elapsed() > YOUNG, "a young answer with an old mark is a {cache}");
    wait_until("the answer is older", || Ok(world.send(&page)?.header("x-cache") == "hit"))?;
    ensure!(clock.elapsed() >= YOUNG, "the answer was delivered after {:?}", clock.elapsed());
    // Another digit does not matter.
    world.purge(&Request::new("PURGE", "/v1/enwiki/page/Young?rev/latest/html"))?;
    world.expect(&page, "miss")?;
    world.purge(&Request::new("PURGE", "/").header("Surrogate-Key", "bb114"))?;
    world.expect(&page, "hit").map(drop)
}
