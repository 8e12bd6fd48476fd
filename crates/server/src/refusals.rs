//! Answers to requests with an unreadable head, which reach no handler. Like answers to other bad requests, they have
//! advice and an id, and are counted and logged.

use std::fmt;

use crate::connections::Refusal;
use axum::response::{IntoResponse, Response};

use crate::{
    Api,
    observe::Record,
    problem::{Kind, Problem},
};

/// Answers a request that could not be read. Counts and logs the answer.
pub(crate) fn answer(api: &Api, refusal: Refusal, cause: Option<&dyn fmt::Display>) -> Response {
    let problem = problem_of(refusal);
    let problem = match cause {
        Some(cause) => problem.with_cause(cause),
        None => problem,
    };
    Record::of_unread(api).finish(problem.into_response())
}

fn problem_of(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::UrlTooLong => Problem::new(
            Kind::UriTooLong,
            "the URL is too long to be read: send a shorter URL; a title has at most 1,024 bytes",
        ),
        Refusal::HeadTooLarge { max_head_bytes } => Problem::new(
            Kind::HeadTooLarge,
            format!(
                "the request line and the headers have more than {max_head_bytes} bytes, or more than 100 headers: \
                 send fewer, and shorter ones"
            ),
        ),
        Refusal::Malformed { reason } => Problem::malformed(format!(
            "the request is not valid HTTP/1.1 ({reason}): in a URL, all characters except visible ASCII are \
             percent-encoded, and so are <, > and `; each header is a line 'name: value'; a body has one \
             Content-Length, or is chunked"
        )),
        Refusal::TransferCoding => Problem::new(
            Kind::TransferCoding,
            "a body may have the transfer-encoding 'chunked' alone: send it chunked or with a Content-Length, and \
             without another coding such as gzip",
        ),
        Refusal::Http2 => Problem::malformed(
            "this server speaks only HTTP/1.1: send the request without HTTP/2, or let a proxy translate",
        ),
        Refusal::Late => Problem::new(
            Kind::RequestTimeout,
            "the request's head did not arrive in time: send it without pauses",
        ),
        Refusal::WithoutTls => Problem::malformed(
            "this server uses TLS, and the request came without it: use https:// instead of http://",
        ),
    }
}
