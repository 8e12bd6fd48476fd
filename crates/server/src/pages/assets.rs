//! The files that the HTML pages need. They are part of the binary.

use axum::response::Response;
use http::{HeaderMap, HeaderValue};

use crate::{answer::document, caching::Caching, problem::Result};

const STYLE: &str = include_str!("../../assets/style.css");
const ICON: &str = include_str!("../../assets/icon.svg");

/// `/assets/style.css`
pub(super) async fn style(headers: HeaderMap) -> Result<Response> {
    answer(&headers, "text/css; charset=utf-8", STYLE)
}

/// `/assets/icon.svg`
pub(super) async fn icon(headers: HeaderMap) -> Result<Response> {
    answer(&headers, "image/svg+xml", ICON)
}

fn answer(request: &HeaderMap, content_type: &'static str, text: &str) -> Result<Response> {
    let content_type = HeaderValue::from_static(content_type);
    document(request, content_type, text.as_bytes().to_vec(), Caching::Mutable)
}
