//! The web page: `/` for browsers, and the page's files.
//!
//! The document is checked again by each request. The files it names have the version in their address and never change.

use crate::config::live_config::LiveConfig;
use crate::request::extract::Path;
use crate::request::paths;
use crate::request::request_headers;
use crate::response::Rejected;
use crate::routes::ollama::generation::ALIVE;
use ::page::PageFile;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use generate::error::{ApiError, ErrorKind};
use std::sync::Arc;

const FOR_EVER: &str = "public, max-age=31536000, immutable";
const CHECKED: &str = "no-cache";
const GZIP: &str = "gzip";
/// Header fields of all responses with a file.
const FIELDS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, ::page::POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::VARY, "accept, accept-encoding"),
];

/// `GET /`: the document for those who ask for a page by name, and otherwise the text by which Ollama's clients know that the
/// server runs.
pub(crate) async fn show_document(
    State(config): State<Arc<LiveConfig>>,
    headers: HeaderMap,
) -> Response<Body> {
    let wants_page = config.now().page && names(&headers, &header::ACCEPT, "text/html");
    match ::page::document().filter(|_| wants_page) {
        Some(document) => file_response(document, CHECKED, &headers),
        None => {
            let mut response = Response::new(Body::from(ALIVE));
            let fields = response.headers_mut();
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            fields.insert(header::CONTENT_TYPE, text);
            fields.insert(header::VARY, HeaderValue::from_static("accept"));
            response
        }
    }
}

/// `GET /page/{version}/{file}`.
pub(crate) async fn show_file(
    State(config): State<Arc<LiveConfig>>,
    Path((version, name)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, Rejected> {
    let is_there = config.now().page && version == ::page::VERSION;
    match ::page::find_file(&name).filter(|_| is_there) {
        Some(file) => Ok(file_response(file, FOR_EVER, &headers)),
        None => {
            let message = paths::not_found_message(uri.path());
            Err(ApiError::caller(ErrorKind::NotFound, "not_found", message).into())
        }
    }
}

fn file_response(
    file: &'static PageFile,
    caching: &'static str,
    headers: &HeaderMap,
) -> Response<Body> {
    let is_compressed = names(headers, &header::ACCEPT_ENCODING, GZIP);
    let form = if is_compressed { "-gzip" } else { "" };
    let tag = format!("\"{}{form}\"", file.digest);
    let mut response = if request_headers::matches_tag(headers, &tag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        body_response(file, is_compressed)
    };
    let fields = response.headers_mut();
    for (name, value) in FIELDS {
        fields.insert(name, HeaderValue::from_static(value));
    }
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        fields.insert(header::ETAG, tag);
    }
    response
}

fn body_response(file: &'static PageFile, is_compressed: bool) -> Response<Body> {
    let bytes = if is_compressed { file.gzip } else { file.plain };
    let mut response = Response::new(Body::from(bytes));
    let fields = response.headers_mut();
    fields.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(file.content_type),
    );
    if is_compressed {
        fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static(GZIP));
    }
    response
}

/// Whether a list in a header field has this item by name, with a quality other than 0.
fn names(headers: &HeaderMap, field: &HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(field).iter();
    let items = values.filter_map(|value| value.to_str().ok());
    items.flat_map(|items| items.split(',')).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_it = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(wanted));
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
        is_it && quality != Some(0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_of_a_list_is_found_by_name_and_quality() {
        let rows = [
            ("", false),
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000, br", false),
            ("*", false),
            ("gzipped", false),
        ];
        for (value, is_named) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(
                names(&headers, &header::ACCEPT_ENCODING, GZIP),
                is_named,
                "{value}"
            );
        }
    }
}
