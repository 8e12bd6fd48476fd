//! HTTP requests and answers as text.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

/// Returns the whole answer to a GET.
pub(crate) fn get(address: &str, target: &str) -> String {
    request(address, "GET", target, "")
}

/// Returns the whole answer to a request without a body, with these lines in its head.
pub(crate) fn request(address: &str, method: &str, target: &str, lines: &str) -> String {
    exchange(
        address,
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n"),
    )
}

/// Returns the whole answer to a POST of a form.
pub(crate) fn post(address: &str, target: &str, form: &str) -> String {
    post_bytes(address, target, "Content-Type: application/x-www-form-urlencoded\r\n", form.as_bytes())
}

/// Returns the whole answer to a PUT of JSON.
#[allow(dead_code, reason = "not every test binary with this module needs it")]
pub(crate) fn put_json(address: &str, target: &str, json: &str) -> String {
    send(address, "PUT", target, "Content-Type: application/json\r\n", json.as_bytes())
}

/// Returns the whole answer to a POST of bytes, with these lines in its head.
pub(crate) fn post_bytes(address: &str, target: &str, lines: &str, body: &[u8]) -> String {
    send(address, "POST", target, lines, body)
}

/// Returns the whole answer to a PUT of bytes, with these lines in its head.
#[allow(dead_code, reason = "not every test binary with this module needs it")]
pub(crate) fn put_bytes(address: &str, target: &str, lines: &str, body: &[u8]) -> String {
    send(address, "PUT", target, lines, body)
}

fn send(address: &str, method: &str, target: &str, lines: &str, body: &[u8]) -> String {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{lines}\r\n",
        body.len()
    );
    exchange(address, [head.as_bytes(), body].concat())
}

fn exchange(address: &str, request: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_ref()).unwrap();
    answer(stream)
}

/// Reads until the other side closes the connection.
pub(crate) fn answer(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}
