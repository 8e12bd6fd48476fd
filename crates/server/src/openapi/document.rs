//! Makes the OpenAPI document from the table of operations.
//!
//! A page's sub-resources are addressed in the query string as a path (`?rev/latest/html`), which the paths
//! of OpenAPI cannot express. So `paths` describes URLs without a query. `x-ms-paths`, an extension that
//! generators of clients know, has each sub-resource as a path of its own.

use utoipa::openapi::{
    Components, ComponentsBuilder, Content as MediaType, ContentBuilder, HttpMethod, InfoBuilder, License,
    OpenApi, OpenApiBuilder, Paths, Ref, RefOr, Required, Response, ResponseBuilder, Schema, Type,
    extensions::ExtensionsBuilder,
    path::{self, OperationBuilder, Parameter, ParameterBuilder, ParameterIn},
    request_body::{RequestBody as Sent, RequestBodyBuilder},
    schema::{ArrayBuilder, ObjectBuilder},
    security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    tag::TagBuilder,
};

use crate::openapi::{
    operation::{Answer, Chapter, Content, Operation, RequestBody, Verb, names_in},
    operations::operations,
    parameters::{self, ANSWER_HEADERS, REQUEST_HEADERS},
    schemas,
};

const DESCRIPTION: &str = "\
Stores every revision of every page, and every render of every revision. A *domain* is a wiki. A *page* has a title \
and belongs to a domain. A *revision* is one saved edit, with a number. A *render* is one rendering of a revision, \
identified by a tid. A render has *properties*, which are named bodies of bytes. A domain also has *key-value buckets*, which have entries under keys, without revisions.

The query string of a page's URL addresses its sub-resources **as a path**: `Main_Page?rev/latest/html`. It is not a \
list of keys and values, and each sub-resource has exactly one spelling. The paths of OpenAPI cannot express that. So \
`paths` has the page without a query, and the extension `x-ms-paths` has each sub-resource as a path of its own.

Every GET also works as HEAD. OPTIONS works on every path, and lists the methods in `Allow`. Every answer has an \
`x-request-id`. Every error is a problem (RFC 9457). Times are UTC. Links in JSON are relative to the page, so that \
they work under any prefix.

A content type may name a *spec version* by the parameter `profile`, as in `profile=\"urn:rashomon:render/1.0\"`. An \
`Accept` header may do the same. A version satisfies a request for an equal or lower minor version of the same major \
version; the patch number does not count. If no member of `Accept` that matches the media type can be satisfied, the \
answer is 406 with both versions. Members without a profile accept every version.";

/// The name of the security scheme for tokens.
const BEARER: &str = "token";

/// The maximum number of requests in a batch.
const MAX_BATCH_REQUESTS: usize = 500;

const NO_SCOPES: [&str; 0] = [];

/// The name of the answer that every operation has in addition to its own answers.
const ANY_PROBLEM: &str = "AnyProblem";

/// The answer that every GET of a title or a key has in addition to its own answers.
const MOVED: Answer = Answer {
    status: 301,
    meaning: "The title or the key is spelled in another way than `title` or `key` describes: redirects to the canonical \
              URL.",
    content: Content::Empty,
    headers: &["Location", "Cache-Control"],
};

/// Builds the document. `documents` has the schemas of the documents in answers, by name. A list has at most
/// `max_list_entries` entries.
///
/// # Panics
///
/// Panics if the table of operations names a document, a header, a variable or a parameter that has no description.
#[must_use]
pub(crate) fn document(documents: Vec<(String, RefOr<Schema>)>, max_list_entries: usize) -> OpenApi {
    let paths = |with_query: bool| {
        let chosen = operations().filter(|operation| operation.query.is_some() == with_query);
        paths(chosen, max_list_entries)
    };
    let with_query = serde_json::to_value(paths(true)).unwrap_or_default();
    let tags = Chapter::ALL
        .map(|chapter| TagBuilder::new().name(chapter.name()).description(Some(chapter.title())).build());
    let mut document = OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Rashomon")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(DESCRIPTION))
                .license(Some(License::new("MIT OR Apache-2.0"))),
        )
        .paths(paths(false))
        .components(Some(components(documents)))
        .security(Some([SecurityRequirement::default(), SecurityRequirement::new(BEARER, NO_SCOPES)]))
        .tags(Some(tags))
        .build();
    document.extensions = Some(ExtensionsBuilder::new().add("x-ms-paths", with_query).build());
    document
}

