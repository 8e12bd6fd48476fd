//! A proxy to the node that kills a process before its n-th write passes.

use std::{
    collections::HashSet,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};

/// The opcodes of frames in the native protocol (version 4, section 2.4).
const RESULT: u8 = 0x08;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0a;
const BATCH: u8 = 0x0d;

/// The kind of result that returns the id of a prepared statement.
const PREPARED: &[u8] = &[0, 0, 0, 4];

/// A proxy that accepts connections on its own address, and forwards them to the node.
pub(crate) struct KillingProxy {
    listener: TcpListener,
    node: String,
}

/// The state of the proxy for one process.
struct ProxyState {
    /// The process. `None` after it was killed, since another process may later have its id.
    process: Option<Pid>,
    /// The number of writes that may still pass.
    left: u64,
    /// The ids of prepared statements that write.
    writing: HashSet<Vec<u8>>,
}

impl KillingProxy {
    /// Creates a proxy that does not forward yet: connecting processes wait.
    pub(crate) fn new(node: &str) -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap(), node: node.to_owned() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Lets this many writes pass, and kills the process before its next write.
    pub(crate) fn kill_after(self, writes: u64, process: u32) {
        let process = Pid::from_raw(process.cast_signed());
        assert!(process.is_some(), "a process");
        let passing = ProxyState { process, left: writes, writing: HashSet::new() };
        let passing = Arc::new(Mutex::new(passing));
        // The thread ends with the tests.
        thread::spawn(move || {
            for client in self.listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&self.node) else { return };
                // The streams of a connection on which a writing statement is being prepared.
                let preparing: Arc<Mutex<HashSet<[u8; 2]>>> = Arc::default();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (there, known) = (Arc::clone(&passing), Arc::clone(&preparing));
                forward(client, server, move |frame| there.lock().unwrap().request(frame, &known));
                let there = Arc::clone(&passing);
                forward(back.0, back.1, move |frame| there.lock().unwrap().answer(frame, &preparing));
            }
        });
    }
}

impl ProxyState {
    /// Handles a request. Returns whether it passes.
    fn request(&mut self, frame: &Frame, preparing: &Mutex<HashSet<[u8; 2]>>) -> bool {
        let writes = match frame.kind() {
            PREPARE => {
                let text = frame.body().get(4..).unwrap_or_default();
                if [&b"INSERT"[..], b"UPDATE", b"DELETE"].iter().any(|verb| text.starts_with(verb)) {
                    preparing.lock().unwrap().insert(frame.stream());
                }
                false
            }
            EXECUTE => self.writing.contains(short_bytes(frame.body())),
            kind => kind == BATCH,
        };
        if writes && self.left == 0 {
            if let Some(process) = self.process.take() {
                kill_process(process, Signal::KILL).expect("it writes, and waits for an answer");
            }
            return false;
        }
        self.left -= u64::from(writes);
        true
    }

    /// Handles an answer. All answers pass.
    fn answer(&mut self, frame: &Frame, preparing: &Mutex<HashSet<[u8; 2]>>) -> bool {
        if preparing.lock().unwrap().remove(&frame.stream())
            && frame.kind() == RESULT
            && let Some(id) = frame.body().strip_prefix(PREPARED)
        {
            self.writing.insert(short_bytes(id).to_vec());
        }
        true
    }
}

/// Returns the bytes after a length of two bytes.
fn short_bytes(bytes: &[u8]) -> &[u8] {
    let length = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    &bytes[2..2 + length]
}

/// A frame of the protocol.
struct Frame(Vec<u8>);

impl Frame {
    /// The size of the header: version, flags, stream, opcode, and the length of the body.
    const HEAD: usize = 9;

    fn read(from: &mut TcpStream) -> std::io::Result<Self> {
        let mut bytes = vec![0; Self::HEAD];
        from.read_exact(&mut bytes)?;
        let length = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
        bytes.resize(Self::HEAD + length as usize, 0);
        from.read_exact(&mut bytes[Self::HEAD..])?;
        Ok(Self(bytes))
    }

    fn stream(&self) -> [u8; 2] {
        [self.0[2], self.0[3]]
    }

    fn kind(&self) -> u8 {
        self.0[4]
    }

    fn body(&self) -> &[u8] {
        &self.0[Self::HEAD..]
    }
}

/// Forwards frames from one side to the other as long as they pass, until either side ends.
fn forward(mut from: TcpStream, mut to: TcpStream, mut passes: impl FnMut(&Frame) -> bool + Send + 'static) {
    thread::spawn(move || {
        while let Ok(frame) = Frame::read(&mut from)
            && passes(&frame)
            && to.write_all(&frame.0).is_ok()
        {}
        // When one direction ends, both sides are closed.
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
