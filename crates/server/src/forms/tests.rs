use axum::body::Body;
use futures::stream;
use http::HeaderValue;
use prometheus_client::metrics::counter::Counter;

use super::*;

/// A complete field: its name, its headers, its bytes.
type WholeField = (String, Vec<(String, String)>, Vec<u8>);

fn limits(bytes: u64) -> BodyLimits {
    let time = std::time::Duration::from_secs(10);
    BodyLimits { bytes, idle: time, total: time, rate: 0 }
}

/// Reads a form whose bytes arrive in pieces of `piece`.
async fn read_in_pieces(content_type: &str, body: &[u8], piece: usize) -> Result<Vec<WholeField>, FormError> {
    let pieces: Vec<_> =
        body.chunks(piece).map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece))).collect();
    let body =
        RequestBody::new(Body::from_stream(stream::iter(pieces)), limits(1 << 20), Counter::default())?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
    let mut reader = FormReader::new(&headers, body)?;
    let mut fields = Vec::new();
    while let Some(field) = reader.next_field().await? {
        let mut value = Vec::new();
        while let Some(piece) = reader.chunk().await? {
            assert!(!piece.is_empty());
            value.extend_from_slice(&piece);
        }
        fields.push((field.name, field.headers, value));
    }
    // After the end, every further call returns nothing.
    assert!(reader.next_field().await?.is_none() && reader.chunk().await?.is_none());
    Ok(fields)
}

/// Reads a form in pieces of many sizes, and checks that the result does not depend on the sizes.
async fn read(content_type: &str, body: &[u8]) -> Result<Vec<WholeField>, FormError> {
    let whole = read_in_pieces(content_type, body, body.len().max(1)).await;
    for piece in 1..body.len().min(90) {
        let in_pieces = read_in_pieces(content_type, body, piece).await;
        assert_eq!(format!("{in_pieces:?}"), format!("{whole:?}"), "in pieces of {piece}");
    }
    whole
}

fn plain(fields: &[(&str, &str)]) -> Vec<WholeField> {
    fields.iter().map(|(name, value)| ((*name).to_owned(), Vec::new(), value.as_bytes().to_vec())).collect()
}

const URLENCODED: &str = "application/x-www-form-urlencoded";
const FORM_DATA: &str = "multipart/form-data; boundary=\"b d\"";
const MIXED: &str = "multipart/mixed; boundary=-x-";

#[tokio::test]
async fn urlencoded_forms_are_decoded() {
    for (body, fields) in [
        ("", vec![]),
        ("a=b", vec![("a", "b")]),
        ("a=b&c=d", vec![("a", "b"), ("c", "d")]),
        ("&a=b&&c=d&", vec![("a", "b"), ("c", "d")]),
        ("a", vec![("a", "")]),
        ("a&b=", vec![("a", ""), ("b", "")]),
        ("a=b=c", vec![("a", "b=c")]),
        ("_http-equiv.html=%7B%7d", vec![("_http-equiv.html", "{}")]),
        ("a+b=c+d%2Be%26", vec![("a b", "c d+e&")]),
        ("%C3%BC=%C3%BC", vec![("ü", "ü")]),
        ("a=ü", vec![("a", "ü")]),
    ] {
        assert_eq!(read(URLENCODED, body.as_bytes()).await.unwrap(), plain(&fields), "{body}");
    }
    let bytes = read(URLENCODED, b"a=%FF%00\xfe").await.unwrap();
    assert_eq!(bytes[0].2, [0xff, 0, 0xfe]);
}

#[tokio::test]
async fn malformed_urlencoded_forms_are_refused() {
    let long = "a".repeat(300) + "=1";
    for body in ["a=%", "a=%4", "a=%4&b=c", "a=%zz", "%4=1", "a%=1", "%FF=1", "=x", "a=1&=x", &long] {
        assert!(matches!(read(URLENCODED, body.as_bytes()).await, Err(FormError::Malformed(_))), "{body}");
    }
}

#[tokio::test]
async fn form_data_is_read() {
    let body = "preamble\r\n--b d\r\nContent-Disposition: form-data; name=\"html\"; filename=\"x.html\"\r\n\
                Content-Type: text/html\r\nX-Spec: 2\r\n\r\n<p>\r\n--b\r\n-- b d\r\n</p>\r\n\r\n--b d \t\r\n\
                content-disposition: FORM-DATA; name=_rev\r\n\r\n12345\r\n--b d\r\n\
                Content-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n--b d--\r\nepilogue --b d";
    let fields = read(FORM_DATA, body.as_bytes()).await.unwrap();
    let headers =
        vec![("content-type".to_owned(), "text/html".to_owned()), ("x-spec".to_owned(), "2".to_owned())];
    assert_eq!(fields[0], ("html".to_owned(), headers, b"<p>\r\n--b\r\n-- b d\r\n</p>\r\n".to_vec()));
    assert_eq!(fields[1..], plain(&[("_rev", "12345"), ("empty", "")]));
}

#[tokio::test]
async fn parts_are_named_by_content_id_or_by_content_disposition() {
    let body = "---x-\r\nContent-ID: <html>\r\nContent-Transfer-Encoding: binary\r\n\r\n\0\u{ff}\r\n---x-\r\n\
                Content-Disposition: attachment; name=\"meta\"\r\nContent-ID: <other>\r\nContent-Length: 2\r\n\r\n{}\
                \r\n---x---";
    for content_type in [MIXED, "Multipart/Related; type=\"text/html\"; boundary=\"-x-\""] {
        let fields = read(content_type, body.as_bytes()).await.unwrap();
        assert_eq!(fields, plain(&[("html", "\0\u{ff}"), ("meta", "{}")]));
    }
}

