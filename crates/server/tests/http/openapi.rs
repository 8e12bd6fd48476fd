//! Compares `/openapi.json` with the server: every described answer is provoked, and must match its
//! description. Also compares the document with a copy in the repository, so that no change of the API goes
//! unnoticed.

mod scenarios;
mod schema;

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use self::{
    scenarios::{SCENARIOS, Scenario, Servers},
    schema::check_against,
};
use crate::world::{Answer, World};

/// Returns `/openapi.json`.
async fn document() -> Value {
    World::new().await.get("/openapi.json").await.expect(200).json()
}

/// All operations, each with its name, its method, its URL and its description.
fn operations(document: &Value) -> Vec<(String, String, String, Value)> {
    let mut operations = Vec::new();
    for paths in ["paths", "x-ms-paths"] {
        for (url, item) in document[paths].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                operations.push((id, method.to_uppercase(), url.clone(), operation.clone()));
            }
        }
    }
    operations
}

#[tokio::test]
async fn document_equals_its_snapshot() {
    const BLESS: &str = "RASHOMON_BLESS";
    let served = World::new().await.get("/openapi.json").await.expect(200);
    assert_eq!(served.header("content-type"), "application/json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/openapi.json");
    let served = format!("{}\n", served.text());
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, &served).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let line = kept.lines().zip(served.lines()).position(|(kept, served)| kept != served);
    assert!(
        kept == served,
        "the API has changed, first {}: check whether existing clients still work, describe the change in \
         CHANGELOG.md, and run `{BLESS}=1 cargo test -p rashomon-server --test http openapi`",
        line.map_or_else(
            || "after the end of the shorter text".to_owned(),
            |line| format!("in line {}", line + 1)
        )
    );
}

#[tokio::test]
async fn document_is_complete() {
    let document = document().await;
    assert_eq!(document["openapi"], "3.1.0");
    let _: utoipa::openapi::OpenApi = serde_json::from_value(document.clone()).unwrap();
    check_references(&document, &document);
    let mut ids = BTreeSet::new();
    for paths in ["paths", "x-ms-paths"] {
        for (url, item) in document[paths].as_object().unwrap() {
            assert!(paths == "x-ms-paths" || !url.contains('?'), "{url}");
            for operation in item.as_object().unwrap().values() {
                assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{operation}");
                check_parameters(url, operation);
                let answers = operation["responses"].as_object().unwrap();
                assert_eq!(answers["default"]["$ref"], "#/components/responses/AnyProblem");
                for (status, answer) in answers.iter().filter(|(status, _)| *status != "default") {
                    assert!(answer["description"].as_str().unwrap().len() > 4, "{url} {status}");
                }
            }
        }
    }
}

/// Checks that every reference has a target.
fn check_references(document: &Value, part: &Value) {
    match part {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            members.values().for_each(|member| check_references(document, member));
        }
        Value::Array(items) => items.iter().for_each(|item| check_references(document, item)),
        _ => {}
    }
}

/// Checks that exactly the names in a URL are declared, and are required, and that every parameter has a description.
fn check_parameters(url: &str, operation: &Value) {
    let in_url: BTreeSet<&str> = url.split('{').skip(1).map(|rest| rest.split_once('}').unwrap().0).collect();
    let none = Vec::new();
    let parameters = operation["parameters"].as_array().unwrap_or(&none);
    let declared = parameters.iter().filter(|parameter| parameter["in"] == "path");
    let declared: BTreeSet<&str> = declared.map(|parameter| parameter["name"].as_str().unwrap()).collect();
    assert_eq!(declared, in_url, "{url}");
    for parameter in parameters {
        assert!(!parameter["description"].as_str().unwrap().is_empty());
        assert!(parameter["in"] != "path" || parameter["required"] == true, "{parameter}");
    }
}

#[tokio::test]
async fn examples_match_their_schemas() {
    let document = document().await;
    let mut with_example = BTreeSet::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for example in schema["examples"].as_array().into_iter().flatten() {
            check_against(&document, schema, example).unwrap_or_else(|error| panic!("{name}: {error}"));
            with_example.insert(name.as_str());
        }
    }
    let expected = [
        "BatchAnswer",
        "BatchRequest",
        "Bucket",
        "BucketDefinition",
        "BucketList",
        "Counter",
        "EntryList",
        "Increment",
        "NewRender",
        "NewRevision",
        "NewToken",
        "Problem",
        "Render",
        "Revision",
        "RevisionList",
        "TokenList",
        "TokenRequest",
        "Written",
    ];
    assert_eq!(with_example, expected.into());
}

