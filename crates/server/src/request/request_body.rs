//! Reading a request's body, within limits of size and time.

use crate::config::server_config::ServerConfig;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use generate::error::{ApiError, ErrorKind};
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// The complete body.
///
/// # Errors
/// The body is longer than `body_bytes_max`, takes longer than `body_timeout`, or ends early.
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
    let collected = Limited::new(body, max).collect();
    match tokio::time::timeout(config.body_timeout, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(max)),
        Ok(Err(_)) => Err(ApiError::bad_request(
            "body_cut",
            "the body ended before it was complete",
        )),
        Err(_) => {
            let message = format!(
                "the body did not arrive within {} ms",
                config.body_timeout.as_millis()
            );
            Err(ApiError::caller(
                ErrorKind::RequestTimeout,
                "body_timeout",
                message,
            ))
        }
    }
}

fn too_large(max: usize) -> ApiError {
    let message = format!("the body may have at most {max} bytes");
    ApiError::caller(ErrorKind::TooLarge, "body_too_large", message)
}
