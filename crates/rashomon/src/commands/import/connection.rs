//! A request to a server: sends a dump as a stream, and reads the lines of the answer at the same time.

use std::{path::Path, pin::Pin};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, StatusCode, header};
use rashomon_client::{Body, BoxError};
use rashomon_pages::BucketName;
use tokio::io::AsyncRead;
use tokio_util::io::ReaderStream;

use super::is_standard_input;
use crate::{
    arguments::ImportArguments,
    errors::CommandError,
    remote::{Remote, refusal_reason, request, with_body},
};

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
    body: Body,
    buffer: BytesMut,
}

/// Sends the dump. Returns the answer, which begins before the whole dump is sent.
pub(super) async fn send(
    remote: &Remote,
    arguments: &ImportArguments,
    upload: Upload,
) -> Result<Answer, CommandError> {
    let Upload { reader, size } = upload;
    let pieces = ReaderStream::with_capacity(reader, READ_BYTES).map_err(BoxError::from);
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
    let request = request(Method::POST, &path).header(header::CONTENT_TYPE, "application/octet-stream");
    let response = remote.try_send(with_body(request, Body::with_length(pieces, size))?).await;
    let response = response.map_err(|error| {
        let is_unsent = error.is_unsent();
        let error = remote.failure(error);
        if is_unsent { error } else { interrupted(&error) }
    })?;
    let status = response.status();
    let server = remote.server().to_string();
    let answer = Answer { server, body: response.into_body(), buffer: BytesMut::new() };
    if status.is_success() { Ok(answer) } else { Err(answer.refusal(status).await) }
}

/// The error for an import without an answer, or with a part of one.
fn interrupted(error: &dyn std::fmt::Display) -> CommandError {
    CommandError::Import(format!("{error}: stored revisions stay; to continue, import the files again"))
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
        match self.body.next().await {
            None => Ok(false),
            Some(Ok(bytes)) => {
                self.buffer.extend_from_slice(&bytes);
                Ok(true)
            }
            Some(Err(error)) => Err(interrupted(&error)),
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
