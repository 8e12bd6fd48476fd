//! Compares the URLs, fields and headers in the documents with the router and `/openapi.json`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::world::{PAGE, World};

/// The documents for users, by their names.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = folder.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let named = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.file_name().unwrap().to_str().unwrap().to_owned(), text)
    };
    [root.join("README.md")].into_iter().chain(pages).map(named).collect()
}

/// The inline code of a text. Fenced blocks are skipped.
fn inline_code(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.split("```").step_by(2);
    lines.flat_map(|part| part.split('`').skip(1).step_by(2))
}

/// Checks that the syntax of a query of a page is valid: the answer has the status 200, 302 or 404.
async fn check_query(world: &World, document: &str, query: &str) {
    let tid = "8f545ba0-2601-11e3-885c-4160918f0fb9";
    let names = [("{tid}", tid), ("{rev}", "1"), ("{property}", "html"), ("{time}", "2024-01-02T00:00:00Z")];
    let query = names.iter().fold(query.to_owned(), |query, (name, value)| query.replace(name, value));
    let answer = world.get(&format!("{PAGE}?{query}")).await;
    let status = answer.status.as_u16();
    assert!([200, 302, 404].contains(&status), "{document}: ?{query} is answered with {status}");
}

#[tokio::test]
async fn queries_in_the_documents_are_sub_resources() {
    let world = World::new().await;
    world.revision("_rev=1&html=x").await;
    let mut queries = 0;
    for (document, text) in documents() {
        let urls = text.split("'http://127.0.0.1:7231/v1/").skip(1);
        let of_pages = urls.filter_map(|url| url.split('\'').next()?.split_once('?'));
        let of_pages = of_pages.filter(|(path, _)| path.contains("/page/"));
        let in_urls = of_pages.map(|(_, query)| query);
        let in_lines = inline_code(&text).filter_map(|code| code.strip_prefix('?'));
        for query in in_urls.chain(in_lines.filter(|query| !query.contains('='))) {
            check_query(&world, &document, query).await;
            queries += 1;
        }
    }
    assert!(queries > 5, "only {queries} queries were found");
}

#[tokio::test]
async fn documented_fields_and_conditions_exist() {
    let document = World::new().await.get("/openapi.json").await.expect(200).json();
    let fields: BTreeSet<&str> = ["NewRevision", "NewRender"]
        .iter()
        .flat_map(|schema| {
            document["components"]["schemas"][schema]["properties"].as_object().unwrap().keys()
        })
        .map(String::as_str)
        .collect();
    let parameters = parameters_of_writes(&document);
    for (name, text) in documents() {
        // `_` alone is the character, not a field.
        for code in inline_code(&text).filter(|code| code.starts_with('_') && *code != "_") {
            assert!(fields.contains(code), "{name}: no write has a field {code}");
        }
        for paragraph in text.split("\n\n").filter(|paragraph| paragraph.contains("onditional write")) {
            for header in inline_code(paragraph).filter_map(|code| code.split(':').next()) {
                assert!(
                    !header.starts_with("If-") || parameters.contains(header),
                    "{name}: no write has a condition {header}"
                );
            }
        }
    }
}

/// The names of the parameters that a POST or a PUT accepts, among them the headers of conditions.
fn parameters_of_writes(document: &Value) -> BTreeSet<String> {
    let mut headers = BTreeSet::new();
    for paths in ["paths", "x-ms-paths"] {
        for item in document[paths].as_object().unwrap().values() {
            for method in ["post", "put"] {
                for parameter in item[method]["parameters"].as_array().into_iter().flatten() {
                    let reference =
                        parameter["$ref"].as_str().map(|reference| reference.trim_start_matches('#'));
                    let parameter = reference.and_then(|path| document.pointer(path)).unwrap_or(parameter);
                    headers.extend(parameter["name"].as_str().map(str::to_owned));
                }
            }
        }
    }
    headers
}
