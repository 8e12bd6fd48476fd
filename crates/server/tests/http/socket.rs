//! A server on a socket, with helpers that send and receive raw bytes.

use std::time::Duration;

use rashomon_server::{ServeOptions, Tls, serve};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::oneshot,
    task::JoinHandle,
};

use crate::world::World;

/// A time limit that no step of a test reaches on a busy machine.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    pub(crate) done: JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub(crate) async fn of(world: &World, options: ServeOptions) -> Self {
        Self::over(None, world, options).await
    }

    pub(crate) async fn over(tls: Option<Tls>, world: &World, options: ServeOptions) -> Self {
        Self::start(world, Handle::current(), tls, options).await
    }

    pub(crate) async fn start(
        world: &World,
        writes: Handle,
        tls: Option<Tls>,
        options: ServeOptions,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let done = tokio::spawn(serve(listener, world.api.clone(), writes, tls, shutdown, options));
        Self { address, stop: Some(stop), done }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends one request on a connection of its own, and reads the whole answer.
    pub(crate) async fn exchange(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        // Any error, such as a reset after the answer, is accepted as the end of the answer.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// Reads until the answer ends with this text.
pub(crate) async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(end.as_bytes()) {
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(answer).unwrap()
}

pub(crate) fn get(url: &str, headers: &str) -> Vec<u8> {
    format!("GET {url} HTTP/1.1\r\nhost: en.example.org\r\n{headers}\r\n").into_bytes()
}
