//! Key-value buckets, their entries and their counters.

use super::{BAD_RANGE, BODY_REQUEST_HEADERS, NOT_MODIFIED, PART, answer, plain, problem};
use crate::openapi::operation::{
    Answer,
    Chapter::Buckets,
    Content::{Document, Empty, Problem, Property},
    Operation, RequestBody,
    Verb::{Delete, Post, Put},
};

const BUCKET: &str = "/v1/{domain}/{bucket}";
const ENTRY: &str = "/v1/{domain}/{bucket}/{key}";

const DEFINITION_HEADERS: &[&str] = &["ETag", "Cache-Control"];
const DEFINITION: Answer =
    answer(200, Document("bucket"), DEFINITION_HEADERS, "The definition, with its defaults.");
const NO_BUCKET: Answer = problem(404, "There is no such bucket.");
const FORBIDDEN: Answer = problem(403, "The token lacks the right, or the server refuses all writes.");
const NOT_ALLOWED: Answer =
    problem(403, "The token lacks the right `admin` on the bucket, or the server refuses all writes.");
const CONDITION_FAILED: Answer =
    problem(412, "A condition does not hold for what is stored. Nothing was changed.");
const DISK_FULL: Answer = answer(
    507,
    Problem,
    &["Retry-After"],
    "A disk of the server is full. Reads still work. Repeat the write when there is room.",
);

/// The headers of every `200` of an entry.
const ENTRY_HEADERS: &[&str] =
    &["ETag", "Last-Modified", "Vary", "Cache-Control", "Content-Security-Policy", "X-Content-Type-Options"];

/// The headers of an answer to a PUT of an entry.
const STORED_HEADERS: &[&str] = &["ETag", "Last-Modified", "Cache-Control"];

const CONDITIONS: &[&str] = &["If-None-Match", "If-Match", "If-Unmodified-Since"];

