//! Passes the purges of the server on to Varnish, and counts those that Varnish has acknowledged.

use std::{
    collections::BTreeMap,
    io::{BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::varnish::message::{Message, Request};

/// The number of acknowledged purges of each URL, and of each key.
type Counts = BTreeMap<String, u64>;

/// The counts, and the signal that one has changed. The threads of a tap end with the process.
#[derive(Debug, Default)]
pub(super) struct Tap(Mutex<Counts>, Condvar);

impl Tap {
    /// Passes purges on to a cache. Returns the address at which the server finds the tap.
    pub(super) fn start(cache: SocketAddr) -> Result<(SocketAddr, Arc<Self>)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, tap) = (listener.local_addr()?, Arc::new(Self::default()));
        let counting = Arc::clone(&tap);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let tap = Arc::clone(&counting);
                // The server sends a purge again if its connection breaks.
                thread::spawn(move || tap.pass_on(stream, cache));
            }
        });
        Ok((address, tap))
    }

    fn pass_on(&self, mut stream: TcpStream, cache: SocketAddr) -> Result<()> {
        stream.set_nodelay(true)?;
        let mut input = BufReader::new(stream.try_clone()?);
        while let Some(mut received) = Message::read_head(&mut input)? {
            received.read_body(&mut input, false)?;
            let method = if received.method() == "BAN" { "BAN" } else { "PURGE" };
            let keys = received.header("surrogate-key").to_owned();
            let mut purge = Request::new(method, received.url()).host(received.header("host"));
            if !keys.is_empty() {
                purge = purge.header("Surrogate-Key", keys.as_str());
            }
            let answer = purge.answer(cache)?;
            ensure!(answer.status() == 200, "{purge:?} is answered with {answer:?}");
            // The purge counts before the server learns of its end.
            let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if keys.is_empty() {
                *counts.entry(received.url().to_owned()).or_default() += 1;
            }
            for key in keys.split(' ') {
                *counts.entry(key.to_owned()).or_default() += 1;
            }
            drop(counts);
            self.1.notify_all();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
        }
        Ok(())
    }

    /// The lowest number of acknowledged purges of these URLs or keys.
    pub(super) fn count(&self, names: &[String]) -> u64 {
        lowest(&self.0.lock().unwrap_or_else(PoisonError::into_inner), names)
    }

    /// Waits a while until each of these URLs or keys was purged this many times, or until `is_settled` returns that no
    /// purge is missing. Returns whether one of these conditions holds.
    pub(super) fn wait(&self, names: &[String], count: u64, is_settled: impl Fn() -> bool) -> Result<bool> {
        const INTERVAL: Duration = Duration::from_millis(50);
        let reached = |counts: &Counts| lowest(counts, names) >= count || is_settled();
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (counts, _) = self
            .1
            .wait_timeout_while(counts, INTERVAL, |counts| !reached(counts))
            .ok()
            .context("a thread of the tap panicked")?;
        Ok(reached(&counts))
    }
}

fn lowest(counts: &Counts, names: &[String]) -> u64 {
    names.iter().map(|name| counts.get(name).copied().unwrap_or(0)).min().unwrap_or(0)
}
