//! `access`: compares requests with tokens and requests to a server without configured access, in turns.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use rashomon_clock::Clock;
use rashomon_server::access::signer::{Signer, key_set};
use serde_json::{Value, json};
use xtask::{http, service::Service};

use super::{
    content::{Contents, HTML_SIZE},
    load::{self, Pace, Plan, Traffic},
    reads::Reads,
    report::Report,
    service,
    writes::{self, Writes},
};

const WARM_UP: Duration = Duration::from_secs(1);
const PAGES: usize = 50;
const TOKENS: usize = 10_000;
const KEYS: usize = 100;
/// The audience of the JSON Web Tokens.
const AUDIENCE: &str = "bench";

/// The options of the measurement.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Options {
    /// Seconds of each measurement of a turn, after one second of warm-up.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 16)]
    connections: usize,
}

/// The servers, in the order of the first turn. The first server is the base of the ratios.
const SIDES: [&str; 4] = ["nothing configured", "one token", "10,000 tokens", "100 JWKS keys"];
const KINDS: [&str; 2] = ["GET of the latest", "POST"];

pub(crate) fn run(options: &Options, binary: &Path, runs: usize, clock: &dyn Clock) -> Result<Report> {
    let mut report = Report::new(
        "access",
        format!(
            "Four servers are measured in turns, in rotating order: without configured access, with one token, with \
             {TOKENS} tokens that are sent in turn, and with one JSON Web Token for each of {KEYS} keys (ES256). \
             Requests: GET of the latest html ({HTML_SIZE} bytes), and POST of revisions to {PAGES} pages. {} \
             connections are kept alive. Each measurement takes {} s after {} s of warm-up. Requests without a token \
             have another header of the same length",
            options.connections,
            options.seconds,
            WARM_UP.as_secs(),
        ),
    );
    let contents = Contents::new(1);
    let folder = service::data_folder()?;
    let mut sides = Vec::new();
    for place in 0..SIDES.len() {
        let folder = folder.path().join(place.to_string());
        fs::create_dir(&folder)?;
        sides.push(Side::start(place, binary, &folder, options, &contents, clock)?);
    }
    for turn in 0..runs {
        eprintln!("turn {}", turn + 1);
        for kind in KINDS {
            let mut rates = [0.0; SIDES.len()];
            for step in 0..SIDES.len() {
                let place = (turn + step) % SIDES.len();
                rates[place] = sides[place].measure(kind, options, &contents, clock)?;
            }
            for (place, side) in SIDES.iter().enumerate() {
                report.add(&format!("{kind}, {side}"), "a second", rates[place]);
                if place > 0 {
                    report.add(&format!("{kind}, {side} / {}", SIDES[0]), "", rates[place] / rates[0]);
                }
            }
        }
    }
    Ok(report)
}

/// A server with the headers that its requests have.
struct Side {
    service: Service,
    headers: Vec<String>,
    next_revision: u64,
}

impl Side {
    fn start(
        place: usize,
        binary: &Path,
        folder: &Path,
        options: &Options,
        contents: &Contents,
        clock: &dyn Clock,
    ) -> Result<Self> {
        let data = folder.join("store");
        let admin = admin_token(binary, &data)?;
        let bearer = |token: &String| format!("Authorization: Bearer {token}\r\n");
        let signed = (place == 3).then(|| web_tokens(folder)).transpose()?;
        let config = match place {
            0 => String::new(),
            3 => format!(
                "[access]\naudience = \"{AUDIENCE}\"\njwks_file = \"{}\"\n",
                folder.join("jwks.json").display()
            ),
            _ => "[access]\n".to_owned(),
        };
        let file = folder.join("rashomon.toml");
        fs::write(&file, config)?;
        let arguments =
            ["serve".as_ref(), "--config".as_ref(), file.as_os_str(), "--data".as_ref(), data.as_os_str()];
        let service = Service::start(binary, &arguments, &folder.join("log"))?;
        let headers = match signed {
            Some(tokens) => tokens.iter().map(bearer).collect(),
            // This header is as long as one with a token.
            None if place == 0 => vec![format!("X-No-Authorization: {}\r\n", "x".repeat(admin.len() + 2))],
            None if place == 1 => vec![bearer(&admin)],
            None => make_tokens(&service, &admin)?.iter().map(bearer).collect(),
        };
        let mut side = Self { service, headers, next_revision: 1 };
        // Every page has a latest revision before the first read.
        side.measure("POST", &Options { seconds: 1, ..*options }, contents, clock)?;
        Ok(side)
    }

