//! Batches of requests.

use super::{answer, plain, problem};
use crate::openapi::operation::{Chapter::Batches, Content::Document, Operation, RequestBody, Verb::Post};

pub(super) const BATCHES: &[Operation] = &[Operation {
    verb: Post,
    body: Some(RequestBody::Batch),
    description: "The body is an array of up to 500 requests, and the answer an array of their answers in the same \
                  order. A batch is not atomic: each request succeeds or fails by itself. An element that is not a \
                  valid request gets 400 in its place, and so does a batch in a batch. A batch reaches only paths below \
                  `/v1/{domain}/` and `/wiki/`: any other gets 404. The rights of the caller, the host and the origin \
                  hold for each request as for the batch. Redirects are returned, not followed. Up to 16 requests run concurrently. Requests with the same path, whatever their queries, run in their \
                  order; all spellings of a title, and the URLs of one page below `/v1/` and `/wiki/`, count as the same \
                  path. A request that is still running at the time-out gets 504 (`batch-timeout`). A \
                  request whose answer has no room in the whole answer, or in the memory of the server, gets 507 \
                  (`answer-too-large`); answers of up to 4 KiB always have room, and earlier requests take precedence \
                  over later ones. In both cases a write may be stored even so: a repeat is harmless, except that of \
                  an increment without an `Idempotency-Key`. If the client disconnects, writes that have begun \
                  continue, and the other requests are not started. The `x-request-id` of a request is that of the \
                  batch, a dot, and its position from 0.",
    curl: r#"-H 'Content-Type: application/json' -d '[{"method": "GET", "path": "/v1/enwiki/page/Main_Page?rev/"}]'"#,
    ..plain(
        "sendBatch",
        Batches,
        "/v1/batch",
        "Send several requests at once",
        &[
            answer(200, Document("batch"), &["Cache-Control"], "The answers, whatever their statuses."),
            problem(400, "The body is not a JSON array, or it has more than 500 elements."),
            problem(413, "The body is too large, or the answers to so many requests may be."),
            problem(415, "The body is not `application/json`, or has a Content-Encoding."),
        ],
    )
}];
