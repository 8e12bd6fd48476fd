//! Three servers of one keyspace behind a server that forwards. One of them is killed and started again under load.

use std::{
    collections::HashMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use rustix::process::Signal;

use crate::{
    home::Home,
    http::{get, post_bytes, request},
    process::{RunningProcess, rashomon, wait_until},
};

/// The number of clients.
const CLIENTS: usize = 4;

/// The number of requests before the kill, while the server is gone, and after its restart.
const REQUESTS: usize = 150;

/// A request of a client: its id, whether it may be repeated, and the status of the answer.
type SentRequest = (String, bool, String);

/// Sends requests of one client until `stop` is set, and returns them.
fn client(number: usize, address: &str, stop: &AtomicBool, done: &AtomicUsize) -> Vec<SentRequest> {
    let page = format!("/v1/wiki/page/Page_{number}");
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let mut sent = Vec::new();
    for step in 1_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let revision = step.div_ceil(3);
        let id = format!("client-{number}-{step}");
        let lines = format!("{form}X-Request-Id: {id}\r\n");
        let (is_repeatable, answer) = match step % 3 {
            1 => {
                let body = format!("_rev={revision}&html=text+{revision}");
                (true, post_bytes(address, &format!("{page}?rev/"), &lines, body.as_bytes()))
            }
            2 => {
                let body = format!("html=render+{step}");
                (false, post_bytes(address, &format!("{page}?rev/{revision}/"), &lines, body.as_bytes()))
            }
            _ => (true, request(address, "GET", &format!("{page}?rev/latest/html"), "")),
        };
        let status = answer.split(' ').nth(1).unwrap_or("none").to_owned();
        sent.push((id, is_repeatable, status));
        done.fetch_add(1, Ordering::Relaxed);
    }
    sent
}

/// How often each request id is in the audit logs of the servers.
fn arrivals(home: &Home, logs: &[String]) -> HashMap<String, usize> {
    let mut arrivals = HashMap::new();
    for log in logs {
        for line in fs::read_to_string(home.path().join(log)).unwrap_or_default().lines() {
            let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            *arrivals.entry(line["request_id"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    arrivals
}

#[test]
fn killed_server_costs_no_repeatable_request() {
    let Some(home) = Home::new() else { return };
    let logs: Vec<String> = (0..4).map(|number| format!("audit-{number}.log")).collect();
    let mut servers: Vec<_> = (0..3).map(|number| home.serve(&["--audit-log", &logs[number]])).collect();
    let list: Vec<String> = servers.iter().map(|(_, address)| format!("'http://{address}'")).collect();
    home.write("r.toml", &format!("[registry.'/wiki']\nservers = [{}]\nexclusion = '1s'\n", list.join(", ")));
    let mut command = rashomon(home.path());
    command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--config", "r.toml"]);
    let mut front = RunningProcess::start(&mut command);
    let address = front.address();

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let (address, stop, done) = (address.clone(), Arc::clone(&stop), Arc::clone(&done));
            thread::spawn(move || client(number, &address, &stop, &done))
        })
        .collect();
    let more_requests = |what: &str| {
        let before = done.load(Ordering::Relaxed);
        wait_until(what, || done.load(Ordering::Relaxed) >= before + REQUESTS);
    };
    more_requests("the clients have begun");
    let (killed, its_address) = servers.remove(0);
    killed.signal(Signal::KILL);
    killed.wait();
    more_requests("the clients continue with two servers");
    assert!(get(&address, "/readyz").contains("\"degraded\":1"), "{}", get(&address, "/readyz"));
    let mut command = home.command(&["serve", "--listen", &its_address, "--audit-log", &logs[3]]);
    let mut again = RunningProcess::start(&mut command);
    assert_eq!(again.address(), its_address);
    let line = format!("server=\"http://{its_address}\"}} 0");
    wait_until("the server is used again", || get(&address, "/metrics").contains(&line));
    more_requests("the clients continue with three servers");
    stop.store(true, Ordering::Relaxed);
    let sent: Vec<SentRequest> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();

    front.stop().ends_with(0);
    again.stop().ends_with(0);
    servers.into_iter().for_each(|(server, _)| drop(server.stop().ends_with(0)));
    let arrivals = arrivals(&home, &logs);
    for (id, is_repeatable, status) in &sent {
        // If a server dies after it has stored a revision, the repeated request is answered with 200. A client posts a
        // render to a revision that the client has just written. So 404 would mean that this revision was lost.
        let is_answered = matches!(&**status, "200" | "201");
        assert!(is_answered || (!is_repeatable && status == "502"), "{id}: {status}");
        let arrived = arrivals.get(id).copied().unwrap_or(0);
        assert!(*is_repeatable || arrived <= 1, "{id} arrived {arrived} times");
    }
    let lost = sent.iter().filter(|(_, _, status)| status == "502").count();
    println!("{} requests, {lost} of them 502; none of these may be repeated", sent.len());
}
