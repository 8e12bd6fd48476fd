//! Writes and imports.

use super::{NO_MATCH_OR_CHANGED, answer, get, plain, problem};
use crate::openapi::operation::{
    Answer,
    Chapter::{Histories, Writing},
    Content::{Document, Other, Problem},
    Operation, RequestBody,
    Verb::{self, Post, Put},
};

const TOO_LARGE: Answer = problem(413, "A property or the whole body is too large.");
const NO_ENCODING: Answer = problem(415, "The content encoding or type of the body is not supported.");
const BAD_FIELD: Answer = problem(
    400,
    "A field is unknown, malformed or repeated, or there is no property, or there are more than 64.",
);
const BAD_VALUE: Answer =
    problem(422, "A value is well-formed but impossible, such as a time in the future.");
const FORBIDDEN: Answer = problem(403, "This server refuses writes.");

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

const DISK_FULL: Answer = answer(
    507,
    Problem,
    &["Retry-After"],
    "A disk of the server is full. Reads still work. Repeat the write when there is room.",
);

/// The headers of an answer to a new revision or render.
const WRITTEN_HEADERS: &[&str] = &["Location", "Cache-Control"];

const CREATED: Answer = answer(201, Document("written"), WRITTEN_HEADERS, "Stored durably.");

/// The answers to a new render.
const fn of_new_render(not_found: &'static str) -> [Answer; 10] {
    [
        CREATED,
        answer(200, Document("written"), WRITTEN_HEADERS, "The newest render is equal; nothing was stored."),
        BAD_FIELD,
        FORBIDDEN,
        problem(404, not_found),
        problem(
            409,
            "A property with one value per revision, such as wikitext, has different bytes; or the type is \
             not-latest.",
        ),
        TOO_LARGE,
        NO_ENCODING,
        BAD_VALUE,
        DISK_FULL,
    ]
}

/// Writes of a page, and the import of histories.
pub(super) const WRITING: &[Operation] = &[
    Operation {
        description: "Stores all properties or none. Repeating a write is harmless, so a client that got no answer \
                      repeats it, even if `_if_latest` no longer holds.",
        curl: "-d _rev=12345 -d _parent=12344 --data-urlencode '_comment=typo' --data-urlencode 'html@page.html'",
        ..write(
            Post,
            "writeRevision",
            "rev/",
            RequestBody::NewRevision,
            "Store a new revision",
            &[
                CREATED,
                answer(200, Document("written"), WRITTEN_HEADERS, "The same content was stored already."),
                BAD_FIELD,
                FORBIDDEN,
                problem(
                    409,
                    "The revision is stored with different content, or the latest revision is not that of _if_latest: \
                     then the type is not-latest, and `latest` has the latest render.",
                ),
                TOO_LARGE,
                NO_ENCODING,
                BAD_VALUE,
                DISK_FULL,
            ],
        )
    },
    Operation {
        description: "Properties that the request lacks are copied from the newest render of the revision, so every \
                      render is complete. A render that equals the newest one is not stored again.",
        curl: "--data-urlencode 'html@page.html'",
        ..write(
            Post,
            "writeRender",
            "rev/{rev}/",
            RequestBody::NewRender,
            "Store a new render of a revision",
            &of_new_render("There is no such revision."),
        )
    },
    Operation {
        description: "Like a new render of a revision, but missing properties are copied from the named render.",
        curl: "--data-urlencode 'html@page.html'",
        ..write(
            Post,
            "writeRenderFrom",
            "rev/{tid}/",
            RequestBody::NewRender,
            "Store a new render based on another",
            &of_new_render("There is no such render."),
        )
    },
    Operation {
        headers: &["If-Match", "If-Unmodified-Since", "Content-Type", "Content-Language"],
        description: "Destructive: the replaced bytes are lost. Other renders with a copy of the property keep \
                      theirs. The same bytes and headers change nothing.",
        curl: "-T page.html -H 'Content-Type: text/html; charset=utf-8'",
        ..write(
            Put,
            "replaceProperty",
            "rev/{tid}/{property}",
            RequestBody::Bytes,
            "Replace a property in place",
            &[
                answer(200, Document("written"), &["ETag", "Location", "Cache-Control"], "Replaced durably."),
                problem(
                    400,
                    "The request has no body, or it has If-None-Match or Content-Range: a PUT replaces the \
                     whole body, and its condition is If-Match or If-Unmodified-Since.",
                ),
                FORBIDDEN,
                problem(404, "There is no such render, or it has no such property."),
                NO_MATCH_OR_CHANGED,
                TOO_LARGE,
                problem(415, "The body has a Content-Encoding."),
                DISK_FULL,
            ],
        )
    },
    Operation {
        verb: Post,
        body: Some(RequestBody::Export),
        description: "`?bucket=` names the bucket of the pages, which exists and has the type `revisioned`; without it, \
                      the bucket is `page`. The body is streamed and may have any length. Importing again changes nothing. Revisions that \
                      are stored with different content are counted, named and left as they are. With \
                      `?skip_broken=true`, broken pages are named and skipped. Limits: 128 MiB for \
                      the window of a zstd, 256 MiB of memory for decompression, 8 GiB for a 7z, and `body_limit` for \
                      a line of JSON lines. The command `rashomon import` has higher limits.",
        curl: "-T enwiki-history.xml.zst",
        ..plain(
            "importHistory",
            Histories,
            "/v1/{domain}/import",
            "Import a history",
            &[
                answer(
                    200,
                    Other("application/jsonl"),
                    &["Cache-Control"],
                    "Progress lines, and a last line whose `status` is `done` or `failed`, with the counts. \
                     A failed import names the error and its position in the input.",
                ),
                problem(400, "Nothing in the body can be read, or the query is malformed."),
                FORBIDDEN,
                problem(404, "There is no such bucket."),
                problem(422, "The bucket has another type than `revisioned`."),
                DISK_FULL,
                problem(
                    503,
                    "The maximum number of imports is running, or no memory is free. Retry-After says when to try \
                     again.",
                ),
            ],
        )
    },
];
