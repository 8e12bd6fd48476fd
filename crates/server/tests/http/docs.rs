//! Tests that `/docs` describes every operation, and that its examples of reads work when they are pasted.

use http::Method;

use crate::{
    html::{addresses, attributes, check_page, text_of, unescape},
    world::World,
};

async fn docs(world: &World, headers: &[(&str, &str)]) -> String {
    let answer = world.get_with("/docs", headers).await.expect(200);
    check_page("/docs", &answer);
    answer.text().to_owned()
}

/// The commands on the page.
fn commands(page: &str) -> Vec<String> {
    let pieces = page.split("<pre class=\"command\" tabindex=\"0\"><code>").skip(1);
    pieces.filter_map(|piece| piece.split_once("</code>")).map(|(command, _)| unescape(command)).collect()
}

#[tokio::test]
async fn every_operation_of_openapi_json_is_on_the_docs_page() {
    let world = World::new().await;
    let page = docs(&world, &[]).await;
    let anchors = attributes(&page, "id");
    let document = world.get("/openapi.json").await.expect(200).json();
    let mut operations = 0;
    for paths in ["paths", "x-ms-paths"] {
        for operation in
            document[paths].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values())
        {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            assert!(anchors.contains(&id), "{id}");
            operations += 1;
        }
    }
    assert!(operations > 25, "{operations}");
    for name in document["components"]["schemas"].as_object().unwrap().keys() {
        let shown = [
            "Render",
            "Revision",
            "RevisionList",
            "Written",
            "Bucket",
            "BucketList",
            "EntryList",
            "NewToken",
            "TokenList",
            "Problem",
        ];
        if shown.contains(&name.as_str()) {
            assert!(anchors.contains(&format!("document-{name}")), "{name}");
        }
    }
    // Every link to an anchor has exactly one target.
    for address in addresses(&page).iter().filter_map(|address| address.strip_prefix('#')) {
        assert_eq!(anchors.iter().filter(|anchor| *anchor == address).count(), 1, "{address}");
    }
    world.follow("/docs", &page).await;
}

#[tokio::test]
async fn problems_of_answers_are_described() {
    let world = World::new().await;
    let page = docs(&world, &[]).await;
    let anchors = attributes(&page, "id");
    for url in ["/nowhere", "/v1/enwiki/page/A?rev/0/", "/v1/enwiki/page/A?rev/"] {
        let problem = world.get(url).await.json();
        let name =
            problem["type"].as_str().unwrap().strip_prefix(rashomon_protocol::TYPE_BASE).unwrap().to_owned();
        assert!(anchors.contains(&format!("problem-{name}")), "{name}");
        assert!(text_of(&page).contains(problem["title"].as_str().unwrap()));
    }
}

#[tokio::test]
async fn examples_of_reads_work_when_pasted() {
    let world = World::new().await;
    for title in ["Main_Page", "Another"] {
        world.post(&format!("/v1/aawiki/page/{title}?rev/"), "_rev=7&html=x").await.expect(201);
    }
    world.post("/v1/bbwiki/page/Main_Page?rev/", "_rev=9&html=x").await.expect(201);
    let json = [("content-type", "application/json")];
    world.request("PUT", "/v1/aawiki/images", &json, r#"{"type": "blob"}"#).await.expect(201);
    world.request("PUT", "/v1/aawiki/images/%C3%BC%20b", &[], "x").await.expect(201);
    let page = docs(&world, &[("host", "wiki.example.org:7231")]).await;
    let mut reads = 0;
    for command in commands(&page) {
        let url = command.split('\'').nth(1).unwrap();
        let path = url.strip_prefix("http://wiki.example.org:7231").unwrap_or_else(|| panic!("{command}"));
        let method = match command.as_str() {
            command if [" -d ", "--data", " -T ", "-X DELETE"].iter().any(|part| command.contains(part)) => {
                continue;
            }
            command if command.contains("-X OPTIONS") => Method::OPTIONS,
            _ => Method::GET,
        };
        // The host of these requests, `localhost`, has no domain. The bucket of the examples has no pages.
        if path.starts_with("/wiki/") || path.starts_with("/buckets/") {
            continue;
        }
        let status = world.request(method.as_str(), path, &[], "").await.status;
        assert!(status.is_success() || status.is_redirection(), "{command}: {status}");
        assert_eq!(command.contains(" -L "), status.is_redirection(), "{command}: {status}");
        reads += 1;
    }
    assert!(reads > 20, "{reads}");
}

#[tokio::test]
async fn examples_name_the_server_as_the_client_does() {
    let world = World::new().await;
    let first = async |headers: &[(&str, &str)]| commands(&docs(&world, headers).await).remove(0);
    assert_eq!(first(&[]).await, "curl 'http://localhost/v1/enwiki/page/Main_Page?rev/latest/html'");
    let encrypted = [("host", "[::1]:443"), ("x-forwarded-proto", "https")];
    assert_eq!(first(&encrypted).await, "curl 'https://[::1]:443/v1/enwiki/page/Main_Page?rev/latest/html'");
    for host in ["'; rm -rf ~ #", "<script>", "a b", "`id`", "a\"b"] {
        world.get_with("/docs", &[("host", host)]).await.expect(400);
    }
    // Such a host is well-formed, but must not get into a command.
    for host in ["'$(id)'", "$(id)", "a;b", "a&b"] {
        let command = first(&[("host", host)]).await;
        assert!(command.starts_with("curl 'http://localhost/"), "{host}: {command}");
    }
}

#[tokio::test]
async fn limits_are_those_of_this_server() {
    let settings = rashomon_server::Settings { max_body_bytes: 3 << 20, ..Default::default() };
    let world = World::with(settings).await;
    let text = text_of(&docs(&world, &[]).await);
    for expected in
        ["A body 3 MiB", "small application/octet-stream one per render 10 bytes", "Entries of a list 500"]
    {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}
