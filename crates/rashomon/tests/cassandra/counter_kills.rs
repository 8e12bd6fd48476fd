//! Two servers of one keyspace increment one counter, and are killed in turn during the increments.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    cluster::until,
    home::Home,
    http::get,
    process::{RunningProcess, wait_until},
};

/// The number of clients that increment.
const WRITERS: usize = 64;

/// The number of kills.
const ROUNDS: usize = 4;

/// The number of increments before each kill, and before the killed server is started again.
const INCREMENTS: usize = 100;

const COUNTER: &str = "/v1/wiki/clicks/Main_Page";

/// The time after which a client repeats its increment.
const PATIENCE: Duration = Duration::from_secs(20);

/// An increment that was acknowledged: its amount, and the value in the answer.
type AcknowledgedIncrement = (u64, u64);

/// Sends an increment. `None`: no complete answer with the status 200.
fn increment(address: &str, key: &str, amount: u64) -> Option<u64> {
    let form = format!("increment={amount}");
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST {COUNTER} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n",
        form.len()
    );
    stream.write_all((head + &form).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    if !head.starts_with("HTTP/1.1 200") {
        // A server without its store, or with too much to do, may refuse. Every other answer is an error of the test.
        assert!(head.starts_with("HTTP/1.1 503"), "{answer}");
        return None;
    }
    value(body)
}

/// The value in an answer. `None`: the answer is not complete.
fn value(body: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(body).ok()?["value"].as_u64()
}

/// Increments the counter until `stop` is set, each time with a new key. Repeats an increment at the other server until
/// the increment is acknowledged.
fn writer(number: usize, addresses: &[String], stop: &AtomicBool, all: &Mutex<Vec<AcknowledgedIncrement>>) {
    for step in 1.. {
        let (key, amount) = (format!("{number}-{step}"), step % 5 + 1);
        for server in number.. {
            if let Some(value) = increment(&addresses[server % addresses.len()], &key, amount) {
                all.lock().unwrap().push((amount, value));
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Reads the counter at a server. A read has at least the increments that were acknowledged before it.
fn check_read(address: &str, all: &Mutex<Vec<AcknowledgedIncrement>>) {
    let before: u64 = all.lock().unwrap().iter().map(|(amount, _)| amount).sum();
    let answer = until(200, || get(address, COUNTER));
    let read = answer.split("\r\n\r\n").nth(1).and_then(value);
    assert!(read.is_some_and(|read| read >= before), "{before}: {answer}");
}

#[test]
fn increments_count_once_while_either_of_two_servers_is_killed() {
    let Some(home) = Home::new() else { return };
    home.run(&["bucket", "create", "wiki/clicks", "--type", "counter"]).ends_with(0);
    let (mut servers, addresses): (Vec<_>, Vec<_>) = (0..2).map(|_| home.serve(&[])).unzip();
    let (stop, all) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let (addresses, stop, all) = (&addresses, &stop, &all);
            scope.spawn(move || writer(number, addresses, stop, all));
        }
        let more_increments = |what: &str| {
            let before = all.lock().unwrap().len();
            wait_until(what, || all.lock().unwrap().len() >= before + INCREMENTS);
        };
        for round in 0..ROUNDS {
            let killed = round % 2;
            more_increments("both servers count");
            servers[killed].signal(Signal::KILL);
            more_increments("the other server counts");
            check_read(&addresses[1 - killed], &all);
            let mut command = home.command(&["serve", "--listen", &addresses[killed]]);
            servers[killed] = RunningProcess::start(&mut command);
            assert_eq!(servers[killed].address(), addresses[killed]);
            check_read(&addresses[killed], &all);
        }
        stop.store(true, Ordering::Relaxed);
    });
    addresses.iter().for_each(|address| check_read(address, &all));
    // The answers, in the order of their values, lead from 0 to the stored value without a gap or an overlap.
    let mut all = all.into_inner().unwrap();
    all.sort_unstable_by_key(|(_, value)| *value);
    let mut sum = 0;
    for (amount, value) in &all {
        sum += amount;
        assert_eq!(*value, sum, "{amount} of {all:?}");
    }
    let answer = get(&addresses[0], COUNTER);
    assert_eq!(answer.split("\r\n\r\n").nth(1).and_then(value), Some(sum), "{answer}");
    println!("{} increments, {ROUNDS} kills", all.len());
}
