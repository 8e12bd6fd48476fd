use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};

use super::*;

/// Starts a server that reads one request up to the text `end`, and sends `answer`. Returns its address, and the
/// request.
async fn server(end: &'static str, answer: String) -> (ServerUrl, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/prefix", listener.local_addr().unwrap()).parse().unwrap();
    let request = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(end.as_bytes()) {
            request.push(stream.read_u8().await.unwrap());
        }
        // A client that has received too much closes the connection.
        let _ = stream.write_all(answer.as_bytes()).await;
        String::from_utf8(request).unwrap()
    });
    (url, request)
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

async fn fails(answer: String) -> String {
    let (url, _request) = server("\r\n\r\n", answer).await;
    let mut client = connect(&url).await.unwrap();
    client.json(Method::GET, "/v1/tokens", None).await.unwrap_err().to_string()
}

#[tokio::test]
async fn document_is_sent_and_the_answer_parsed() {
    let (url, request) = server("}", answer("201 Created", r#"{"id":"a"}"#)).await;
    let mut client = connect(&url).await.unwrap();
    let body = json!({ "rights": ["read"] });
    let (status, document) = client.json(Method::POST, "/v1/tokens", Some(&body)).await.unwrap();
    assert_eq!((status, document), (StatusCode::CREATED, json!({ "id": "a" })));
    let request = request.await.unwrap();
    assert!(request.starts_with("POST /prefix/v1/tokens HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("content-type: application/json\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"rights\":[\"read\"]}"), "{request}");
}

#[tokio::test]
async fn request_and_answer_may_have_no_body() {
    let (url, request) = server("\r\n\r\n", answer("204 No Content", "")).await;
    let mut client = connect(&url).await.unwrap();
    let answered = client.json(Method::DELETE, "/v1/tokens/a", None).await.unwrap();
    assert_eq!(answered, (StatusCode::NO_CONTENT, Value::Null));
    let request = request.await.unwrap();
    assert!(
        request.starts_with("DELETE /prefix/v1/tokens/a ") && !request.contains("content-type"),
        "{request}"
    );
}

#[tokio::test]
async fn refusal_is_returned_with_its_status() {
    let (url, _request) = server("\r\n\r\n", answer("403 Forbidden", r#"{"status":403}"#)).await;
    let mut client = connect(&url).await.unwrap();
    let answered = client.json(Method::GET, "/v1/tokens", None).await.unwrap();
    assert_eq!(answered, (StatusCode::FORBIDDEN, json!({ "status": 403 })));
}

#[tokio::test]
async fn answer_that_is_not_json_or_too_large_is_an_error() {
    let error = fails(answer("502 Bad Gateway", "<p>no")).await;
    assert!(error.contains("502") && error.contains("is it a rashomon server?"), "{error}");
    let error = fails(answer("200 OK", &format!("\"{}\"", "x".repeat(2 << 20)))).await;
    assert!(error.contains("more than a mebibyte"), "{error}");
    let error = fails(String::new()).await;
    assert!(error.contains("GET /v1/tokens at http://127.0.0.1"), "{error}");
}

#[tokio::test]
async fn answer_that_does_not_come_is_an_error() {
    let (url, _request) = server("never", String::new()).await;
    let mut client = connect(&url).await.unwrap();
    tokio::time::pause();
    let error = client.json(Method::GET, "/v1/tokens", None).await.unwrap_err().to_string();
    assert!(error.contains("no answer came within 60 s"), "{error}");
}

#[test]
fn only_a_token_is_accepted_and_it_is_not_shown() {
    let token = token_of(Some(b"secret".to_vec())).unwrap().unwrap();
    assert_eq!(token.header(), "Bearer secret");
    assert_eq!(token_of(None).unwrap(), None);
    for value in ["", "secret ", "secret\n", "secr\u{e9}t"] {
        let error = token_of(Some(value.as_bytes().to_vec())).unwrap_err();
        assert!(matches!(error, ClientError::Usage(_)), "{error:?}");
        assert!(!error.to_string().contains("secr"), "{error}");
    }
}

#[test]
fn reason_of_a_refusal_is_the_detail_of_the_problem_document() {
    assert_eq!(refusal_reason(&json!({"status": 403, "detail": "no right"})), "no right");
    for other in [Value::Null, json!([1]), json!("text"), json!({"detail": 1})] {
        let reason = refusal_reason(&other);
        assert_eq!(reason, "the answer gives no reason; is it a rashomon server?", "{other}");
    }
    let long = refusal_reason(&json!({"detail": "x".repeat(2 * MAX_ERROR_BYTES)}));
    assert_eq!(long.len(), MAX_ERROR_BYTES);
}
