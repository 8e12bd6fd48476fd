//! A scripted server behind the cache: a function answers the requests, which are recorded.

use std::{
    io::{BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::Result;

use crate::varnish::message::Message;

/// The answer of a scripted server.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    /// An answer that shared caches may keep for a day.
    #[must_use]
    pub fn cacheable(body: impl Into<Vec<u8>>) -> Self {
        let header = ("Cache-Control", "public, max-age=0, s-maxage=86400, must-revalidate".to_owned());
        Self { status: 200, headers: vec![header], body: body.into() }
    }

    /// No answer: the connection is closed.
    #[must_use]
    pub fn broken() -> Self {
        Self::default()
    }

    /// Replaces the status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Sets a header. An empty value removes it.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(found, _)| *found != name);
        let value = value.into();
        if !value.is_empty() {
            self.headers.push((name, value));
        }
        self
    }

    fn send(&self, stream: &mut TcpStream, with_body: bool) -> Result<()> {
        let mut head = format!("HTTP/1.1 {} Status\r\nContent-Length: {}\r\n", self.status, self.body.len());
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        stream.write_all(head.as_bytes())?;
        if with_body && self.status != 304 {
            stream.write_all(&self.body)?;
        }
        Ok(())
    }
}

type Script = dyn Fn(&Message) -> Answer + Send + Sync;

/// A scripted server. Its threads end with the process.
pub struct Backend {
    address: SocketAddr,
    script: Arc<Mutex<Arc<Script>>>,
    requests: Arc<Mutex<Vec<Message>>>,
}

impl Backend {
    /// Starts a server that answers each request with its path and query.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let backend = Self {
            address: listener.local_addr()?,
            script: Arc::new(Mutex::new(Arc::new(|request: &Message| Answer::cacheable(request.url())))),
            requests: Arc::default(),
        };
        let (script, requests) = (Arc::clone(&backend.script), Arc::clone(&backend.requests));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, requests) = (Arc::clone(&script), Arc::clone(&requests));
                // A broken connection shows in the answer of the cache.
                thread::spawn(move || converse(stream, &script, &requests));
            }
        });
        Ok(backend)
    }

    /// The address on which the server listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the script, and forgets the requests.
    pub fn script(&self, script: impl Fn(&Message) -> Answer + Send + Sync + 'static) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(script);
        self.requests();
    }

    /// Returns the requests since the last call, without those of the health probe.
    pub fn requests(&self) -> Vec<Message> {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn converse(
    mut stream: TcpStream,
    script: &Mutex<Arc<Script>>,
    requests: &Mutex<Vec<Message>>,
) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BufReader::new(stream.try_clone()?);
    while let Some(mut request) = Message::read_head(&mut input)? {
        request.read_body(&mut input, false)?;
        if request.url() == "/healthz" {
            // The probe reads until the connection is closed.
            return Answer::cacheable("").send(&mut stream, true);
        }
        requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let script = Arc::clone(&script.lock().unwrap_or_else(PoisonError::into_inner));
        let answer = script(&request);
        if answer.status == 0 {
            return Ok(());
        }
        answer.send(&mut stream, request.method() != "HEAD")?;
    }
    Ok(())
}
