//! Rules about the requests that are looked up, the requests that are passed, and the servers that get them.

use anyhow::{Result, ensure};

use super::{Rule, World};
use crate::varnish::{
    backend::Answer,
    message::{Request, get},
};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("answers are stored, with their own request ids", stored),
    ("writes, tokens, cookies and conditions are passed", passed),
    ("resources for operators and people are passed", not_of_the_api),
    ("Accept without a profile is stripped", accept),
    ("the query stays as it is", raw_query),
    ("/v1/ has one copy for all hosts, /wiki/ one for each", hosts),
    ("Accept-Encoding becomes zstd or empty", zstd),
    ("requests below a prefix go to its own servers in turn", prefix),
];

fn stored(world: &World<'_>) -> Result<()> {
    let request = |id: &str| get("/v1/enwiki/page/Stored?rev/latest/html").header("X-Request-Id", id);
    world.rashomon.script(|request| {
        Answer::cacheable("x").header("X-Request-Id", request.header("x-request-id")).header("xkey", "ab cd")
    });
    for (id, cache) in [("first", "miss"), ("second", "hit")] {
        let answer = world.expect(&request(id), cache)?;
        ensure!(answer.header("x-request-id") == id, "another id: {answer:?}");
        for hidden in ["age", "xkey", "surrogate-key", "rashomon-marks", "rashomon-url"] {
            ensure!(answer.header(hidden).is_empty(), "{hidden} is delivered: {answer:?}");
        }
        ensure!(answer.header("cache-control").contains("max-age=0"), "{answer:?}");
    }
    let head = Request::new("HEAD", "/v1/enwiki/page/Stored?rev/latest/html");
    ensure!(world.expect(&head, "hit")?.body.is_empty(), "an answer to HEAD has a body");
    ensure!(world.rashomon.requests().len() == 1, "the server is asked more than once");
    // The service replaces these ids. The cache does so first, so that both have the same id.
    for (number, unusable) in ["", "a\"b", "a b", &"a".repeat(129)].into_iter().enumerate() {
        let url = format!("/v1/enwiki/page/Ids-{number}?rev/latest/html");
        // The answer to the first request has the id that the server got.
        for (request, cache) in [
            (get(&*url).header("X-Request-Id", unusable), "miss"),
            (get(&*url).header("X-Request-Id", unusable), "hit"),
            (get(&*url), "hit"),
        ] {
            let answer = world.expect(&request, cache)?;
            let id = answer.header("x-request-id");
            ensure!(id.contains('-') && id.len() <= 128, "the new request id is {id:?}, after {unusable:?}");
        }
    }
    Ok(())
}

fn passed(world: &World<'_>) -> Result<()> {
    let url = "/v1/enwiki/page/Passed?rev/latest/html";
    for request in [
        get(url).header("Authorization", "Bearer abc"),
        get(url).header("Cookie", "a=b"),
        get(url).header("If-Match", "\"1/x\""),
        get(url).header("If-Unmodified-Since", "Tue, 01 Sep 2026 00:00:00 GMT"),
        Request::new("OPTIONS", url),
        Request::new("DELETE", url),
        Request::new("POST", url).body("html=x").header("X-Request-Id", "mine"),
    ] {
        world.expect_passed(&request)?;
    }
    let got =
        world.expect_passed(&Request::new("POST", url).body("html=x").header("X-Request-Id", "mine"))?;
    ensure!(got.text() == "html=x" && got.header("x-request-id") == "mine", "the server got {got:?}");
    // The answer to a request that is passed is not stored.
    world.expect_cached(&get(url))
}

fn not_of_the_api(world: &World<'_>) -> Result<()> {
    for url in ["/", "/readyz", "/metrics", "/openapi.json", "/v1"] {
        world.expect_passed(&get(url))?;
    }
    Ok(())
}

fn accept(world: &World<'_>) -> Result<()> {
    let profile = "text/html; profile=\"https://www.mediawiki.org/wiki/Specs/HTML/2.8.0\"";
    world.rashomon.script(|request| Answer::cacheable(request.header("accept")).header("Vary", "Accept"));
    let url = "/v1/enwiki/page/Accept?rev/latest/html";
    let with = |accept: &str| get(url).header("Accept", accept);
    for (request, cache, received) in [
        (with("text/html,*/*;q=0.8"), "miss", ""),
        (with("image/png"), "hit", ""),
        (get(url), "hit", ""),
        (with(profile), "miss", profile),
        (with(profile), "hit", profile),
        // The second header counts too.
        (with("text/html").header("Accept", "text/html;PROFILE=x"), "miss", "text/html, text/html;PROFILE=x"),
    ] {
        let answer = world.expect(&request, cache)?;
        ensure!(answer.text() == received, "the server got {}, not {received}", answer.text());
    }
    Ok(())
}

