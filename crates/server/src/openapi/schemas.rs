//! The schemas of the bodies that clients send, and an example of each document and each body.

use serde_json::{Value, json};
use utoipa::openapi::{
    ArrayBuilder, KnownFormat, Object, ObjectBuilder, RefOr, SchemaFormat, Type, schema::AdditionalProperties,
};

use crate::openapi::parameters::{self, TID};

/// The schemas of the bodies that clients send, by name.
pub(crate) fn bodies() -> [(&'static str, Object); 6] {
    [
        ("NewRevision", new_revision()),
        ("NewRender", new_render()),
        ("BucketDefinition", bucket_definition()),
        ("Increment", increment()),
        ("TokenRequest", token_request()),
        ("BatchRequest", batch_request()),
    ]
}

/// Returns the name of the schema of a document. `name` is the name in the profile of the document.
pub(crate) fn of_document(name: &str) -> &'static str {
    match name {
        "render" => "Render",
        "revision" => "Revision",
        "revision-list" => "RevisionList",
        "written" => "Written",
        "bucket" => "Bucket",
        "bucket-list" => "BucketList",
        "entry-list" => "EntryList",
        "counter" => "Counter",
        "new-token" => "NewToken",
        "token-list" => "TokenList",
        "batch" => "BatchAnswer",
        other => panic!("the table of operations has a document without a description: {other}"),
    }
}

fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

fn date_time(description: &str) -> Object {
    text(description).format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).build()
}

const IF_LATEST: &str = "Write only if this is the latest revision (`0`: the page does not exist); else 409.";
const TIMESTAMP: &str =
    "The time of the edit or render, for imported history: not before 1990, and not in the future.";

/// The pattern of a revision in a field of a form: a number, perhaps after a title and `?rev/`.
const REV: &str = r"^([^?]+\?rev/)?[1-9][0-9]{0,18}$";

/// The pattern of a revision as in [`REV`], or of `0` for no revision.
const REV_OR_NONE: &str = r"^(0|([^?]+\?rev/)?[1-9][0-9]{0,18})$";

/// Allows the names of properties in addition to the other fields.
fn properties(form: ObjectBuilder) -> Object {
    let property =
        text("The bytes of a property, such as `html` or `wikitext`. At least one property, at most 64.")
            .content_media_type("application/octet-stream")
            .build();
    form.additional_properties(Some(AdditionalProperties::RefOr(RefOr::T(property.into())))).build()
}

/// The form of a new revision.
#[must_use]
pub(crate) fn new_revision() -> Object {
    let form = ObjectBuilder::new()
        .description(Some(
            "The fields of a new revision. Every name without a leading `_` is a property; \
             `_http-equiv.NAME` has the headers of property NAME, as a JSON object.",
        ))
        .property(
            "_rev",
            text("The number of the revision: `12345` or `Main_Page?rev/12345`.").pattern(Some(REV)),
        )
        .required("_rev")
        .property(
            "_parent",
            text("The parent revision, in the same forms as `_rev`; `0` for none.")
                .pattern(Some(REV_OR_NONE)),
        )
        .property("_timestamp", date_time(TIMESTAMP))
        .property("_user", text("The author; at most 4,096 bytes."))
        .property("_comment", text("The edit summary; at most 4,096 bytes."))
        .property("_minor", text("Marks the revision as minor.").enum_values(Some(["1"])))
        .property("_if_latest", text(IF_LATEST).pattern(Some(REV_OR_NONE)));
    properties(form)
}

/// The form of a new render.
#[must_use]
pub(crate) fn new_render() -> Object {
    let form = ObjectBuilder::new()
        .description(Some("The fields of a new render."))
        .property("_timestamp", date_time(TIMESTAMP))
        .property("_if_latest", text(IF_LATEST).pattern(Some(REV_OR_NONE)));
    properties(form)
}