const fn method(verb: Verb) -> HttpMethod {
    match verb {
        Verb::Get => HttpMethod::Get,
        Verb::Post => HttpMethod::Post,
        Verb::Put => HttpMethod::Put,
        Verb::Delete => HttpMethod::Delete,
        Verb::Options => HttpMethod::Options,
    }
}

/// Converts operations, each under its URL.
fn paths<'a>(operations: impl Iterator<Item = &'a Operation>, max_list_entries: usize) -> Paths {
    operations.fold(Paths::new(), |mut paths, of| {
        paths.add_path_operation(of.url_template(), vec![method(of.verb)], operation(of, max_list_entries));
        paths
    })
}

/// Converts one operation.
fn operation(of: &Operation, max_list_entries: usize) -> path::Operation {
    let description = Some(of.description).filter(|text| !text.is_empty());
    let mut operation = OperationBuilder::new()
        .tag(of.chapter.name())
        .operation_id(Some(of.id))
        .summary(Some(of.summary))
        .description(description)
        .request_body(of.body.map(request_body));
    for name in names_in(of.path).chain(names_in(of.query.unwrap_or_default())) {
        operation = operation.parameter(url_parameter(name));
    }
    for name in of.parameters {
        let schema = parameters::list_parameter_schema(name, max_list_entries);
        let parameter =
            parameter(name, ParameterIn::Query, parameters::list_parameter(name)).schema(Some(schema));
        operation = operation.parameter(parameter);
    }
    for name in of.headers {
        operation = with_header(operation, name);
    }
    for answer in of.answers {
        operation = operation.response(answer.status.to_string(), response(answer));
    }
    if of.verb == Verb::Get && names_in(&of.url_template()).any(|name| ["title", "key"].contains(&name)) {
        operation = operation.response(MOVED.status.to_string(), response(&MOVED));
    }
    operation.response("default", Ref::from_response_name(ANY_PROBLEM)).build()
}

fn parameter(name: &str, place: ParameterIn, meaning: &str) -> ParameterBuilder {
    ParameterBuilder::new().name(name).parameter_in(place).description(Some(meaning))
}

fn url_parameter(name: &str) -> Parameter {
    let variable = parameters::url_variable(name);
    parameter(variable.name, ParameterIn::Path, variable.meaning)
        .required(Required::True)
        .schema(Some(variable.schema()))
        .example(Some(variable.example.into()))
        .build()
}

/// Adds a header as a parameter. Leaves out `Content-Type`, which OpenAPI ignores as a parameter: it is part of the
/// body.
fn with_header(operation: OperationBuilder, wanted: &str) -> OperationBuilder {
    match REQUEST_HEADERS.iter().find(|(name, ..)| *name == wanted) {
        Some((name, meaning, example)) if *name != "Content-Type" => operation.parameter(
            parameter(name, ParameterIn::Header, meaning)
                .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
                .example(Some((*example).into())),
        ),
        Some(_) => operation,
        None => panic!("the table of operations has a header without a description: {wanted}"),
    }
}

/// Converts an answer.
fn response(answer: &Answer) -> Response {
    let mut response = ResponseBuilder::new()
        .description(answer.meaning)
        .header_ref("x-request-id", header_ref("x-request-id"));
    for header in answer.headers {
        response = response.header_ref(*header, header_ref(header));
    }
    if let Some((media_type, content)) = media_type(answer.content) {
        response = response.content(media_type, content);
    }
    response.build()
}

fn header_ref(name: &str) -> Ref {
    Ref::new(format!("#/components/headers/{name}"))
}

fn any_problem() -> Response {
    response(&Answer {
        status: 0,
        meaning: "A problem that any request may get: a malformed URL, or a missing or repeated Host header \
                  (400), a missing token or one that is not valid (401), a missing right or a write from a \
                  web page of another origin (403), an unsupported method (405), a \
                  head or a body that did not arrive in time (408), erased content (410), a URL that is \
                  too long (414), a spec version that `Accept` names and that cannot be returned (406), a host that is not this server (421), too many tokens that are not valid \
                  (429), headers that are too large (431), \
                  a store that does not answer, or no free memory for the body (503), and for writes a \
                  full disk (507).",
        content: Content::Problem,
        headers: &[],
    })
}

