//! Reads of a page.

use super::{
    BAD_RANGE, BODY_REQUEST_HEADERS, CACHED_HEADERS, CONDITIONS, NO_MATCH, NO_MATCH_OR_CHANGED, NOT_MODIFIED,
    PART, answer, get, plain, problem, redirect,
};
use crate::openapi::operation::{
    Answer,
    Chapter::{Reading, TimeTravel},
    Content::{Document, Empty, Other, Problem, Property},
    Operation,
    Verb::Options,
};

/// The headers of every `200` of a property.
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

/// The headers of a property under its tid.
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

/// The redirect from a page to the latest.
const PAGE_REDIRECT: Answer =
    answer(302, Empty, &["Location", "Link", "Cache-Control"], "Redirects to `?rev/latest/html`.");
const RENDER: Answer =
    answer(200, Document("render"), CACHED_HEADERS, "The render, with all its properties.");
const BAD_LIST: Answer = problem(400, "limit or page is malformed.");
const NO_PAGE: Answer = problem(404, "There is no page of this title.");
const NO_RENDER: Answer = problem(
    404,
    "There is no such render, or it has no such property. Another render never answers instead.",
);
const RENDERER_FAILED: Answer =
    problem(502, "The property is not stored, and its configured renderer failed. Nothing was stored.");
const RENDERER_LATE: Answer = problem(
    504,
    "The property is not stored, and its configured renderer did not answer in time. Nothing was stored.",
);

/// Reads of the page, its revisions, renders and properties.
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
            "A property of the latest revision",
            &[
                answer(
                    200,
                    Property,
                    PROPERTY_HEADERS,
                    "The property of the newest render of the latest revision.",
                ),
                PART,
                NOT_MODIFIED,
                answer(
                    404,
                    Problem,
                    &[],
                    "There is no such page, or the latest revision (the one with the highest number) has no such \
                     property. Then a Link with rel=\"predecessor-version\" leads to the newest revision that has it.",
                ),
                NO_MATCH_OR_CHANGED,
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
            &[RENDER, NOT_MODIFIED, NO_PAGE, NO_MATCH],
        )
    },
    Operation {
        headers: CONDITIONS,
        parameters: &["limit", "page"],
        description: "`next` leads to earlier revisions. The latest revision has the highest number, whatever the \
                      order of the writes.",
        ..get(
            "listRevisions",
            Reading,
            "rev/",
            "The revisions of the page, latest first",
            &[
                answer(200, Document("revision-list"), CACHED_HEADERS, "One result page of the list."),
                NOT_MODIFIED,
                BAD_LIST,
                NO_PAGE,
                NO_MATCH,
            ],
        )
    },
    Operation {
        headers: CONDITIONS,
        parameters: &["limit", "page"],
        description: "`next` leads to older renders. A result page has fewer renders than `limit` if it would \
                      exceed 1 MiB otherwise.",
        ..get(
            "readRevision",
            Reading,
            "rev/{rev}/",
            "A revision with its renders",
            &[
                answer(
                    200,
                    Document("revision"),
                    CACHED_HEADERS,
                    "The revision with its renders, newest first.",
                ),
                NOT_MODIFIED,
                BAD_LIST,
                problem(404, "There is no such page, or no such revision."),
                NO_MATCH,
            ],
        )
    },
    get(
        "findPropertyOfRevision",
        Reading,
        "rev/{rev}/{property}",
        "Find a property of a revision",
        &[
            redirect(
                "Redirects to the property of the revision's newest render, by its tid. If that body is no longer \
                 stored, redirects to an older one that is, or to one that a renderer generates now.",
            ),
            problem(
                404,
                "There is no such revision, its newest render has no such property, or no body of the property is \
                 stored any more.",
            ),
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
            &[RENDER, NOT_MODIFIED, problem(404, "There is no such render."), NO_MATCH],
        )
    },
    Operation {
        headers: BODY_REQUEST_HEADERS,
        description: "The permanent address: it always returns the same bytes, until they are replaced in place, culled or \
                      erased.",
        ..get(
            "readProperty",
            Reading,
            "rev/{tid}/{property}",
            "A property of a render",
            &[
                answer(200, Property, MEMENTO_HEADERS, "The bytes, with their stored headers."),
                PART,
                NOT_MODIFIED,
                NO_RENDER,
                NO_MATCH_OR_CHANGED,
                BAD_RANGE,
            ],
        )
    },
    Operation { query: None, ..get("readPage", Reading, "", "The page", &[PAGE_REDIRECT]) },
    get(
        "openRevisions",
        Reading,
        "rev",
        "The revisions, without the slash",
        &[redirect("Redirects to `?rev/`.")],
    ),
    get(
        "openLatest",
        Reading,
        "rev/latest",
        "The latest revision without a property",
        &[redirect("Redirects to `?rev/latest/html`.")],
    ),
    get(
        "openRevision",
        Reading,
        "rev/{rev}",
        "A revision, without the slash",
        &[redirect("Redirects to the same URL with a slash.")],
    ),
    get(
        "openRender",
        Reading,
        "rev/{tid}",
        "A render, without the slash",
        &[redirect("Redirects to the same URL with a slash.")],
    ),
    Operation {
        verb: Options,
        query: None,
        description: "With a query: the methods of that resource.",
        ..get(
            "askForMethods",
            Reading,
            "",
            "The methods of a resource",
            &[answer(204, Empty, &["Allow"], "Allow lists the methods.")],
        )
    },
    Operation {
        description: "The same sub-resources as above, for reading only, under the public URL of the page. The Host \
                      header selects the domain, by the configuration. Links in JSON are relative to the page, so \
                      they work under both URLs. Links as MediaWiki has them are redirected: \
                      `?oldid=12345`, `?action=raw`, `?action=history`, `?curid=7` beside a title. Parameters that \
                      other sites add, such as `utm_source` and `fbclid`, are removed by a redirect. If the imported \
                      site info of the wiki says `first-letter`, a title with a small first letter is redirected to \
                      the title with a capital one, unless it has a page.",
        ..plain(
            "readPageOfHost",
            Reading,
            "/wiki/{title}",
            "The page under its public URL",
            &[
                answer(
                    302,
                    Empty,
                    &["Location", "Link", "Cache-Control"],
                    "Redirects to `?rev/latest/html`. With a query, answers like the page under `/v1/` with \
                     the same query.",
                ),
                problem(404, "No domain is configured for this host."),
            ],
        )
    },
];

