//! Operations on tokens, operations for operators, and HTML pages.

use super::{CACHED_HEADERS, CONDITIONS, NO_MATCH, NOT_MODIFIED, answer, plain, problem};
use crate::openapi::operation::{
    Answer,
    Chapter::{Access, Operators, People},
    Content::{Document, Empty, Other, Problem},
    Operation, RequestBody,
    Verb::{Delete, Post},
};

const fn page(meaning: &'static str) -> Answer {
    answer(200, Other("text/html; charset=utf-8"), &["Content-Security-Policy"], meaning)
}

const NOT_ALLOWED: Answer = problem(
    403,
    "The token lacks the right `admin` on every domain and every bucket, or the server refuses all writes.",
);

/// Operations on tokens. Each needs the right `admin` on every domain and every bucket.
pub(super) const ACCESS: &[Operation] = &[
    Operation {
        verb: Post,
        body: Some(RequestBody::TokenRequest),
        description: "The answer is the only place that shows the token: the server keeps a hash.",
        curl: r#"-H 'Content-Type: application/json' -d '{"rights": ["read"], "domains": ["enwiki"]}'"#,
        ..plain(
            "makeToken",
            Access,
            "/v1/tokens",
            "Make a token",
            &[
                answer(201, Document("new-token"), &["Cache-Control"], "The token, and its id."),
                problem(400, "The body is not the JSON of a token request."),
                NOT_ALLOWED,
                problem(413, "The body has more than 64 KiB."),
                problem(415, "The body is not `application/json`, or has a Content-Encoding."),
                problem(422, "A right, a domain, a bucket or a time is not valid."),
            ],
        )
    },
    Operation {
        description: "The oldest come first. `?limit=` is the maximum number of tokens, 1 to 500, and 500 by default. \
                      `?after=` is an id, taken from `next`.",
        ..plain(
            "listTokens",
            Access,
            "/v1/tokens",
            "List the tokens",
            &[
                answer(200, Document("token-list"), &["Cache-Control"], "The tokens, without their secrets."),
                problem(400, "The query is malformed."),
                problem(403, "The token lacks the right `admin` on every domain and every bucket."),
            ],
        )
    },
    Operation {
        verb: Delete,
        description: "This server refuses the token at once, and all other servers of the store within five seconds.",
        ..plain(
            "revokeToken",
            Access,
            "/v1/tokens/{id}",
            "Revoke a token",
            &[
                answer(204, Empty, &["Cache-Control"], "The token is revoked."),
                problem(400, "The id is malformed."),
                NOT_ALLOWED,
                problem(404, "There is no such token."),
            ],
        )
    },
];

/// Operations for operators, and the HTML pages.
pub(super) const SERVICE: &[Operation] = &[
    plain(
        "health",
        Operators,
        "/healthz",
        "Whether the process is alive",
        &[answer(
            200,
            Other("application/json"),
            &["Cache-Control"],
            "The process is alive; with its version.",
        )],
    ),
    plain(
        "readiness",
        Operators,
        "/readyz",
        "Whether the store answers and can be written",
        &[
            answer(
                200,
                Other("application/json"),
                &["Cache-Control"],
                "The main store answers. With a registry, `backends` counts the other backends by their state.",
            ),
            answer(
                503,
                Problem,
                &["Retry-After"],
                "The store does not answer in time, or its last write failed because of a disk. `detail` names the \
                 file or the nodes.",
            ),
        ],
    ),
    plain(
        "metrics",
        Operators,
        "/metrics",
        "Metrics for Prometheus",
        &[answer(
            200,
            Other("application/openmetrics-text; version=1.0.0; charset=utf-8"),
            &["Cache-Control"],
            "All metrics. They contain no domain and no title.",
        )],
    ),
    Operation {
        headers: CONDITIONS,
        ..plain(
            "openapi",
            Operators,
            "/openapi.json",
            "This API, as OpenAPI 3.1",
            &[
                answer(200, Other("application/json"), CACHED_HEADERS, "The document."),
                NOT_MODIFIED,
                NO_MATCH,
            ],
        )
    },
    plain("documentation", Operators, "/docs", "This API, as a page for people", &[page("A page.")]),
    Operation {
        description: "Clients that accept `text/html`, such as browsers, also get problems as pages.",
        ..plain(
            "showDomains",
            People,
            "/",
            "The stored domains",
            &[page("The domains."), problem(400, "The query has something other than `after`.")],
        )
    },
    plain(
        "showTitles",
        People,
        "/pages/{domain}/",
        "The pages of a domain",
        &[page("Their titles, in order."), problem(404, "There is no such domain.")],
    ),
    Operation {
        description: "`?rev/{tid}/` shows a render, and `?at=2013-02-23T22:23` shows the page at that time.",
        ..plain(
            "showPage",
            People,
            "/pages/{domain}/{title}",
            "The revisions of a page",
            &[page("The revisions, with their renders."), problem(404, "There is no such page.")],
        )
    },
    plain(
        "showTitlesOfBucket",
        People,
        "/buckets/{domain}/{bucket}/",
        "The pages of a further bucket",
        &[page("Their titles, in order."), problem(404, "There is no such bucket of pages.")],
    ),
    Operation {
        description: "The requests of this page are those of `/pages/{domain}/{title}`.",
        ..plain(
            "showPageOfBucket",
            People,
            "/buckets/{domain}/{bucket}/{title}",
            "The revisions of a page in a further bucket",
            &[page("The revisions, with their renders."), problem(404, "There is no such page.")],
        )
    },
];
