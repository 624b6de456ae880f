//! A request's headers and body, within limits of size and time.

use crate::config::ServerConfig;
use crate::gateway::admission::Class;
use crate::wire::clock;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use generate::error::{ApiError, ErrorKind, Problem};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::time::{Duration, Instant};

/// The caller's patience at most: a day. More is no deadline.
pub(crate) const PATIENCE_MS_MAX: u64 = 24 * 60 * 60 * 1000;
/// The header that tells it.
const PATIENCE: &str = "request-timeout-ms";
/// The header that tells how urgent a request is.
const PRIORITY: &str = "x-priority";

/// The header that browsers alone send.
const FETCHED_FROM: &str = "sec-fetch-site";

/// Refuses a web page's body that does not call itself JSON: it can send other types without its browser asking
/// first, and then the browser says where it came from. Programs need not call their JSON so (`curl -d` calls it a
/// form).
pub(crate) fn expect_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let from_a_page = headers.contains_key(header::ORIGIN) || headers.contains_key(FETCHED_FROM);
    if !from_a_page || is_json(headers) {
        return Ok(());
    }
    let words = "the body must be JSON: send the header content-type: application/json";
    Err(ApiError::caller(
        ErrorKind::UnsupportedMedia,
        "unsupported_media_type",
        words,
    ))
}

/// Whether a body calls itself JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// When the caller's patience ends, if it said so.
pub(crate) fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, ApiError> {
    let Some(value) = headers.get(PATIENCE) else {
        return Ok(None);
    };
    let ms = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    match ms.filter(|ms| (1..=PATIENCE_MS_MAX).contains(ms)) {
        Some(ms) => Ok(Some(clock::now() + Duration::from_millis(ms))),
        None => Err(ApiError::fields(vec![Problem::new(
            PATIENCE,
            format!("must be an integer from 1 to {PATIENCE_MS_MAX}"),
        )])),
    }
}

/// How urgent the request is, if a header field says so. It is stronger than the body's.
pub(crate) fn class(headers: &HeaderMap) -> Result<Option<Class>, ApiError> {
    let Some(value) = headers.get(PRIORITY) else {
        return Ok(None);
    };
    let class = value
        .to_str()
        .ok()
        .and_then(|name| Class::from_name(name.trim()));
    class.map(Some).ok_or_else(|| {
        ApiError::fields(vec![Problem::new(
            PRIORITY,
            "must be critical, high, normal, low or background",
        )])
    })
}

/// The whole body.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    config: &ServerConfig,
) -> Result<Bytes, ApiError> {
    let max = config.body_bytes_max;
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > max) {
        return Err(too_large(max));
    }
    let whole = Limited::new(body, max).collect();
    match tokio::time::timeout(config.body_timeout, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(max)),
        Ok(Err(_)) => Err(ApiError::bad_request(
            "body_cut",
            "the body ended before it was complete",
        )),
        Err(_) => {
            let words = format!(
                "the body did not arrive within {} ms",
                config.body_timeout.as_millis()
            );
            Err(ApiError::caller(
                ErrorKind::RequestTimeout,
                "body_timeout",
                words,
            ))
        }
    }
}

fn too_large(max: usize) -> ApiError {
    let words = format!("the body may have at most {max} bytes");
    ApiError::caller(ErrorKind::TooLarge, "body_too_large", words)
}
