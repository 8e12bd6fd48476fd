//! Reads of a page.

use super::{CONDITIONS, FAILED, NOT_MODIFIED, answer, get, plain, problem, redirect};
use crate::openapi::operation::{
    Answer,
    Chapter::{Reading, TimeTravel},
    Content::{Document, Empty, Other, Problem, Property},
    Operation,
    Verb::Options,
};

/// Of every `200` of a property.
const PROPERTY_HEADERS: &[&str] = &[
    "ETag",
    "Last-Modified",
    "Content-Location",
    "Link",
    "x-rev",
    "Vary",
    "Cache-Control",
    "Content-Security-Policy",
    "X-Content-Type-Options",
];

/// Of a property under its tid.
const MEMENTO_HEADERS: &[&str] = &[
    "ETag",
    "Last-Modified",
    "Content-Location",
    "Link",
    "x-rev",
    "Memento-Datetime",
    "Vary",
    "Cache-Control",
    "Content-Security-Policy",
    "X-Content-Type-Options",
];

const NO_PAGE: Answer = problem(404, "There is no page of this title.");
const NO_RENDER: Answer =
    problem(404, "There is no such render, or it has no such property. Never another one's.");
const RENDERER_FAILED: Answer = problem(
    502,
    "It is stored nowhere, and the renderer that is configured for it failed. Nothing was stored.",
);
const RENDERER_LATE: Answer = problem(
    504,
    "It is stored nowhere, and the renderer that is configured for it did not answer in time. Nothing was stored.",
);
const PART: Answer =
    answer(206, Property, &["Content-Range", "ETag"], "The part that Range asks for, of the plain bytes.");
const BAD_RANGE: Answer = answer(416, Problem, &["Content-Range"], "The range begins past the end.");

/// The page, its revisions, renders and properties.
pub(super) const READING: &[Operation] = &[
    Operation {
        headers: &[
            "If-None-Match",
            "If-Match",
            "If-Unmodified-Since",
            "Range",
            "If-Range",
            "Accept-Encoding",
        ],
        ..get(
            "readLatestProperty",
            Reading,
            "rev/latest/{property}",
            "A property of the page as it is",
            &[
                answer(
                    200,
                    Property,
                    PROPERTY_HEADERS,
                    "That property of the newest render of the latest revision.",
                ),
                PART,
                NOT_MODIFIED,
                answer(
                    404,
                    Problem,
                    &[],
                    "There is no such page, or the latest revision, which is the highest whatever it holds, has \
                     no such property. Then a Link of rel=\"predecessor-version\" leads to the newest that has.",
                ),
                FAILED,
                BAD_RANGE,
                RENDERER_FAILED,
                RENDERER_LATE,
            ],
        )
    },
    Operation {
        headers: CONDITIONS,
        ..get(
            "readLatestRender",
            Reading,
            "rev/latest/",
            "The newest render of the latest revision",
            &[
                answer(
                    200,
                    Document("render"),
                    &["ETag", "Cache-Control"],
                    "The render, with all its properties.",
                ),
                NOT_MODIFIED,
                NO_PAGE,
                FAILED,
            ],
        )
    },
    Operation {
        headers: CONDITIONS,
        parameters: &["limit", "page"],
        description: "Follow `next` for the ones before. Latest is the highest number, in whatever order the \
                      revisions came.",
        ..get(
            "listRevisions",
            Reading,
            "rev/",
            "The revisions of the page, latest first",
            &[
                answer(200, Document("revision-list"), &["ETag", "Cache-Control"], "A part of the list."),
                NOT_MODIFIED,
                problem(400, "limit or page is malformed."),
                NO_PAGE,
                FAILED,
            ],
        )
    },
    Operation {
        headers: CONDITIONS,
        parameters: &["limit", "page"],
        description: "Follow `next` for older renders. A page has fewer than `limit` where it would have more than \
                      1 MiB otherwise.",
        ..get(
            "readRevision",
            Reading,
            "rev/{rev}/",
            "A revision with its renders",
            &[
                answer(
                    200,
                    Document("revision"),
                    &["ETag", "Cache-Control"],
                    "The revision, its newest render first.",
                ),
                NOT_MODIFIED,
                problem(400, "limit or page is malformed."),
                problem(404, "There is no such page, or no such revision."),
                FAILED,
            ],
        )
    },
    get(
        "findPropertyOfRevision",
        Reading,
        "rev/{rev}/{property}",
        "Where a property of a revision is",
        &[
            redirect("To that property of the newest render of the revision, under its tid."),
            problem(404, "There is no such revision, or its newest render has no such property."),
            RENDERER_FAILED,
            RENDERER_LATE,
        ],
    ),
    Operation {
        headers: CONDITIONS,
        ..get(
            "readRender",
            Reading,
            "rev/{tid}/",
            "A render",
            &[
                answer(
                    200,
                    Document("render"),
                    &["ETag", "Cache-Control"],
                    "The render, with all its properties.",
                ),
                NOT_MODIFIED,
                problem(404, "There is no such render."),
                FAILED,
            ],
        )
    },
    Operation {
        headers: &[
            "If-None-Match",
            "If-Match",
            "If-Modified-Since",
            "If-Unmodified-Since",
            "Range",
            "If-Range",
            "Accept-Encoding",
        ],
        description: "The address to keep: it always means these bytes, unless they are replaced in place.",
        ..get(
            "readProperty",
            Reading,
            "rev/{tid}/{property}",
            "A property of a render",
            &[
                answer(200, Property, MEMENTO_HEADERS, "The bytes, with the headers they were stored with."),
                PART,
                NOT_MODIFIED,
                NO_RENDER,
                FAILED,
                BAD_RANGE,
            ],
        )
    },
    Operation {
        query: None,
        ..get("readPage", Reading, "", "The page", &[redirect("To `?rev/latest/html`.")])
    },
    get("openRevisions", Reading, "rev", "The revisions, without the slash", &[redirect("To `?rev/`.")]),
    get(
        "openLatest",
        Reading,
        "rev/latest",
        "The latest, without more",
        &[redirect("To `?rev/latest/html`.")],
    ),
    get(
        "openRevision",
        Reading,
        "rev/{rev}",
        "A revision, without the slash",
        &[redirect("To the same with a slash.")],
    ),
    get(
        "openRender",
        Reading,
        "rev/{tid}",
        "A render, without the slash",
        &[redirect("To the same with a slash.")],
    ),
    Operation {
        verb: Options,
        query: None,
        description: "The same with any query: each names its own methods.",
        ..get(
            "askForMethods",
            Reading,
            "",
            "The methods that a resource takes",
            &[answer(204, Empty, &["Allow"], "They are in Allow.")],
        )
    },
    Operation {
        description: "The same sub-resources as above, to be read only, under the page's own URL: the request's \
                      Host selects the domain, through the configuration. Links in JSON and headers are relative \
                      to the page, and work under both.",
        ..plain(
            "readPageOfHost",
            Reading,
            "/wiki/{title}",
            "The page under its public URL",
            &[
                redirect("To `?rev/latest/html`; with a query whatever the same query answers above."),
                problem(404, "No domain is configured for this host."),
            ],
        )
    },
];