#[tokio::test]
async fn every_answer_matches_its_description() {
    let document = document().await;
    let operations = operations(&document);
    let servers = Servers::start().await;
    for scenario in SCENARIOS {
        let Scenario { id, status, .. } = scenario;
        let (_, method, url, operation) = operations
            .iter()
            .find(|(known, ..)| known == id)
            .unwrap_or_else(|| panic!("{id} is not described"));
        assert!(scenario.is_of(method, url), "{id} is {method} {url}, and not {scenario:?}");
        let answer = servers.ask(scenario).await;
        assert_eq!(
            answer.status.as_u16(),
            *status,
            "{scenario:?}: {}",
            String::from_utf8_lossy(&answer.body)
        );
        let described = &operation["responses"][status.to_string()];
        check_answer(&document, described, &answer).unwrap_or_else(|error| panic!("{scenario:?}: {error}"));
    }
}

/// Checks that an answer has the described headers and content.
fn check_answer(document: &Value, described: &Value, answer: &Answer) -> Result<(), String> {
    for name in described["headers"].as_object().ok_or("it is not described")?.keys() {
        answer.headers.get(name.as_str()).ok_or(format!("it has no {name}: {:?}", answer.headers))?;
    }
    let content_type = answer.header("content-type");
    let Some(contents) = described["content"].as_object() else {
        return if answer.body.is_empty() { Ok(()) } else { Err("it has a body".to_owned()) };
    };
    let content = (contents.get(content_type).or_else(|| contents.get("*/*")))
        .ok_or_else(|| format!("its type is {content_type}"))?;
    match content.get("schema") {
        Some(schema) if content_type.starts_with("application/") && content_type.contains("json") => {
            let lines = answer
                .text()
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).map_err(|error| error.to_string()));
            // The schema of JSON lines says only that they are text.
            if content_type == "application/jsonl" {
                return lines.collect::<Result<Vec<_>, _>>().map(drop);
            }
            check_against(document, schema, &answer.json())
        }
        _ => Ok(()),
    }
}

