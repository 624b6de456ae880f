//! Reading a request's body, within limits of size and time.
//!
//! Transfer codings and content codings of a request body. Only `chunked`, the framing of the message (RFC 9112, 6.1),
//! is supported.
//!
//! The HTTP library accepts any list of transfer codings that ends with `chunked` and ignores content codings, so a
//! compressed body would be parsed as plain bytes.

use crate::config::server_config::ServerConfig;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, header};
use bytes::BytesMut;
use gateway::media::{ByteBudget, ByteReservation, LongBody, too_large};
use generate::error::{ApiError, ErrorKind};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::sync::Arc;
use std::time::Duration;

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
    if announced_bytes(headers).is_some_and(|length| length > max) {
        return Err(too_large(max));
    }
    let collected = Limited::new(body, max).collect();
    match tokio::time::timeout(config.body_timeout, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(max)),
        Ok(Err(_)) => Err(cut()),
        Err(_) => Err(timed_out(config.body_timeout)),
    }
}

/// The complete body of a request that may have images. One longer than `body_bytes_max` has a share of the bytes of all
/// such bodies, from before it is read on: the announced length, or the longest there may be.
///
/// # Errors
/// The body is longer than `media_body_bytes_max`, takes longer than `body_timeout`, or ends early; there is no share.
pub(crate) async fn read_long(
    headers: &HeaderMap,
    body: Body,
    (config, bodies): (&ServerConfig, &Arc<ByteBudget>),
) -> Result<(Bytes, Option<LongBody>), ApiError> {
    let max = config.media_body_bytes_max.max(config.body_bytes_max);
    let announced = announced_bytes(headers);
    if announced.is_some_and(|length| length > max) {
        return Err(too_large(max));
    }
    let longest = announced.unwrap_or(max);
    let mut long = ArrivingBody {
        bytes: BytesMut::new(),
        share: None,
    };
    let read = async {
        let mut body = body;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| cut())?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let length = long.bytes.len() + data.len();
            if length > max {
                return Err(too_large(max));
            }
            if length > config.body_bytes_max {
                long.expect_share(longest, config, bodies)?;
            }
            long.bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    match tokio::time::timeout(config.body_timeout, read).await {
        Ok(read) => read?,
        Err(_) => return Err(timed_out(config.body_timeout)),
    }
    let bytes = long.bytes.freeze();
    let checked = |share| LongBody::new(bytes.len(), config.body_bytes_max, share);
    let long = long.share.map(checked);
    Ok((bytes, long))
}

/// The part of a body that has arrived.
struct ArrivingBody {
    bytes: BytesMut,
    share: Option<ByteReservation>,
}

impl ArrivingBody {
    /// Reserves the bytes of a long body, once.
    fn expect_share(
        &mut self,
        longest: usize,
        config: &ServerConfig,
        bodies: &Arc<ByteBudget>,
    ) -> Result<(), ApiError> {
        if self.share.is_none() {
            let share = bodies.reserve(longest as u64, config.media_bodies_bytes_max);
            let full = || {
                let message = "too many requests with long bodies are being read";
                ApiError::capacity("media_full", message, config.retry_after)
            };
            self.share = Some(share.ok_or_else(full)?);
        }
        Ok(())
    }
}

/// The length in the head.
fn announced_bytes(headers: &HeaderMap) -> Option<usize> {
    let value = headers.get(header::CONTENT_LENGTH)?;
    value.to_str().ok()?.parse().ok()
}

fn cut() -> ApiError {
    ApiError::bad_request("body_cut", "the body ended before it was complete")
}

fn timed_out(after: Duration) -> ApiError {
    let message = format!("the body did not arrive within {} ms", after.as_millis());
    ApiError::caller(ErrorKind::RequestTimeout, "body_timeout", message)
}

/// The supported value of `Content-Encoding`.
const IDENTITY: &str = "identity";
/// The supported value of `Transfer-Encoding`, given once.
const CHUNKED: &str = "chunked";

/// Rejects codings that the server would have to decode.
///
/// # Errors
/// 415 for a content coding, 501 for a transfer coding, 400 for `chunked` twice.
pub(crate) fn expect_plain(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_identity = |coding: &str| coding.eq_ignore_ascii_case(IDENTITY);
    if !codings(headers, &header::CONTENT_ENCODING).all(is_identity) {
        return Err(ApiError::caller(
            ErrorKind::UnsupportedMedia,
            "unsupported_content_encoding",
            "content-encoding: only identity is supported; send the body without a content coding",
        ));
    }
    let is_chunked = |coding: &str| coding.eq_ignore_ascii_case(CHUNKED);
    if !codings(headers, &header::TRANSFER_ENCODING).all(is_chunked) {
        return Err(ApiError::caller(
            ErrorKind::NotSupported,
            "unsupported_transfer_encoding",
            "transfer-encoding: only chunked is supported",
        ));
    }
    if codings(headers, &header::TRANSFER_ENCODING).count() > 1 {
        return Err(ApiError::bad_request(
            "invalid_transfer_encoding",
            "transfer-encoding: chunked must be given once",
        ));
    }
    Ok(())
}

/// Members of a list over all lines of a header field; an unreadable line becomes the unsupported coding `?`.
fn codings<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter();
    let members = lines.flat_map(|line| line.to_str().unwrap_or("?").split(','));
    members.map(str::trim).filter(|coding| !coding.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use wire::shared::error_response::status_code;

    #[test]
    fn body_with_other_coding_than_one_chunked_is_rejected() {
        type Row = (&'static [(&'static str, &'static str)], Option<u16>);
        let rows: [Row; 12] = [
            (&[], None),
            (&[("content-encoding", "identity")], None),
            (&[("content-encoding", "")], None),
            (&[("content-encoding", "gzip")], Some(415)),
            (&[("content-encoding", "identity, br")], Some(415)),
            (
                &[
                    ("content-encoding", "identity"),
                    ("content-encoding", "zstd"),
                ],
                Some(415),
            ),
            (&[("transfer-encoding", "Chunked")], None),
            (&[("transfer-encoding", ", chunked")], None),
            (&[("transfer-encoding", "gzip, chunked")], Some(501)),
            (&[("transfer-encoding", "identity, chunked")], Some(501)),
            (
                &[
                    ("transfer-encoding", "gzip"),
                    ("transfer-encoding", "chunked"),
                ],
                Some(501),
            ),
            (&[("transfer-encoding", "chunked, chunked")], Some(400)),
        ];
        for (fields, status) in rows {
            let mut headers = HeaderMap::new();
            for &(name, value) in fields {
                headers.append(name, HeaderValue::from_static(value));
            }
            let error = expect_plain(&headers).err();
            assert_eq!(
                error.map(|e| status_code(e.kind).as_u16()),
                status,
                "{fields:?}"
            );
        }
    }
}
