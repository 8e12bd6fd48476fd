//! A request to a server: sends a dump as a stream, and reads the lines of the answer at the same time.

use std::{error::Error, path::Path, pin::Pin};

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt as _;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use rashomon_pages::BucketName;
use rashomon_upstream::{ServerUrl, connect, last_cause, refusal_reason};
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use super::is_standard_input;
use crate::{arguments::ImportArguments, errors::CommandError, output};

/// The number of bytes of the dump that one read returns.
const READ_BYTES: usize = 1 << 16;

/// The maximum size of a line of the answer, or of the whole answer if it is an error.
const MAX_LINE_BYTES: usize = 1 << 20;

/// A dump to be sent to the server.
pub(super) struct Upload {
    reader: Pin<Box<dyn AsyncRead + Send>>,
    /// The size of the dump in bytes, if it is known.
    size: Option<u64>,
}

impl Upload {
    pub(super) async fn open(file: &Path) -> Result<Self, CommandError> {
        if is_standard_input(file) {
            return Ok(Self { reader: Box::pin(tokio::io::stdin()), size: None });
        }
        let failure = |source| CommandError::Io { doing: format!("cannot read {}", file.display()), source };
        let opened = tokio::fs::File::open(file).await.map_err(failure)?;
        let metadata = opened.metadata().await.map_err(failure)?;
        Ok(Self { reader: Box::pin(opened), size: metadata.is_file().then_some(metadata.len()) })
    }
}

/// The answer of a server, line by line.
#[derive(Debug)]
pub(super) struct Answer {
    server: String,
    body: Incoming,
    buffer: BytesMut,
}

/// Sends the dump. Returns the answer, which begins before the whole dump is sent.
pub(super) async fn send(
    server: &ServerUrl,
    arguments: &ImportArguments,
    upload: Upload,
) -> Result<Answer, CommandError> {
    let mut client = connect(server).await?;
    output::warn_of_exposed_token(server, &client);
    let Upload { reader, size } = upload;
    let pieces = ReaderStream::with_capacity(reader, READ_BYTES).map_ok(Frame::data);
    // A server of an earlier version accepts only the path without a query.
    let ImportArguments { domain, bucket, skip_broken, .. } = arguments;
    let mut query = Vec::new();
    if *bucket != BucketName::page() {
        query.push(format!("bucket={bucket}"));
    }
    if *skip_broken {
        query.push("skip_broken=true".to_owned());
    }
    let separator = if query.is_empty() { "" } else { "?" };
    let path = format!("/v1/{domain}/import{separator}{}", query.join("&"));
    let mut request =
        (client.request(Method::POST, &path)).header(header::CONTENT_TYPE, "application/octet-stream");
    if let Some(size) = size {
        request = request.header(header::CONTENT_LENGTH, size);
    }
    let request = request
        .body(StreamBody::new(pieces))
        .map_err(|error| CommandError::Import(format!("cannot make a request for {server}: {error}")))?;
    let response =
        client.send(request).await.map_err(|error| broken_connection_error(&server.to_string(), &error))?;
    let status = response.status();
    let answer = Answer { server: server.to_string(), body: response.into_body(), buffer: BytesMut::new() };
    if status.is_success() { Ok(answer) } else { Err(answer.refusal(status).await) }
}

fn broken_connection_error(server: &str, error: &(dyn Error + 'static)) -> CommandError {
    let reason = last_cause(error);
    CommandError::Import(format!(
        "the connection to {server} broke ({reason}): stored revisions stay; to continue, import the files \
         again"
    ))
}

impl Answer {
    /// Returns the next line without its line end. `None` at the end of the answer.
    pub(super) async fn line(&mut self) -> Result<Option<Bytes>, CommandError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let mut line = self.buffer.split_to(end + 1);
                line.truncate(end);
                return Ok(Some(line.freeze()));
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                let why = "did not answer like a rashomon server: a line is longer than 1 MiB: check the URL";
                return Err(CommandError::Import(format!("{} {why}", self.server)));
            }
            if !self.more().await? {
                let rest = self.buffer.split();
                return Ok(Some(rest.freeze()).filter(|rest| !rest.is_empty()));
            }
        }
    }

    async fn more(&mut self) -> Result<bool, CommandError> {
        match self.body.frame().await {
            None => Ok(false),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    self.buffer.extend_from_slice(&data);
                }
                Ok(true)
            }
            Some(Err(error)) => Err(broken_connection_error(&self.server, &error)),
        }
    }

    /// The error if the server refused the dump, with the reason of the server if it sent one.
    async fn refusal(mut self, status: StatusCode) -> CommandError {
        // If the connection ends early, the received part is no JSON document, and the reason is not known.
        while self.buffer.len() < MAX_LINE_BYTES && matches!(self.more().await, Ok(true)) {}
        let problem: serde_json::Value = serde_json::from_slice(&self.buffer).unwrap_or_default();
        let reason = refusal_reason(&problem);
        CommandError::Import(format!("{} refused the import ({status}): {reason}", self.server))
    }
}