/// The page as it was.
pub(super) const TIME_TRAVEL: &[Operation] = &[
    Operation {
        description: "The revision with the greatest timestamp at or before that time, of several the highest; of \
                      its renders the newest at or before it, else the oldest.",
        ..get(
            "findPropertyAtTime",
            TimeTravel,
            "rev/{time}/{property}",
            "Where a property is of the page as it was at a time",
            &[
                redirect("To the render's tid. Not to be cached: time goes on."),
                problem(404, "The page did not exist yet, or that render has no such property."),
            ],
        )
    },
    Operation {
        headers: &["Accept-Datetime"],
        description: "The timegate of RFC 7089, for clients that know it: among the revisions that have the \
                      property. Without a date it is the newest; before the first it is the first. The 2,000 revisions \
                      nearest to the date are examined.",
        ..get(
            "timegate",
            TimeTravel,
            "timegate/{property}",
            "From a date to the page's state at that date",
            &[
                answer(302, Empty, &["Location", "Vary", "Link", "Cache-Control"], "To the state's tid."),
                problem(400, "Accept-Datetime is no date."),
                problem(
                    404,
                    "No revision of the page has the property, or none of those that were examined: then a Link \
                     leads to the timemap.",
                ),
            ],
        )
    },
    Operation {
        headers: CONDITIONS,
        parameters: &["limit", "page"],
        description: "The timemap of RFC 7089: all states that the timegate can lead to, oldest first. For one page \
                      2,000 revisions are examined, so it may have few states, or none, and lead on all the same.",
        ..get(
            "timemap",
            TimeTravel,
            "timemap/{property}",
            "All states of the page that have the property",
            &[
                answer(
                    200,
                    Other("application/link-format"),
                    &["ETag", "Cache-Control"],
                    "Links, as RFC 6690 has them; one of rel=\"next timemap\" leads on.",
                ),
                NOT_MODIFIED,
                problem(400, "limit or page is malformed."),
                problem(404, "No revision of the page has the property."),
                FAILED,
            ],
        )
    },
];