/// The definition of a bucket.
#[must_use]
pub(crate) fn bucket_definition() -> Object {
    let number = |description: &str| {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .description(Some(description))
            .minimum(Some(1))
            .build()
    };
    ObjectBuilder::new()
        .description(Some("The definition of a bucket."))
        .property(
            "type",
            text("The type. It never changes.").enum_values(Some(["blob", "ordered-blob", "counter", "revisioned"])),
        )
        .required("type")
        .property(
            "content_type",
            text("The content type of entries that are stored without one. Without it: `application/octet-stream`. Only for the types `blob` and `ordered-blob`, like `ttl` and `max_size`."),
        )
        .property(
            "public",
            ObjectBuilder::new().schema_type(Type::Boolean).description(Some(
                "Whether every reader of the domain's pages may read the entries or counters. Without it: no. It has no \
                 effect for the type `revisioned`.",
            )),
        )
        .property("ttl", number("The number of seconds from the last PUT of an entry until it expires. Without it: never."))
        .property("max_size", number("The maximum size of a body, in bytes. Without it: that of the server."))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .build()
}

/// The increment of a counter.
#[must_use]
pub(crate) fn increment() -> Object {
    let number = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .description(Some("The number to add, which may be negative or 0. Without it: 1."));
    ObjectBuilder::new()
        .description(Some("The increment of a counter."))
        .property("increment", number)
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .build()
}

/// The request for a token.
#[must_use]
pub(crate) fn token_request() -> Object {
    let list = |description: &str, item: ObjectBuilder| {
        ArrayBuilder::new().items(item.build()).description(Some(description)).min_items(Some(1))
    };
    let name = || ObjectBuilder::new().schema_type(Type::String);
    let right = name().enum_values(Some(["read", "write", "import", "rewrite", "admin"]));
    ObjectBuilder::new()
        .description(Some("A new token."))
        .property("rights", list("The rights. No right implies another.", right))
        .required("rights")
        .property(
            "domains",
            list("The domains. A `*` at the end of a name matches any ending; `*` alone matches all.", name()),
        )
        .required("domains")
        .property("buckets", list("The buckets, in the same notation. Without them: all.", name()))
        .property(
            "expires",
            text("A time, such as `2030-01-31T00:00:00Z`, or a length of time, such as `90d`. Without it: never."),
        )
        .property("note", text("A note for people, in one line of at most 1,024 bytes."))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .build()
}

/// A request in a batch.
#[must_use]
pub(crate) fn batch_request() -> Object {
    let headers = text(
        "The headers, each a name and a text. Those that concern the connection, or that a request has \
                        from its batch, are 400: `Authorization`, `Host`, `Connection`, `Content-Length`, `Origin` and \
                        the like.",
    );
    let headers = headers.schema_type(Type::Object).additional_properties(Some(AdditionalProperties::RefOr(
        RefOr::T(ObjectBuilder::new().schema_type(Type::String).build().into()),
    )));
    ObjectBuilder::new()
        .description(Some("A request in a batch."))
        .property(
            "method",
            text("The method.").enum_values(Some(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])),
        )
        .required("method")
        .property(
            "path",
            text("The path with its query, such as `/v1/enwiki/page/Main_Page?rev/latest/html`."),
        )
        .required("path")
        .property("headers", headers)
        .property("body", text("The body, as a text in UTF-8."))
        .property("body_base64", text("The body in Base64 with padding, instead of `body`: for any bytes."))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .build()
}

fn properties_example() -> Value {
    json!({"html": {
        "content_type": "text/html; charset=utf-8",
        "size": 7021,
        "sha1": "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12",
        "href": format!("?rev/{TID}/html"),
    }})
}

