use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    thread,
};

use rashomon_clock::SystemClock;

use super::*;

/// The stall of the server. It is much longer than the delay of an answer on a busy machine.
const STALL: Duration = Duration::from_secs(2);

const STALL_MS: f64 = 2_000.0;

/// A server for one connection. It sleeps before it answers the request with this number.
fn server(stall_at: u32, stall: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for number in 0.. {
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            if number == stall_at {
                thread::sleep(stall);
            }
            // The answer comes in two parts, as TCP permits.
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe").is_err() {
                return;
            }
            thread::sleep(Duration::from_micros(50));
            if stream.write_all(b"llo").is_err() {
                return;
            }
        }
    });
    address
}

struct Hello;

impl Traffic for Hello {
    fn request(&mut self, _: usize, out: &mut Vec<u8>) {
        *out = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    }

    fn answer(&mut self, _: usize, status: u16, body: &[u8]) -> Result<()> {
        ensure!((status, body) == (200, b"hello"), "{status} {body:?}");
        Ok(())
    }
}

fn measure(pace: Pace) -> Measurement {
    let plan = Plan {
        address: server(20, STALL),
        connections: 1,
        pace,
        warm_up: Duration::ZERO,
        measure: 2 * STALL,
    };
    run(&plan, &SystemClock::new(), &mut Hello).unwrap()
}

#[test]
fn closed_loop_meets_a_stall_once() {
    let measured = measure(Pace::Closed);
    assert!(measured.answers > 20, "{}", measured.answers);
    assert!(measured.latency_ms(1.0) >= STALL_MS);
    assert!(measured.latency_ms(0.9) < STALL_MS / 2.0, "{}", measured.latency_ms(0.9));
}

#[test]
fn open_loop_charges_a_stall_to_all_waiting_requests() {
    let measured = measure(Pace::Open(50.0));
    // Two hundred requests are scheduled in this time, and half of them during the stall.
    assert!((100..=201).contains(&measured.answers), "{}", measured.answers);
    assert!(measured.latency_ms(0.7) > STALL_MS / 4.0, "{}", measured.latency_ms(0.7));
    assert!(measured.latency_ms(0.05) < STALL_MS / 4.0, "{}", measured.latency_ms(0.05));
}

#[test]
fn closed_connection_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || drop(listener.accept()));
    let second = Duration::from_secs(1);
    let plan = Plan { address, connections: 1, pace: Pace::Closed, warm_up: Duration::ZERO, measure: second };
    assert!(run(&plan, &SystemClock::new(), &mut Hello).is_err());
}
