//! A server that is killed and started again under load.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    backends::{Log, Recorder},
    http::{request, send, wait_until},
    server::{Server, entry},
};

/// The requests of a client: the method, the path, and whether the request may be repeated.
const KINDS: [(&str, &str, bool); 5] = [
    ("GET", "/v1/enwiki/page/A?rev/latest/html", true),
    ("POST", "/v1/enwiki/page/A?rev/", true),
    ("PUT", "/v1/enwiki/math-png/a", false),
    ("POST", "/v1/enwiki/page/A?rev/7/", false),
    ("POST", "/v1/enwiki/clicks/a", false),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_loses_no_repeatable_request_and_doubles_no_other() {
    let log = Log::default();
    let any = "127.0.0.1:0".parse().unwrap();
    let mut backends: Vec<Recorder> = (0..3).map(|_| Recorder::on(any, log.clone())).collect();
    let server = Server::forwarding(vec![entry("/", backends.iter().map(Recorder::url))]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let (stop, address) = (Arc::clone(&stop), server.address);
            tokio::spawn(async move {
                let mut results = Vec::new();
                for number in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let (method, path, is_repeatable) = KINDS[number % KINDS.len()];
                    let id = format!("{client}-{number}");
                    let body = vec![b'x'; (number % 7) * 20_000];
                    let answer = send(address, request(method, path, &[("x-test", &id)], body)).await;
                    results.push((id, is_repeatable, answer.status.as_u16()));
                }
                results
            })
        })
        .collect();
    // Three times: enough requests, a kill in the middle of them, and a restart.
    for round in 1..=3 {
        let reached = async |count: usize| wait_until(async || log.all().len() >= count).await;
        let before = log.all().len();
        reached(before + 200).await;
        let victim = &mut backends[round - 1];
        let address = victim.address;
        victim.kill();
        reached(before + 400).await;
        backends[round - 1] = restart(address, &log).await;
    }
    wait_until(async || log.all().len() >= 1500).await;
    stop.store(true, Ordering::Relaxed);
    let mut arrived: HashMap<String, usize> = HashMap::new();
    let mut all = 0;
    let mut failed = 0;
    for client in clients {
        for (id, is_repeatable, status) in client.await.unwrap() {
            all += 1;
            failed += usize::from(status != 200);
            assert!(status == 200 || !is_repeatable, "{id}: {status}");
            assert!(matches!(status, 200 | 502), "{id}: {status}");
            if !is_repeatable {
                arrived.insert(id, 0);
            }
        }
    }
    for request in log.all() {
        if let Some(count) = arrived.get_mut(request.header("x-test")) {
            *count += 1;
        }
    }
    let twice: Vec<_> = arrived.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    println!("{failed} of {all} requests failed; none of them may be repeated");
}

/// Starts a backend at the address of a killed one, as soon as the system has freed the port.
async fn restart(address: std::net::SocketAddr, log: &Log) -> Recorder {
    wait_until(async || std::net::TcpListener::bind(address).is_ok()).await;
    Recorder::on(address, log.clone())
}