    /// The answers per second of a kind of request.
    fn measure(
        &mut self,
        kind: &str,
        options: &Options,
        contents: &Contents,
        clock: &dyn Clock,
    ) -> Result<f64> {
        let plan = Plan {
            address: self.service.address(),
            connections: options.connections,
            pace: Pace::Closed,
            warm_up: WARM_UP,
            measure: Duration::from_secs(options.seconds),
        };
        let titles = writes::titles(PAGES);
        if kind == "POST" {
            let writes = Writes::new(contents, titles, self.next_revision, options.connections);
            let mut writes = WithHeader { traffic: writes, headers: &self.headers, next: 0 };
            let rate = load::run(&plan, clock, &mut writes)?.per_second();
            self.next_revision = writes.traffic.next();
            return Ok(rate);
        }
        let paths: Vec<String> =
            titles.iter().map(|title| format!("{}?rev/latest/html", writes::page_path(title))).collect();
        let reads = Reads::new(&paths, Some(HTML_SIZE), None, options.connections);
        let mut reads = WithHeader { traffic: reads, headers: &self.headers, next: 0 };
        Ok(load::run(&plan, clock, &mut reads)?.per_second())
    }
}

/// Traffic that adds a header to each request, in turn from a list.
struct WithHeader<'a, T> {
    traffic: T,
    headers: &'a [String],
    next: usize,
}

impl<T: Traffic> Traffic for WithHeader<'_, T> {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        self.traffic.request(connection, out);
        let header = &self.headers[self.next];
        self.next = (self.next + 1) % self.headers.len();
        let line = out.windows(2).position(|two| two == b"\r\n").map_or(0, |end| end + 2);
        out.splice(line..line, header.bytes());
    }

    fn answer(&mut self, connection: usize, status: u16, body: &[u8]) -> Result<()> {
        self.traffic.answer(connection, status, body)
    }
}

/// Makes a token for everything in a new store.
fn admin_token(binary: &Path, data: &Path) -> Result<String> {
    let mut command = std::process::Command::new(binary);
    command.args(["token", "new", "--rights", "read,write,admin", "--domain", "*", "--data"]).arg(data);
    Ok(String::from_utf8(service::finish(&mut command)?.stdout)?.trim().to_owned())
}

/// Makes tokens through the server.
fn make_tokens(service: &Service, admin: &str) -> Result<Vec<String>> {
    let body = json!({"rights": ["read", "write"], "domains": [service::DOMAIN]}).to_string();
    let request = format!(
        "POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {admin}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = http::Client::connect(service.address())?;
    (0..TOKENS)
        .map(|_| {
            let (status, answer) = client.send(request.as_bytes())?;
            ensure!(status == 201, "the request for a token was answered with {status}");
            let answer: Value = serde_json::from_slice(&answer)?;
            Ok(answer["token"].as_str().context("an answer has no token")?.to_owned())
        })
        .collect()
}

/// Makes keys, writes the public ones to `jwks.json` in the folder, and signs a token with each.
fn web_tokens(folder: &Path) -> Result<Vec<String>> {
    let claims = json!({
        "exp": 4_000_000_000_u64, "aud": AUDIENCE, "sub": "bench", "rights": ["read", "write"],
        "domains": [service::DOMAIN],
    });
    let (mut public, mut tokens) = (Vec::new(), Vec::new());
    for number in 0..KEYS {
        let (signer, id) = (Signer::ec(), format!("key-{number}"));
        public.push(signer.jwk_with_id(&id));
        tokens.push(signer.sign(Some(&id), &claims));
    }
    fs::write(folder.join("jwks.json"), key_set(public))?;
    Ok(tokens)
}