#[tokio::test]
async fn malformed_multipart_bodies_are_refused() {
    let part = "Content-Disposition: form-data; name=\"a\"\r\n\r\n";
    let large = format!("--b d\r\nx-long: {}\r\n{part}1\r\n--b d--", "a".repeat(20_000));
    let many = format!("--b d\r\n{}{part}1\r\n--b d--", "x-a: 1\r\n".repeat(40));
    for body in [
        "",
        "a=b",
        "--b d",
        "--b d\r\n",
        "--b d-",
        "--b dx\r\n",
        "--b d\n\nvalue\n--b d--",
        "--b d\r\n\r\nnameless\r\n--b d--",
        "--b d\r\nContent-Disposition: form-data\r\n\r\nnameless\r\n--b d--",
        "--b d\r\nContent-Disposition: attachment; name=\"a\"\r\n\r\n1\r\n--b d--",
        "--b d\r\nContent-Disposition: form-data; name=\"a\r\n\r\n1\r\n--b d--",
        "--b d\r\nContent-ID: <a>\r\n\r\n1\r\n--b d--",
        "--b d\r\nno header\r\n\r\n1\r\n--b d--",
        &format!("--b d\r\nContent-Type: a/b\r\nContent-Type: a/b\r\n{part}1\r\n--b d--"),
        &format!("--b d\r\n{part}truncated"),
        &format!("--b d\r\n{part}truncated\r\n"),
        &format!("--b d\r\n{part}truncated\r\n--b "),
        &format!("--b d\r\n{part}no last boundary\r\n--b d\r\n"),
        &large,
        &many,
    ] {
        let result = read_in_pieces(FORM_DATA, body.as_bytes(), 7).await;
        assert!(matches!(result, Err(FormError::Malformed(_))), "{result:?} of {body}");
    }
}

/// The limit must not depend on the pieces in which a body arrives.
#[tokio::test]
async fn spaces_after_a_boundary_are_limited() {
    for (spaces, is_accepted) in [(256, true), (257, false)] {
        let padding = " ".repeat(spaces);
        let part = "Content-Disposition: form-data; name=\"a\"\r\n\r\n1";
        let body = format!("--b d{padding}\r\n{part}\r\n--b d--");
        for piece in [1, body.len()] {
            let result = read_in_pieces(FORM_DATA, body.as_bytes(), piece).await;
            assert_eq!(result.is_ok(), is_accepted, "{spaces} spaces, {piece}: {result:?}");
        }
    }
}

#[tokio::test]
async fn endless_headers_are_refused() {
    // The headers are larger than the limit of the whole body. A parser without a limit for headers would fail with
    // `BodyError::TooLarge`.
    let body = format!("--b d\r\nx-long: {}", "a".repeat(2 << 20));
    let result = read_in_pieces(FORM_DATA, body.as_bytes(), 10_000).await;
    assert!(matches!(result, Err(FormError::Malformed(_))), "{result:?}");
}

#[tokio::test]
async fn other_encodings_are_refused() {
    for content_type in [
        "application/json",
        "multipart/alternative; boundary=x",
        "application/x-www-form-urlencoded; charset=latin1",
    ] {
        let result = read(content_type, b"a=b").await;
        assert!(matches!(result, Err(FormError::Unsupported(_))), "{content_type}: {result:?}");
    }
    for content_type in
        ["nonsense", "multipart/mixed", "multipart/mixed; boundary=", "multipart/mixed; boundary=\"a\u{9}\""]
    {
        let result = read(content_type, b"a=b").await;
        assert!(matches!(result, Err(FormError::Malformed(_))), "{content_type}: {result:?}");
    }
    let long = format!("multipart/mixed; boundary={}", "a".repeat(71));
    assert!(matches!(read(&long, b"").await, Err(FormError::Malformed(_))));
    let base64 = "---x-\r\nContent-ID: <a>\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n---x---";
    assert!(matches!(read(MIXED, base64.as_bytes()).await, Err(FormError::Unsupported(_))));
}

#[tokio::test]
async fn body_above_the_limit_is_refused() {
    let declared = RequestBody::new(Body::from(vec![0; 11]), limits(10), Counter::default());
    assert!(matches!(declared, Err(BodyError::TooLarge(10))));
    let pieces = stream::iter([6, 5].map(|length| Ok::<_, std::io::Error>(Bytes::from(vec![0; length]))));
    let mut body = RequestBody::new(Body::from_stream(pieces), limits(10), Counter::default()).unwrap();
    assert_eq!(body.next().await.unwrap().unwrap().len(), 6);
    assert!(matches!(body.next().await, Err(BodyError::TooLarge(10))));
}

#[tokio::test(start_paused = true)]
async fn missing_or_slow_body_times_out() {
    let nothing = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let mut body = RequestBody::new(nothing, limits(10), Counter::default()).unwrap();
    assert!(matches!(body.next().await, Err(BodyError::Idle(_))));
    let drip = stream::unfold((), |()| async {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b"x")), ()))
    });
    let mut body = RequestBody::new(Body::from_stream(drip), limits(1000), Counter::default()).unwrap();
    let mut pieces = 0;
    let end = loop {
        match body.next().await {
            Ok(_) => pieces += 1,
            Err(end) => break end,
        }
    };
    assert!(matches!(end, BodyError::TimedOut(_)), "{end:?}");
    assert_eq!(pieces, 3);
}
