//! What operators ask for, and what people look at.

use super::{CONDITIONS, FAILED, NOT_MODIFIED, answer, plain, problem};
use crate::openapi::operation::{
    Answer,
    Chapter::{Operators, People},
    Content::{Other, Problem},
    Operation,
};

const fn page(meaning: &'static str) -> Answer {
    answer(200, Other("text/html; charset=utf-8"), &["Content-Security-Policy"], meaning)
}

/// What is not of a page in the API.
pub(super) const SERVICE: &[Operation] = &[
    plain(
        "health",
        Operators,
        "/healthz",
        "Whether the process is there",
        &[answer(200, Other("application/json"), &["Cache-Control"], "It is, and of which version.")],
    ),
    plain(
        "readiness",
        Operators,
        "/readyz",
        "Whether the store answers and can be written",
        &[
            answer(200, Other("application/json"), &["Cache-Control"], "It does."),
            answer(
                503,
                Problem,
                &["Retry-After"],
                "It does not, or not in time, or its last write failed because of a disk: `detail` names the file or the nodes.",
            ),
        ],
    ),
    plain(
        "metrics",
        Operators,
        "/metrics",
        "Metrics, for Prometheus",
        &[answer(
            200,
            Other("application/openmetrics-text; version=1.0.0; charset=utf-8"),
            &["Cache-Control"],
            "All that is counted. No domain and no title is in it.",
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
                answer(200, Other("application/json"), &["ETag", "Cache-Control"], "The document."),
                NOT_MODIFIED,
                FAILED,
            ],
        )
    },
    plain("documentation", Operators, "/docs", "This API, to be read", &[page("A page.")]),
    Operation {
        description: "Browsers, which ask for `text/html` by name, get problems as pages too.",
        ..plain(
            "showDomains",
            People,
            "/",
            "What is stored, to be looked at",
            &[page("The domains."), problem(400, "It takes nothing but `?after=`.")],
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
        description: "With `?rev/{tid}/` a render is shown, and with `?at=2013-02-23T22:23` the page as it was then.",
        ..plain(
            "showPage",
            People,
            "/pages/{domain}/{title}",
            "The revisions of a page",
            &[page("They, with their renders."), problem(404, "There is no such page.")],
        )
    },
];
