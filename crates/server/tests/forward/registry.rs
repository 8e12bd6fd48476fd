//! The metrics of forwarded requests.

use crate::{
    backends::{Recorder, refusing_url},
    http::get,
    server::{Server, entry},
};

#[tokio::test]
async fn metrics_have_the_requests_and_the_servers_of_each_prefix() {
    let backend = Recorder::start();
    let down = refusing_url().await;
    let server = Server::forwarding(vec![entry("/enwiki", [down.clone(), backend.url()])]).await;
    for path in
        ["/v1/enwiki/page/A?200", "/v1/enwiki/page/A?404", "/v1/enwiki/page/A?503", "/v1/dewiki/page/A?rev/"]
    {
        get(server.address, path).await;
    }
    let metrics = get(server.address, "/metrics").await;
    let up = backend.url();
    for line in [
        "rashomon_forward_requests_total{prefix=\"/enwiki\",outcome=\"2xx\"} 1".to_owned(),
        "rashomon_forward_requests_total{prefix=\"/enwiki\",outcome=\"4xx\"} 1".to_owned(),
        "rashomon_forward_requests_total{prefix=\"/enwiki\",outcome=\"5xx\"} 1".to_owned(),
        format!(
            "rashomon_forward_attempts_total{{prefix=\"/enwiki\",server=\"{up}\",outcome=\"answered\"}} 3"
        ),
        format!(
            "rashomon_forward_attempts_total{{prefix=\"/enwiki\",server=\"{down}\",outcome=\"unreachable\"}} 1"
        ),
        format!("rashomon_forward_left_out{{prefix=\"/enwiki\",server=\"{down}\"}} 1"),
        format!("rashomon_forward_left_out{{prefix=\"/enwiki\",server=\"{up}\"}} 0"),
    ] {
        assert!(metrics.text().lines().any(|found| found == line), "{line}\n{}", metrics.text());
    }
    assert!(!metrics.text().contains("dewiki"), "only configured prefixes are labels");
}
