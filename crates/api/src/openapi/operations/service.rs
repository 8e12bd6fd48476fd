//! Operations for operators, and HTML pages.

use super::{CACHED, CONDITIONS, NO_MATCH, NOT_MODIFIED, answer, plain, problem};
use crate::openapi::operation::{
    Answer,
    Chapter::{Operators, People},
    Content::{Other, Problem},
    Operation,
};

const fn page(meaning: &'static str) -> Answer {
    answer(200, Other("text/html; charset=utf-8"), &["Content-Security-Policy"], meaning)
}

/// Operations that do not concern a page in the API.
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
            answer(200, Other("application/json"), &["Cache-Control"], "The store answers."),
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
            &[answer(200, Other("application/json"), CACHED, "The document."), NOT_MODIFIED, NO_MATCH],
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
];