fn raw_query(world: &World<'_>) -> Result<()> {
    for url in [
        "/v1/enwiki/page/Raw?rev/latest/html",
        "/v1/enwiki/page/Raw?rev%2Flatest%2Fhtml",
        "/v1/enwiki/page/Raw?rev/&page=b&limit=2",
        "/v1/enwiki/page/Raw?rev/&limit=2&page=b",
        "/v1/enwiki/page/a%2Bb%26c?rev/latest/html",
        "/v1/enwiki/page/a+b&c?rev/latest/html",
    ] {
        let answer = world.expect(&get(url), "miss")?;
        ensure!(answer.text() == url, "the server got {} for {url}", answer.text());
    }
    Ok(())
}

fn hosts(world: &World<'_>) -> Result<()> {
    world.rashomon.script(|request| Answer::cacheable(request.header("host")));
    let api = "/v1/enwiki/page/Hosts?rev/latest/html";
    // The links in the copy name one host, whatever the first client says.
    world.expect(&get(api).host("10.0.0.1:6081"), "miss")?;
    let answer = world.expect(&get(api), "hit")?;
    ensure!(answer.text() == "store.example.org", "the copy was made for {}", answer.text());
    world.rashomon.script(|request| {
        let names = ["x-forwarded-proto", "x-forwarded-host", "x-forwarded-prefix"];
        Answer::cacheable(names.map(|name| request.header(name)).join(" "))
    });
    let claim = names_of_a_client(get("/wiki/Claim?rev/latest/html").host("en.example.org"));
    let answer = world.expect(&claim, "miss")?;
    ensure!(answer.text() == "http  ", "a client chooses the links in a stored answer: {}", answer.text());
    world.rashomon.script(|request| Answer::cacheable(request.header("host")));
    let wiki = "/wiki/Hosts?rev/latest/html";
    for (host, cache) in [
        ("en.example.org", "miss"),
        ("EN.example.org", "hit"),
        ("en.example.org:80", "hit"),
        ("en.example.org:443", "hit"),
        ("en.example.org.", "hit"),
        ("de.example.org", "miss"),
        // No purge would name this copy.
        ("en.example.org:8080", "pass"),
    ] {
        let answer = world.expect(&get(wiki).host(host), cache)?;
        ensure!(host.to_lowercase().starts_with(&answer.text()), "{host} has the answer of {answer:?}");
    }
    Ok(())
}

/// Adds the headers of a proxy to a request.
fn names_of_a_client(request: Request) -> Request {
    request
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "evil.example.org")
        .header("X-Forwarded-Prefix", "/evil")
}

fn zstd(world: &World<'_>) -> Result<()> {
    world.rashomon.script(|request| {
        Answer::cacheable(request.header("accept-encoding")).header("Vary", "Accept-Encoding")
    });
    let url = "/v1/enwiki/page/Zstd?rev/latest/html";
    for (encodings, cache, received) in [
        ("gzip, deflate, br, zstd", "miss", "zstd"),
        ("ZSTD;q=0.5", "hit", "zstd"),
        ("gzip, br", "miss", ""),
        ("zstd;q=0, gzip", "hit", ""),
        ("zstd; q=0.000", "hit", ""),
        ("x-zstd", "hit", ""),
    ] {
        let answer = world.expect(&get(url).header("Accept-Encoding", encodings), cache)?;
        ensure!(answer.text() == received, "the server got {} for {encodings}", answer.text());
    }
    // A range counts uncompressed bytes.
    world.rashomon.script(|request| Answer::cacheable(format!("<{}>", request.header("accept-encoding"))));
    let part = get("/v1/enwiki/page/Zstd?rev/latest/part").header("Range", "bytes=0-");
    let answer = world.send(&part.header("Accept-Encoding", "zstd"))?;
    ensure!((answer.status(), answer.text().as_str()) == (206, "<>"), "{answer:?}");
    Ok(())
}

fn prefix(world: &World<'_>) -> Result<()> {
    let [first, second] = &world.formulas;
    for number in 0..4 {
        world.get(&format!("/v1/enwiki/math-png/{number}.png"))?;
    }
    let own = Request::new("GET", "/wiki/?blob/math-png/a.png").host("en.example.org");
    world.send(&own)?;
    world.send(&Request::new("PUT", "/v1/enwiki/math-png").body("{}"))?;
    let (one, two) = (first.requests(), second.requests());
    ensure!(one.len() == 3 && two.len() == 3, "{} and {} requests", one.len(), two.len());
    ensure!(world.rashomon.requests().is_empty(), "the prefix reaches the other server");
    for url in ["/v1/enwiki/math-pngs/a.png", "/v1/dewiki/math-png/a.png", "/wiki/?blob/math-png/a.png"] {
        world.get(url)?;
    }
    ensure!(world.rashomon.requests().len() == 3, "other prefixes do not reach the first server");
    Ok(())
}
