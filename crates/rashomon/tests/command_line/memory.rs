//! The memory that the server uses for the requests of clients.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    thread,
    time::Duration,
};

use tempfile::tempdir;

use crate::{
    http::get,
    process::{RunningProcess, rashomon},
};

const MIB: u64 = 1 << 20;

/// The number of clients that send a part of a write and then stop.
const CLIENTS: usize = 24;

/// The number of properties of 1 MB that each client sends. Its `Content-Length` announces about 60 of them.
const PROPERTIES_SENT: usize = 15;

/// The server's memory in addition to the budget: for threads that compress, for SQLite's writes, and for
/// memory that the allocator has not returned.
const OVERHEAD_BYTES: u64 = 96 * MIB;

/// The interval between two reads of the metrics.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The bytes in a field of the process's status, such as `VmHWM`.
fn status(process: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() << 10
}

/// The value of a metric of the API.
fn metric(address: &str, name: &str) -> u64 {
    let metrics = get(address, "/metrics");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&format!("rashomon_http_{name} ")));
    value.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
}

/// Bytes that do not compress.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 7_u64;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(size)
    .collect()
}

/// Sends the beginning of a write, and returns the status line of the answer.
fn send_half(address: &str, page: usize, noise: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let part = |number: usize| {
        format!("\r\n--b\r\nContent-Disposition: form-data; name=\"p{number}\"\r\n\r\n").into_bytes()
    };
    let head = format!(
        "POST /v1/wiki/page/{page}?rev/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 61000000\r\n\
         Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    );
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    // The server stops reading if it has no memory for the body. Only its answer is checked.
    let sent = stream.write_all(head.as_bytes()).and_then(|()| {
        (0..PROPERTIES_SENT)
            .try_for_each(|number| stream.write_all(&part(number)).and_then(|()| stream.write_all(noise)))
    });
    let mut line = String::new();
    let read = reader.read_line(&mut line);
    assert!(read.is_ok() || sent.is_err(), "{read:?}");
    line
}

#[cfg(target_os = "linux")]
#[test]
fn stalled_writes_take_no_more_memory_than_the_budget() {
    let directory = tempdir().unwrap();
    let mut command = rashomon(directory.path());
    let mut server = RunningProcess::start(command.args([
        "serve",
        "--data",
        "data",
        "--listen",
        "127.0.0.1:0",
        "--staging-memory",
        "32 MiB",
        "--max-imports",
        "1",
        "--staging-wait",
        "2s",
        "--idle-timeout",
        "10s",
    ]));
    let address = server.address();
    get(&address, "/v1/wiki/page/None?rev/latest/html");
    let before = status(server.id(), "VmRSS:");
    let noise = noise(1_000_000);
    let (answers, most) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|page| {
                let (address, noise) = (&address, &noise);
                scope.spawn(move || send_half(address, page, noise))
            })
            .collect();
        let mut most = 0;
        while !clients.iter().all(thread::ScopedJoinHandle::is_finished) {
            most = most.max(metric(&address, "staged_bytes"));
            thread::sleep(POLL_INTERVAL);
        }
        let answers: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        (answers, most)
    });
    let peak = status(server.id(), "VmHWM:");
    let late = answers.iter().filter(|line| line.starts_with("HTTP/1.1 408")).count();
    println!(
        "{} MiB before, {} MiB at most; {late} late, {} MiB staged",
        before / MIB,
        peak / MIB,
        most / MIB
    );
    assert!(late > 0, "{answers:?}");
    assert!(most > 24 * MIB && most <= 32 * MIB, "{most}");
    assert!(peak - before <= 32 * MIB + OVERHEAD_BYTES, "{} MiB more than before", (peak - before) / MIB);
    assert_eq!(metric(&address, "staged_bytes"), 0);
    server.stop().ends_with(0);
}