/// Reads of the page at a time.
pub(super) const TIME_TRAVEL: &[Operation] = &[
    Operation {
        description: "Selects the revision with the greatest timestamp at or before the time. If several have this \
                      timestamp, selects the one with the highest number. Of this revision, selects the newest render \
                      at or before the time. If there is none, selects the oldest render. \
                      Renders whose body the archive left out are skipped.",
        ..get(
            "findPropertyAtTime",
            TimeTravel,
            "rev/{time}/{property}",
            "Find a property of the page at a time",
            &[
                redirect("Redirects to the render, by its tid. Not cacheable."),
                problem(404, "The page did not exist yet, or that render has no such property."),
            ],
        )
    },
    Operation {
        headers: &["Accept-Datetime"],
        description: "The timegate of RFC 7089. Selects among the revisions that have the property. Without a date, \
                      it selects the latest revision, or the newest one with the property if the latest has none. With \
                      a date before the first, it selects the first. It examines at most the 2,000 revisions nearest \
                      to the date.",
        ..get(
            "timegate",
            TimeTravel,
            "timegate/{property}",
            "Find the state of the page at a date",
            &[
                answer(
                    302,
                    Empty,
                    &["Location", "Vary", "Link", "Cache-Control"],
                    "Redirects to the render, by its tid.",
                ),
                problem(400, "Accept-Datetime is not a date."),
                problem(
                    404,
                    "No revision of the page has the property. Or the state was not found among the examined \
                     revisions; then a Link leads to the timemap.",
                ),
            ],
        )
    },
    Operation {
        headers: CONDITIONS,
        parameters: &["limit", "page"],
        description: "The timemap of RFC 7089: all states that the timegate can select, oldest first. One result \
                      page examines at most 2,000 revisions, so it may have few states or none although more follow.",
        ..get(
            "timemap",
            TimeTravel,
            "timemap/{property}",
            "All states of the page that have the property",
            &[
                answer(
                    200,
                    Other("application/link-format"),
                    CACHED_HEADERS,
                    "Links in the format of RFC 6690; the one with rel=\"next timemap\" leads to the next result page.",
                ),
                NOT_MODIFIED,
                BAD_LIST,
                problem(404, "No revision of the page has the property."),
                NO_MATCH,
            ],
        )
    },
];