#[tokio::test]
async fn every_described_answer_is_provoked() {
    let document = document().await;
    let described: BTreeSet<(String, String)> = operations(&document)
        .into_iter()
        .flat_map(|(id, _, _, operation)| {
            let statuses = operation["responses"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            statuses.into_iter().map(move |status| (id.clone(), status))
        })
        // The redirects have a test of their own.
        .filter(|(_, status)| status != "default" && status != "301")
        .collect();
    let provoked: BTreeSet<(String, String)> =
        SCENARIOS.iter().map(|scenario| (scenario.id.to_owned(), scenario.status.to_string())).collect();
    let missing: Vec<_> = described.difference(&provoked).collect();
    assert!(missing.is_empty(), "no scenario of {missing:?}");
}

#[tokio::test]
async fn every_title_and_key_in_another_spelling_is_redirected_as_described() {
    let document = document().await;
    let servers = Servers::start().await;
    let mut asked = 0;
    for (id, method, url, operation) in operations(&document) {
        if method != "GET" || !(url.contains("{title}") || url.contains("{key}")) {
            assert!(operation["responses"].get("301").is_none(), "{id}");
            continue;
        }
        let url = servers.fill(&url).replace("Main_Page", "Main%5FPage").replace("a.png", "a%2Epng");
        let answer = servers.open.get_with(&url, &[("host", "en.example.org")]).await.expect(301);
        check_answer(&document, &operation["responses"]["301"], &answer)
            .unwrap_or_else(|error| panic!("{id} {url}: {error}"));
        asked += 1;
    }
    assert!(asked > 15, "{asked}");
}

#[tokio::test]
async fn other_methods_are_refused_and_allowed_ones_listed() {
    let document = document().await;
    let servers = Servers::start().await;
    for (_, _, url, _) in operations(&document) {
        let Some((path, _)) = url.split_once('?') else { continue };
        if path == "/wiki/" {
            continue;
        }
        assert_eq!(path, "/v1/{domain}/page/{title}");
        let described = document["x-ms-paths"][&url].as_object().unwrap().keys();
        let mut methods: BTreeSet<String> = described.map(|method| method.to_uppercase()).collect();
        methods.extend(["HEAD".to_owned(), "OPTIONS".to_owned()]);
        for (method, status) in [("OPTIONS", 204), ("DELETE", 405), ("PATCH", 405)] {
            let answer = servers.open.request(method, &servers.fill(&url), &[], "").await.expect(status);
            let allowed: BTreeSet<String> = answer.header("allow").split(", ").map(str::to_owned).collect();
            assert_eq!(allowed, methods, "{method} {url}");
        }
    }
}

/// The header takes effect only where the document says so. Everywhere else it is refused, and changes nothing.
#[tokio::test]
async fn idempotency_key_is_refused_except_for_increments() {
    let document = document().await;
    let servers = Servers::start().await;
    let headers = [("idempotency-key", "1"), ("host", "en.example.org")];
    let before = servers.open.dump().await;
    let mut asked = BTreeSet::new();
    for (id, method, url, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let is_taken = parameters.into_iter().any(|parameter| parameter["name"] == "Idempotency-Key");
        assert_eq!(is_taken, id == "incrementCounter", "{id}");
        let url = servers.fill(&url);
        for method in [&*method, "HEAD", "OPTIONS", "PATCH"] {
            let answer = servers.open.request(method, &url, &headers, "").await;
            if is_taken && method == "POST" {
                continue;
            }
            // A method that the API does not have is refused first.
            let status = if method == "PATCH" { 405 } else { 400 };
            assert_eq!(answer.status.as_u16(), status, "{method} {url}: {answer:?}");
            if status == 400 && method != "HEAD" {
                answer.check_problem();
                assert!(answer.text().contains("takes the header Idempotency-Key"), "{}", answer.text());
            }
            asked.insert((method.to_owned(), url.clone()));
        }
    }
    assert_eq!(servers.open.dump().await, before);
    assert!(asked.len() > 80, "{}", asked.len());
    // For a POST to a key, the type of the bucket decides whether the header is refused.
    let answer = servers.open.request("POST", "/v1/enwiki/math-png/a.png", &headers, "").await.expect(400);
    assert!(answer.text().contains("takes the header Idempotency-Key"), "{}", answer.text());
    // Some pages for people, and paths without a resource, are not in the document.
    for url in [
        "/",
        "/pages/enwiki/",
        "/pages/enwiki/Main_Page",
        "/buckets/enwiki/docs/",
        "/assets/style.css",
        "/no",
    ] {
        servers.open.get_with(url, &headers).await.expect(400);
    }
}

#[tokio::test]
async fn document_names_every_type_of_a_bucket() {
    let document = document().await;
    let world = World::new().await;
    let types = &document["components"]["schemas"]["BucketDefinition"]["properties"]["type"]["enum"];
    let json = [("content-type", "application/json")];
    for name in types.as_array().unwrap() {
        let definition = format!(r#"{{"type": {name}}}"#);
        let url = format!("/v1/enwiki/{}", name.as_str().unwrap());
        world.request("PUT", &url, &json, definition).await.expect(201);
    }
    // The error for another type names all types.
    let refused = world.request("PUT", "/v1/enwiki/other", &json, r#"{"type": "other"}"#).await.expect(400);
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    let named: Vec<&str> = detail.split('"').skip(1).step_by(2).collect();
    let types: Vec<&str> = types.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(named, types, "{detail}");
}

#[tokio::test]
async fn url_below_wiki_answers_as_the_page_does() {
    let document = document().await;
    let servers = Servers::start().await;
    let host = [("host", "en.example.org")];
    for (_, method, url, _) in operations(&document) {
        if method != "GET" || !url.starts_with("/v1/{domain}/page/{title}") {
            continue;
        }
        let url = servers.fill(&url);
        let inside = servers.open.get(&url).await;
        let url_outside = url.replace("/v1/enwiki/page/", "/wiki/");
        let outside = servers.open.get_with(&url_outside, &host).await;
        // Links are URLs under the host and the path of the request.
        let moved = |text: &str| {
            let text = text.replace("http://localhost/", "http://en.example.org/");
            text.replace("/v1/enwiki/page/", "/wiki/")
        };
        assert_eq!((outside.status, outside.text()), (inside.status, moved(inside.text()).as_str()), "{url}");
        for name in ["location", "link"] {
            assert_eq!(outside.header(name), moved(inside.header(name)), "{url}");
        }
    }
}
