//! The rules of `docs/varnish.vcl`, each checked with a real Varnish and scripted servers.

mod answers;
mod purges;
mod requests;

use std::{
    net::SocketAddr,
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use crate::{process::Stopwatch, service::Service};
use anyhow::{Context, Result, ensure};

use crate::varnish::{
    Files,
    backend::Backend,
    message::{Message, Request, get},
};

/// The time limit until Varnish has noticed that a server works.
const HEALTH_LIMIT: Duration = Duration::from_secs(10);
/// The time limit until another thread has reached a point.
const GATE_LIMIT: Duration = Duration::from_secs(20);

/// Varnish with three scripted servers. All rules use it, each with URLs of its own.
pub(crate) struct World<'a> {
    files: &'a Files,
    cache: Service,
    /// The scripted server in the place of the service.
    rashomon: Backend,
    /// The scripted servers of one bucket.
    formulas: [Backend; 2],
}

type Rule = fn(&World<'_>) -> Result<()>;

const RULES: &[&[(&str, Rule)]] = &[requests::RULES, answers::RULES, purges::RULES];

/// Checks all rules. Returns their number.
pub fn run(files: &Files) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let (rashomon, formulas) = (Backend::start()?, [Backend::start()?, Backend::start()?]);
    let vcl = crate::varnish::vcl([rashomon.address(), formulas[0].address(), formulas[1].address()])?;
    let cache = crate::varnish::start(files, &vcl, folder.path())?;
    let world = World { files, cache, rashomon, formulas };
    let mut checked = 0;
    for (name, rule) in RULES.iter().flat_map(|rules| rules.iter()) {
        world.rashomon.script(|request| crate::varnish::backend::Answer::cacheable(request.url()));
        rule(&world).with_context(|| format!("the rule {name} does not hold"))?;
        println!("{name}");
        checked += 1;
    }
    Ok(checked)
}

impl World<'_> {
    fn address(&self) -> SocketAddr {
        self.cache.address()
    }

    fn send(&self, request: &Request) -> Result<Message> {
        request.answer(self.address())
    }

    fn get(&self, url: &str) -> Result<Message> {
        self.send(&get(url))
    }

    /// Checks that the answer is successful, and that its `X-Cache` is `cache`: `hit`, `miss` or `pass`.
    fn expect(&self, request: &Request, cache: &str) -> Result<Message> {
        let answer = self.send(request)?;
        ensure!(answer.status() < 400 && answer.header("x-cache") == cache, "{request:?} has {answer:?}");
        Ok(answer)
    }

    /// Checks that the first of two such requests is a miss, and that the second is answered from the cache.
    fn expect_cached(&self, request: &Request) -> Result<()> {
        self.expect(request, "miss")?;
        self.expect(request, "hit").map(drop)
    }

    /// Checks that two such requests both reach the server. Returns the second as the server got it.
    fn expect_passed(&self, request: &Request) -> Result<Message> {
        self.rashomon.requests();
        for _ in 0..2 {
            let answer = self.send(request)?;
            ensure!(answer.header("x-cache") == "pass", "{request:?} has {answer:?}");
        }
        let mut requests = self.rashomon.requests();
        ensure!(requests.len() == 2, "the server got {requests:?}");
        requests.pop().context("no request")
    }

    fn purge(&self, request: &Request) -> Result<()> {
        let answer = self.send(request)?;
        ensure!(answer.status() == 200, "{request:?} has {answer:?}");
        Ok(())
    }
}

/// Waits until a condition holds that changes without a signal, such as the health of a server.
fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let clock = Stopwatch::start();
    while !holds()? {
        ensure!(clock.elapsed() < HEALTH_LIMIT, "it takes too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A counter. Threads can wait until it has reached a number.
#[derive(Debug, Default)]
struct Gate(Mutex<u32>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.1.notify_all();
    }

    fn wait(&self, count: u32) {
        let reached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // If the limit is exceeded, this returns, and then the checks of the rule fail.
        drop(self.1.wait_timeout_while(reached, GATE_LIMIT, |reached| *reached < count));
    }
}
