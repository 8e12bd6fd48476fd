//! A proxy to the node whose connections can be cut.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// A proxy that accepts connections on its own address, and forwards them to the node while it is open.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    open: bool,
    connections: Vec<TcpStream>,
}

impl Proxy {
    /// Creates a proxy that forwards no connections yet.
    pub(crate) fn closed(node: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let (node, state) = (node.to_owned(), Arc::clone(&proxy.state));
        // The thread ends with the process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut state = state.lock().unwrap();
                // While the proxy is closed, a connection is closed at once.
                if state.open
                    && let Ok(server) = TcpStream::connect(&node)
                {
                    for (from, to) in [(&client, &server), (&server, &client)] {
                        state.connections.push(from.try_clone().unwrap());
                        forward(from.try_clone().unwrap(), to.try_clone().unwrap());
                    }
                }
            }
        });
        proxy
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Opens the proxy.
    pub(crate) fn open(&self) {
        self.state.lock().unwrap().open = true;
    }

    /// Ends all connections, and forwards no new connections.
    pub(crate) fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.open = false;
        for connection in state.connections.drain(..) {
            // The connection may have ended by itself.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Forwards bytes from one side to the other, until either side ends.
fn forward(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        // When one direction ends, both sides are closed.
        let _ = io::copy(&mut from, &mut to);
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
