//! Compares a batch of 100 requests with 100 requests one after the other on one connection.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use xtask::http::{self, Client};

use super::{Bench, JSON, entry_path, in_turn, with_body};
use crate::report::Report;

const BUCKET: &str = "blobs";
const REQUESTS: usize = 100;
const BODY_SIZE: usize = 1 << 10;

pub(super) fn measure(bench: &Bench<'_>, turn: usize, report: &mut Report) -> Result<()> {
    // The entries that the GETs read are stored by the PUTs.
    for method in ["PUT", "GET"] {
        let requests = requests(bench, method, turn)?;
        let batch = batch(bench, method, turn)?;
        let (batched, single) = in_turn(
            turn,
            || repeat(bench, |client| send_batch(client, &batch)),
            || repeat(bench, |client| requests.iter().try_for_each(|request| send(client, request))),
        )?;
        let each = |times: f64| times * REQUESTS as f64;
        report.add(&format!("{method}s of 1 KiB in batches of {REQUESTS}"), "a second", each(batched));
        report.add(&format!("{method}s of 1 KiB one by one"), "a second", each(single));
        report.add(&format!("{method}s, batched / one by one"), "", batched / single);
    }
    Ok(())
}

fn path(number: usize) -> String {
    entry_path(BUCKET, &format!("batch/{number:03}.html"))
}

fn body(bench: &Bench<'_>, number: usize) -> Result<String> {
    let mut body = bench.contents.html(number as u64);
    body.truncate(BODY_SIZE);
    Ok(String::from_utf8(body)?)
}

fn requests(bench: &Bench<'_>, method: &str, turn: usize) -> Result<Vec<Vec<u8>>> {
    (0..REQUESTS)
        .map(|number| {
            Ok(match method {
                "GET" => http::get(&path(number)),
                _ => {
                    let body = body(bench, turn * REQUESTS + number)?;
                    with_body(method, &path(number), "text/html", body.as_bytes())
                }
            })
        })
        .collect()
}

fn batch(bench: &Bench<'_>, method: &str, turn: usize) -> Result<Vec<u8>> {
    let elements = (0..REQUESTS).map(|number| {
        let mut element = json!({"method": method, "path": path(number)});
        if method == "PUT" {
            element["headers"] = json!({"content-type": "text/html"});
            element["body"] = json!(body(bench, turn * REQUESTS + number)?);
        }
        Ok(element)
    });
    let elements = elements.collect::<Result<Vec<Value>>>()?;
    Ok(with_body("POST", "/v1/batch", JSON, json!(elements).to_string().as_bytes()))
}

fn send(client: &mut Client, request: &[u8]) -> Result<()> {
    let (status, _) = client.send(request)?;
    ensure!(matches!(status, 200 | 201), "a request is answered with {status}");
    Ok(())
}

fn send_batch(client: &mut Client, request: &[u8]) -> Result<()> {
    let (status, body) = client.send(request)?;
    ensure!(status == 200, "a batch is answered with {status}: {}", String::from_utf8_lossy(&body));
    let succeeded = body.windows(12).filter(|part| part.starts_with(b"\"status\":20")).count();
    ensure!(succeeded == REQUESTS, "only {succeeded} of the {REQUESTS} requests of a batch have succeeded");
    Ok(())
}

/// Repeats work on one connection for the time of a measurement. Returns the number of repetitions per second.
fn repeat(bench: &Bench<'_>, mut work: impl FnMut(&mut Client) -> Result<()>) -> Result<f64> {
    let mut client = Client::connect(bench.address)?;
    let start = bench.clock.monotonic();
    let (mut done, mut measured_from) = (0_u32, None);
    loop {
        work(&mut client)?;
        let now = bench.clock.monotonic();
        match measured_from {
            None if now - start >= bench.options.warm_up() => measured_from = Some(now),
            None => {}
            Some(from) => {
                done += 1;
                if now - from >= bench.options.measure() {
                    return Ok(f64::from(done) / (now - from).as_secs_f64());
                }
            }
        }
    }
}