/// The content of an answer, with its media type.
fn media_type(content: Content) -> Option<(String, MediaType)> {
    let of_schema = |schema: &str| ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build();
    let media = match content {
        Content::Empty => return None,
        Content::Property => return Some(("*/*".to_owned(), MediaType::default())),
        // The answer to a batch of requests is the only document that is an array.
        Content::Document("batch") => list_of(schemas::of_document("batch")),
        Content::Document(name) => of_schema(schemas::of_document(name)),
        Content::Problem => of_schema("Problem"),
        Content::Other("application/json") => MediaType::default(),
        Content::Other(_) => {
            ContentBuilder::new().schema(Some(ObjectBuilder::new().schema_type(Type::String))).build()
        }
    };
    content.media_type().map(|media_type| (media_type, media))
}

/// Describes an array of documents.
fn list_of(schema: &str) -> MediaType {
    let array = ArrayBuilder::new().items(Ref::from_schema_name(schema)).max_items(Some(MAX_BATCH_REQUESTS));
    ContentBuilder::new().schema(Some(array)).build()
}

fn request_body(body: RequestBody) -> Sent {
    const ENCODINGS: [&str; 4] =
        ["application/x-www-form-urlencoded", "multipart/form-data", "multipart/mixed", "multipart/related"];
    let form = |schema: &str| {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build();
        ENCODINGS.iter().fold(
            RequestBodyBuilder::new().description(Some(
                "A form in one of four encodings, equal in effect. In a multipart body, a part's own Content-Type \
                 is kept with the property.",
            )),
            |body, encoding| body.content(*encoding, content.clone()),
        )
    };
    let bytes = |meaning: &str| {
        RequestBodyBuilder::new().description(Some(meaning)).content("*/*", MediaType::default())
    };
    match body {
        RequestBody::NewRevision => form("NewRevision"),
        RequestBody::NewRender => form("NewRender"),
        RequestBody::Bytes => bytes("The bytes, stored unchanged."),
        RequestBody::Export => bytes(
            "An export: MediaWiki's XML, or JSON lines; plain, or as .gz, .bz2, .xz, .lzma, .zst, .7z. Its \
             Content-Type does not matter.",
        ),
        RequestBody::Batch => RequestBodyBuilder::new()
            .description(Some("The requests."))
            .content("application/json", list_of("BatchRequest")),
        RequestBody::BucketDefinition => {
            RequestBodyBuilder::new().description(Some("The definition of the bucket.")).content(
                "application/json",
                ContentBuilder::new().schema(Some(Ref::from_schema_name("BucketDefinition"))).build(),
            )
        }
        RequestBody::Increment => {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Increment"))).build();
            let description = "A form or JSON, equal in effect. Without a body, the increment is 1.";
            ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"]
                .iter()
                .fold(RequestBodyBuilder::new().description(Some(description)), |body, encoding| {
                    body.content(*encoding, content.clone())
                })
        }
        RequestBody::TokenRequest => {
            RequestBodyBuilder::new().description(Some("What the token grants.")).content(
                "application/json",
                ContentBuilder::new().schema(Some(Ref::from_schema_name("TokenRequest"))).build(),
            )
        }
    }
    .required(Some(if body == RequestBody::Increment { Required::False } else { Required::True }))
    .build()
}

fn components(documents: Vec<(String, RefOr<Schema>)>) -> Components {
    let mut components = ComponentsBuilder::new().response(ANY_PROBLEM, any_problem());
    let bodies = schemas::bodies().map(|(name, schema)| (name.to_owned(), schema.into()));
    for (name, mut schema) in documents.into_iter().chain(bodies) {
        if let (RefOr::T(Schema::Object(object)), Some(example)) = (&mut schema, schemas::example(&name)) {
            object.examples.push(example);
        }
        components = components.schema(name, schema);
    }
    for (name, meaning, example) in ANSWER_HEADERS {
        components = components.header(name, parameters::header(meaning, example));
    }
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "A token of this server, or a JSON Web Token. What is open to everybody needs none.",
        ))
        .build();
    components.security_scheme(BEARER, SecurityScheme::Http(bearer)).build()
}
