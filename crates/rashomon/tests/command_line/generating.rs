//! A server with a renderer.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    home::Home,
    http::{get, post},
};

const PAGE: &str = "/v1/wiki/page/Night";

/// Starts a renderer. It fails for the third revision, does not answer for the second, and renders all
/// others. Returns its port, and a counter of its requests.
fn renderer() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&asked);
    thread::spawn(move || {
        let mut unanswered = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<_> = lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
            counter.fetch_add(1, Ordering::SeqCst);
            if head[0].contains("/2 ") {
                unanswered.push(stream);
                continue;
            }
            let status = if head[0].contains("/3 ") { "500 Internal Server Error" } else { "200 OK" };
            let body = format!("<p>made: {}", head[0]);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (port, asked)
}

/// The answer after all redirects.
fn follow(address: &str, target: &str) -> String {
    let answer = get(address, target);
    let location = answer.lines().find_map(|line| line.strip_prefix("location: ").map(str::to_owned));
    match location {
        Some(location) if answer.starts_with("HTTP/1.1 302 ") => follow(address, &location),
        _ => answer,
    }
}

#[test]
fn missing_property_is_generated_once_and_stored() {
    let Some(home) = Home::new() else { return };
    let (port, asked) = renderer();
    home.write(
        "made.toml",
        &format!(
            "read_timeout = '1s'\n[retention]\n[generator]\ntimeout = '1s'\nhosts = ['127.0.0.1:{port}']\n\
             [generator.properties.html]\nurl = 'http://127.0.0.1:{port}/{{title}}/{{rev}}'\n"
        ),
    );
    let (server, address) = home.serve(&["--config", "made.toml"]);
    for number in 1..=4 {
        let written = post(&address, &format!("{PAGE}?rev/"), &format!("_rev={number}&wikitext=the+light"));
        assert!(written.starts_with("HTTP/1.1 201"), "{written}");
    }
    let made = follow(&address, &format!("{PAGE}?rev/1/html"));
    assert!(made.starts_with("HTTP/1.1 200 ") && made.ends_with("<p>made: GET /Night/1 HTTP/1.1"), "{made}");
    let again = follow(&address, &format!("{PAGE}?rev/1/html"));
    assert!(
        again.starts_with("HTTP/1.1 200 ") && again.ends_with("<p>made: GET /Night/1 HTTP/1.1"),
        "{again}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let failed = follow(&address, &format!("{PAGE}?rev/3/html"));
    assert!(failed.starts_with("HTTP/1.1 502 "), "{failed}");
    // The error must not blame the store for the delay.
    let late = follow(&address, &format!("{PAGE}?rev/2/html"));
    assert!(late.starts_with("HTTP/1.1 504 "), "{late}");
    let latest = follow(&address, &format!("{PAGE}?rev/latest/html"));
    assert!(latest.ends_with("<p>made: GET /Night/4 HTTP/1.1"), "{latest}");
    let metrics = get(&address, "/metrics");
    for declared in metrics.lines().filter(|line| line.starts_with("# TYPE ")) {
        assert!(declared.starts_with("# TYPE rashomon_"), "{declared}");
    }
    for line in [
        "rashomon_generator_hits_total 1",
        "rashomon_generator_misses_total 4",
        "rashomon_generator_failures_total 2",
        "rashomon_generator_in_flight 0",
    ] {
        assert!(metrics.contains(&format!("\n{line}")), "{line}: {metrics}");
    }
    server.stop().ends_with(0);
    // The property is read from the store.
    let (server, address) = home.serve(&["--config", "made.toml"]);
    let kept = follow(&address, &format!("{PAGE}?rev/1/html"));
    assert!(kept.ends_with("<p>made: GET /Night/1 HTTP/1.1"), "{kept}");
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    server.stop().ends_with(0);
}
