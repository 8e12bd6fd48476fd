//! Writes, and whole histories.

use super::{FAILED, answer, get, plain, problem};
use crate::openapi::operation::{
    Answer,
    Chapter::{Histories, Writing},
    Content::{Document, Other, Problem},
    Operation, RequestBody,
    Verb::{self, Post, Put},
};

const TOO_LARGE: Answer = problem(413, "A property, or all of the body, is larger than it may be.");
const NO_ENCODING: Answer = problem(415, "The body is in none of the encodings that are taken.");
const BAD_FIELD: Answer =
    problem(400, "A field is unknown, malformed or given twice, or there is no property, or more than 64.");
const BAD_VALUE: Answer = problem(422, "A value is well-formed and wrong, such as a time to come.");
const FORBIDDEN: Answer = problem(403, "This server takes no writes.");

const fn write(
    verb: Verb,
    id: &'static str,
    query: &'static str,
    body: RequestBody,
    summary: &'static str,
    answers: &'static [Answer],
) -> Operation {
    Operation { verb, body: Some(body), chapter: Writing, ..get(id, Writing, query, summary, answers) }
}

const FULL: Answer = answer(
    507,
    Problem,
    &["Retry-After"],
    "A disk of the server is full: reads go on, and the write can be repeated when there is room.",
);

/// What changes what is stored.
pub(super) const WRITING: &[Operation] = &[
    Operation {
        description: "All properties are stored, or none. Posting the same again is harmless, so a write whose \
                      answer was lost can be repeated, even where `_if_latest` no longer holds.",
        curl: "-d _rev=12345 -d _parent=12344 --data-urlencode '_comment=typo' --data-urlencode 'html@page.html'",
        ..write(
            Post,
            "writeRevision",
            "rev/",
            RequestBody::NewRevision,
            "Store a new revision",
            &[
                answer(201, Document("written"), &["Location", "Cache-Control"], "It is stored, durably."),
                answer(200, Document("written"), &["Location", "Cache-Control"], "It stood so already."),
                BAD_FIELD,
                FORBIDDEN,
                problem(
                    409,
                    "The revision stands with something else, or the latest is not the one that _if_latest names: \
                     then the type is not-latest, and `latest` has the latest render.",
                ),
                TOO_LARGE,
                NO_ENCODING,
                BAD_VALUE,
                FULL,
            ],
        )
    },
    Operation {
        description: "What is not given is taken over from the newest render of the revision, so a render is \
                      always whole. A render that equals the newest is not stored again.",
        curl: "--data-urlencode 'html@page.html'",
        ..write(
            Post,
            "writeRender",
            "rev/{rev}/",
            RequestBody::NewRender,
            "Store a new render of a revision",
            &[
                answer(201, Document("written"), &["Location", "Cache-Control"], "It is stored, durably."),
                answer(
                    200,
                    Document("written"),
                    &["Location", "Cache-Control"],
                    "The newest render equals it.",
                ),
                BAD_FIELD,
                FORBIDDEN,
                problem(404, "There is no such revision."),
                problem(
                    409,
                    "A property that is one a revision, such as wikitext, has other bytes; or not-latest.",
                ),
                TOO_LARGE,
                NO_ENCODING,
                BAD_VALUE,
                FULL,
            ],
        )
    },
    Operation {
        description: "The same, where what is not given is taken over from the render named.",
        curl: "--data-urlencode 'html@page.html'",
        ..write(
            Post,
            "writeRenderFrom",
            "rev/{tid}/",
            RequestBody::NewRender,
            "Store a new render based on another",
            &[
                answer(201, Document("written"), &["Location", "Cache-Control"], "It is stored, durably."),
                answer(
                    200,
                    Document("written"),
                    &["Location", "Cache-Control"],
                    "The newest render equals it.",
                ),
                BAD_FIELD,
                FORBIDDEN,
                problem(404, "There is no such render."),
                problem(
                    409,
                    "A property that is one a revision, such as wikitext, has other bytes; or not-latest.",
                ),
                TOO_LARGE,
                NO_ENCODING,
                BAD_VALUE,
                FULL,
            ],
        )
    },
    Operation {
        headers: &["If-Match", "If-Unmodified-Since", "Content-Type", "Content-Language"],
        description: "Destructive: the bytes that stood there are gone. Other renders that had taken the property \
                      over keep theirs. The same bytes and type again change nothing.",
        curl: "-T page.html -H 'Content-Type: text/html; charset=utf-8'",
        ..write(
            Put,
            "replaceProperty",
            "rev/{tid}/{property}",
            RequestBody::Bytes,
            "Replace a property in place",
            &[
                answer(
                    200,
                    Document("written"),
                    &["ETag", "Location", "Cache-Control"],
                    "It is replaced, durably.",
                ),
                problem(
                    400,
                    "Its condition is If-Match or If-Unmodified-Since, and it is of the whole body.",
                ),
                FORBIDDEN,
                problem(404, "There is no such render, or it has no such property to be replaced."),
                FAILED,
                TOO_LARGE,
                problem(415, "The body has a Content-Encoding."),
                FULL,
            ],
        )
    },
    Operation {
        verb: Post,
        body: Some(RequestBody::Export),
        description: "The body is streamed, so it may be of any length. Importing again changes nothing. What \
                      stands with other content is counted, named and left as it is. Of a zstd the window has \
                      at most 128 MiB, decompressing may take 256 MiB of memory, a 7z has at most 8 GiB, and a line \
                      of JSON lines as many bytes as any other body; the command `rashomon import` takes more.",
        curl: "-T enwiki-history.xml.zst",
        ..plain(
            "importHistory",
            Histories,
            "/v1/{domain}/import",
            "Bring in a whole history",
            &[
                answer(
                    200,
                    Other("application/jsonl"),
                    &["Cache-Control"],
                    "A line now and then that says how far it is, and a last one whose `status` is `done` or \
                     `failed`, with the counts, and with the error and where it stands.",
                ),
                problem(400, "Nothing of it can be read."),
                FORBIDDEN,
                FULL,
                problem(
                    503,
                    "As many imports as may be are under way, or no memory is left; Retry-After says when to try again.",
                ),
            ],
        )
    },
];