/// Operations on key-value buckets.
pub(super) const BUCKETS: &[Operation] = &[
    Operation {
        description: "The list has the buckets that the client may read, by name. `page` is among them if the domain \
                      has a page. `?limit=` is the maximum number of buckets, 1 to 500, and 50 by default. `?after=` \
                      is the name of a bucket, taken from `next`.",
        ..plain(
            "listBuckets",
            Buckets,
            "/v1/{domain}/",
            "List the buckets of a domain",
            &[
                answer(200, Document("bucket-list"), &["Cache-Control"], "The buckets."),
                problem(400, "The query is malformed."),
            ],
        )
    },
    Operation {
        headers: &["If-None-Match", "If-Match"],
        ..plain(
            "readBucket",
            Buckets,
            BUCKET,
            "The definition of a bucket",
            &[
                DEFINITION,
                NOT_MODIFIED,
                NO_BUCKET,
                problem(412, "If-Match does not name the current version."),
            ],
        )
    },
    Operation {
        verb: Put,
        body: Some(RequestBody::BucketDefinition),
        headers: CONDITIONS,
        description: "Creates the bucket. With `If-Match`, replaces the definition of a bucket that exists: all of it \
                      but the type. With `If-None-Match: *`, only creates it: a bucket that exists is 412, also with the \
                      same definition. A new `ttl` holds from the next PUT of a key. In a bucket of type `revisioned`, \
                      all requests for pages go to `/v1/{domain}/{bucket}/{title}` instead of \
                      `/v1/{domain}/page/{title}`. Needs the right `admin` on the bucket.",
        curl: r#"-X PUT -H 'Content-Type: application/json' -d '{"type": "blob"}'"#,
        ..plain(
            "putBucket",
            Buckets,
            BUCKET,
            "Create a bucket, or replace its definition",
            &[
                answer(201, Document("bucket"), DEFINITION_HEADERS, "The bucket was created."),
                answer(200, Document("bucket"), DEFINITION_HEADERS, "The bucket has this definition."),
                problem(
                    400,
                    "The name is reserved, or the body is not JSON. Or a member is unknown, repeated, not for this type, \
                     or of the wrong type.",
                ),
                NOT_ALLOWED,
                problem(409, "The bucket exists with another definition, which is in `definition`."),
                CONDITION_FAILED,
                problem(413, "The body has more than 16 KiB."),
                problem(415, "The body is not `application/json`, or has a Content-Encoding."),
                problem(422, "A number is out of range, or this server cannot create buckets of this type."),
                DISK_FULL,
            ],
        )
    },
    Operation {
        verb: Delete,
        headers: CONDITIONS,
        description: "The bucket and its entries or pages cannot be read any more. They are deleted from the store in \
                      the background. A bucket that is made again under the name is empty. Needs the right `admin` on the bucket. The bucket `page` cannot be deleted (405).",
        ..plain(
            "deleteBucket",
            Buckets,
            BUCKET,
            "Delete a bucket with its entries",
            &[
                answer(204, Empty, &["Cache-Control"], "The bucket is deleted."),
                NOT_ALLOWED,
                NO_BUCKET,
                CONDITION_FAILED,
                DISK_FULL,
            ],
        )
    },
    Operation {
        description: "The entries or counters of the bucket. `?limit=` is their maximum number, 1 to 500, and 50 by default. \
                      `?after=` is a key, taken from `next`. An entry that exists during the whole listing is listed \
                      exactly once. A bucket of type `ordered-blob` is listed in the byte order of its keys, and takes \
                      `gt` or `ge`, `lt` or `le`, `prefix`, and `order=desc`. `next` keeps these parameters. A listing \
                      reads only the entries that it returns.",
        ..plain(
            "listEntries",
            Buckets,
            "/v1/{domain}/{bucket}/",
            "List the entries or counters of a bucket",
            &[
                answer(200, Document("entry-list"), &["Cache-Control"], "The entries or counters."),
                problem(400, "The query is malformed, or is for buckets of another type."),
                NO_BUCKET,
            ],
        )
    },
    Operation {
        headers: BODY_REQUEST_HEADERS,
        description: "The answer has the headers that were stored with the entry. Where reading needs a right, \
                      `Cache-Control` is sent without `public` and `s-maxage`. No cache may use the answer after the \
                      entry has expired. A counter is answered with JSON, such as `{\"value\": 17}`, and `no-store`. It has \
                      no entity tag, and the headers of the request have no meaning. The value is 0 for a key that was \
                      never incremented.",
        ..plain(
            "readEntry",
            Buckets,
            ENTRY,
            "An entry, or the value of a counter",
            &[
                answer(200, Property, ENTRY_HEADERS, "The body of the entry, or the counter."),
                PART,
                NOT_MODIFIED,
                problem(404, "There is no such bucket or entry, or the entry has expired."),
                problem(412, "If-Match does not name the current version, or the entry was changed since."),
                BAD_RANGE,
            ],
        )
    },
    Operation {
        query: Some("blob/{bucket}/{key}"),
        headers: BODY_REQUEST_HEADERS,
        description: "An entry of a public bucket of type `blob` or `ordered-blob`, under the public URL of the wiki. The \
                      Host header selects the domain, by the configuration.",
        ..plain(
            "readEntryOfHost",
            Buckets,
            "/wiki/",
            "An entry under its public URL",
            &[
                answer(200, Property, ENTRY_HEADERS, "The body of the entry."),
                PART,
                NOT_MODIFIED,
                problem(
                    404,
                    "No domain is configured for this host. Or there is no such public bucket, or no such entry, or the \
                     entry has expired.",
                ),
                problem(412, "If-Match does not name the current version, or the entry was changed since."),
                BAD_RANGE,
            ],
        )
    },
    Operation {
        verb: Put,
        body: Some(RequestBody::Bytes),
        headers: &[
            "If-None-Match",
            "If-Match",
            "If-Unmodified-Since",
            "Content-Type",
            "Content-Language",
            "Content-Disposition",
            "Cache-Control",
        ],
        description: "`If-None-Match: *` only creates an entry, and `If-Match` only replaces the named version. Each PUT \
                      gives the entry a new entity tag. Headers that begin with `X-` are stored, too, unless they \
                      control servers or browsers (the setting `stored_headers`), or are added by proxies \
                      (`X-Forwarded-*`, `X-Real-IP`, `X-Request-ID`, `X-Amzn-*`, `X-Envoy-*`, and the setting \
                      `ignored_headers`). The names and values of the stored headers have \
                      at most 8 KiB together, `Content-Type` included. `Content-Language` and `Cache-Control` may be \
                      repeated, and every other stored header occurs once. The server ignores all other headers.",
        curl: "-T a.png -H 'Content-Type: image/png'",
        ..plain(
            "putEntry",
            Buckets,
            ENTRY,
            "Store an entry",
            &[
                answer(201, Empty, STORED_HEADERS, "The entry was created durably."),
                answer(200, Empty, STORED_HEADERS, "The entry was replaced durably."),
                problem(
                    400,
                    "The key or the value of a stored header is malformed, or a header is repeated that occurs once. Or \
                     the request has no body, or it has Content-Range or a query.",
                ),
                FORBIDDEN,
                NO_BUCKET,
                CONDITION_FAILED,
                problem(413, "The body is larger than the bucket or the server allows."),
                problem(415, "The body has a Content-Encoding."),
                problem(422, "The stored headers are too long."),
                DISK_FULL,
            ],
        )
    },
    Operation {
        verb: Post,
        body: Some(RequestBody::Increment),
        headers: &["Idempotency-Key"],
        description: "Adds a number to a counter, for buckets of type `counter`. Requests with the same \
                      `Idempotency-Key` within 24 hours count once, and get the first answer. The key belongs to one \
                      counter, and to the caller: the token, the subject of a JSON Web Token, or all clients without a \
                      token. The answer to a client without the right `read` does not have the value, and such a client \
                      adds at most a 32-bit integer (-2147483648 to 2147483647).",
        curl: "-d increment=5",
        ..plain(
            "incrementCounter",
            Buckets,
            ENTRY,
            "Increment a counter",
            &[
                answer(200, Document("counter"), &["Cache-Control"], "The counter with its new value."),
                answer(204, Empty, &["Cache-Control"], "Counted. The client may not read the value."),
                problem(
                    400,
                    "The key, the increment or the `Idempotency-Key` is malformed or repeated, or the request has a \
                     condition or a query.",
                ),
                problem(
                    403,
                    "The token lacks the right, or the right `read` for an increment beyond 32 bits. Or the server refuses \
                     all writes.",
                ),
                NO_BUCKET,
                problem(405, "The bucket has another type."),
                problem(413, "The body has more than 4 KiB."),
                problem(415, "The body is neither a form nor `application/json`, or has a Content-Encoding."),
                problem(422, "The counter would exceed the range of a 64-bit integer. Nothing was changed."),
                DISK_FULL,
            ],
        )
    },
    Operation {
        verb: Delete,
        headers: CONDITIONS,
        description: "A counter is 0 afterwards. Its idempotency keys are kept, so a repeated increment does not count. \
                      A condition for a counter is 400, since counters have no versions.",
        ..plain(
            "deleteEntry",
            Buckets,
            ENTRY,
            "Delete an entry or a counter",
            &[
                answer(
                    204,
                    Empty,
                    &["Cache-Control"],
                    "There is no entry or counter under this key any more.",
                ),
                FORBIDDEN,
                NO_BUCKET,
                CONDITION_FAILED,
                DISK_FULL,
            ],
        )
    },
];