/// An example of the schema with this name. `None` if the schema is only a part of others.
#[must_use]
pub(crate) fn example(schema: &str) -> Option<Value> {
    let example = match schema {
        "Render" => json!({
            "domain": "enwiki", "title": "Main_Page", "rev": 12345, "parent": 12344,
            "tid": TID, "timestamp": "2013-09-25T16:43:09.274Z",
            "user": "Ann", "comment": "typo", "minor": false,
            "href": format!("?rev/{TID}/"), "properties": properties_example(),
        }),
        "Revision" => json!({
            "rev": 12345, "parent": 12344, "timestamp": "2013-09-25T16:43:09Z",
            "user": "Ann", "comment": "typo", "minor": false, "href": "?rev/12345/",
            "renders": [{
                "tid": TID, "timestamp": "2013-09-25T16:43:09.274Z",
                "href": format!("?rev/{TID}/"), "properties": properties_example(),
            }],
        }),
        "RevisionList" => json!({
            "domain": "enwiki", "title": "Main_Page",
            "revisions": [{
                "rev": 12345, "parent": 12344, "timestamp": "2013-09-25T16:43:09Z", "tid": TID,
                "renders": 1, "size": 7021, "user": "Ann", "comment": "typo", "minor": false,
                "href": "?rev/12345/",
            }],
            "next": "?rev/&page=MTIzNDU",
        }),
        "Written" => json!({
            "message": "Created", "domain": "enwiki", "title": "Main_Page", "rev": 12345,
            "tid": TID, "href": format!("?rev/{TID}/"),
        }),
        "Problem" => json!({
            "type": "urn:rashomon:problem:not-found",
            "title": "Not found", "status": 404,
            "detail": "there is no page of this title",
            "instance": "/v1/enwiki/page/Main_Paige?rev/latest/html",
        }),
        "NewRevision" => json!({
            "_rev": "12345", "_parent": "12344", "_user": "Ann", "_comment": "typo", "html": "<p>Hello</p>",
        }),
        "NewRender" => json!({"html": "<p>Hello</p>"}),
        "BucketDefinition" => json!({"type": "blob", "content_type": "image/png", "ttl": 86400}),
        "Bucket" => json!({
            "type": "blob", "content_type": "image/png", "public": false, "ttl": 86400, "max_size": 1_048_576,
        }),
        "BucketList" => json!({
            "buckets": [{"name": "math-png", "type": "blob"}, {"name": "page", "type": "revisioned"}],
            "next": "?after=page",
        }),
        "EntryList" => json!({
            "entries": [{
                "key": "a.png", "content_type": "image/png", "size": 123, "etag": "\"2673f93636508318\"",
                "modified": "2026-11-23T20:00:00.5Z",
            }],
            "next": "?limit=1&after=a.png",
        }),
        "Increment" => json!({"increment": 5}),
        "Counter" => json!({"value": 17}),
        "TokenRequest" => json!({
            "rights": ["read", "write"], "domains": ["enwiki"], "expires": "90d", "note": "the bot of Ann",
        }),
        "NewToken" => json!({
            "id": parameters::TOKEN_ID,
            "token": format!("rashomon_{}_{}", parameters::TOKEN_ID, "0123456789abcdef".repeat(4)),
        }),
        "BatchRequest" => json!({
            "method": "GET", "path": "/v1/enwiki/page/Main_Page?rev/latest/html",
            "headers": {"If-None-Match": format!("\"12345/{TID}\"")},
        }),
        "BatchAnswer" => json!({
            "status": 200,
            "headers": {"content-type": "text/html; charset=utf-8", "etag": format!("\"12345/{TID}\"")},
            "body": "<p>Hello</p>",
        }),
        "TokenList" => json!({
            "tokens": [{
                "id": parameters::TOKEN_ID, "rights": ["read", "write"], "domains": ["enwiki"],
                "created": "2026-11-26T20:00:00Z", "expires": "2027-02-24T20:00:00Z",
                "last_used": "2026-11-26T20:05:00Z", "note": "the bot of Ann",
            }],
            "next": format!("?after={}", parameters::TOKEN_ID),
        }),
        _ => return None,
    };
    Some(example)
}
