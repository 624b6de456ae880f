//! Extractors: typed and checked parts of a request.
//!
//! axum runs the extractors of a handler from left to right; the body comes last. The first failed check ends the
//! request with an error response in the wire protocol of the route.

use crate::access::authentication;
use crate::app::App;
use crate::config::server_config::ServerConfig;
use crate::response::Rejected;
use admission::Priority;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use gateway::keys::Caller;
use gateway::open::{RequestedDelivery, Resumable, StreamRequest};
use generate::error::{ApiError, ErrorKind, Problem};
use http::HeaderName;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};
use wire::clock;
use wire::framing::Framing;
use wire::protocol::Protocol;
use wire::request_body::RequestBody;
use wire::shared::generation_fields::DEADLINE_MS_MAX;

/// Values in the path, such as an id.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Path<T> {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, app: &App) -> Result<Self, Rejected> {
        let found = axum::extract::Path::from_request_parts(head, app).await;
        let axum::extract::Path(values) = found.map_err(|_| {
            let problem = Problem::new("path", "must be UTF-8, also where it is percent-encoded");
            ApiError::fields(vec![problem])
        })?;
        Ok(Self(values))
    }
}

/// The caller that the authentication layer identified.
pub(crate) struct Authenticated(pub(crate) Caller);

impl FromRequestParts<App> for Authenticated {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, _: &App) -> Result<Self, Rejected> {
        Ok(Self(authentication::caller(&head.extensions)?.clone()))
    }
}

/// The caller, after counting the request against the rate limit of the caller's key.
pub(crate) struct RateLimited(pub(crate) Caller);

impl FromRequestParts<App> for RateLimited {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, _: &App) -> Result<Self, Rejected> {
        let caller = authentication::caller(&head.extensions)?;
        caller.count_request(clock::now()).map_err(ApiError::from)?;
        Ok(Self(caller.clone()))
    }
}

/// Header fields about the scheduling of a request. They override fields of the body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SchedulingHeaders {
    pub(crate) priority: Option<Priority>,
    pub(crate) deadline: Option<Instant>,
}

impl FromRequestParts<App> for SchedulingHeaders {
    type Rejection = Rejected;

    async fn from_request_parts(head: &mut Parts, _: &App) -> Result<Self, Rejected> {
        Ok(Self {
            priority: parse_priority(&head.headers)?,
            deadline: parse_deadline(&head.headers)?,
        })
    }
}

/// A body within the limits of size and time. Web pages must send the content type JSON.
pub(crate) struct JsonBody(pub(crate) Bytes);

impl FromRequest<App> for JsonBody {
    type Rejection = Rejected;

    async fn from_request(request: Request, app: &App) -> Result<Self, Rejected> {
        let (head, body) = request.into_parts();
        expect_json(&head.headers)?;
        let body = read(&head.headers, body, &app.config.now()).await?;
        Ok(Self(body))
    }
}

/// A request for a generation: caller, header fields, and the bytes of the body.
pub(crate) struct GenerationRequest {
    pub(crate) caller: Caller,
    pub(crate) delivery: RequestedDelivery,
    body: Bytes,
}

impl FromRequest<App> for GenerationRequest {
    type Rejection = Rejected;

    async fn from_request(request: Request, app: &App) -> Result<Self, Rejected> {
        let (mut head, body) = request.into_parts();
        let RateLimited(caller) = RateLimited::from_request_parts(&mut head, app).await?;
        let delivery = parse_delivery(&head.headers)?;
        let request = Request::from_parts(head, body);
        let JsonBody(body) = JsonBody::from_request(request, app).await?;
        Ok(Self {
            caller,
            delivery,
            body,
        })
    }
}

impl GenerationRequest {
    /// The request in the wire protocol of its route.
    ///
    /// # Errors
    /// The body is not a JSON object.
    pub(crate) fn in_protocol(
        self,
        protocol: Protocol,
        framing: Framing,
    ) -> Result<StreamRequest, ApiError> {
        Ok(StreamRequest {
            caller: self.caller,
            protocol,
            framing,
            delivery: self.delivery,
            streamed: false,
            body: RequestBody::parse(self.body)?,
        })
    }
}

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

/// The header with the deadline of a request, in milliseconds from now.
const PATIENCE: &str = "request-timeout-ms";
/// The header with the priority of a request.
const PRIORITY: &str = "x-priority";

/// A header that only browsers send.
const FETCHED_FROM: &str = "sec-fetch-site";

/// Rejects a body from a web page whose content type is not JSON: a page can send other types to another origin
/// without a preflight. Browsers send `origin` or `sec-fetch-site` with such a request. Other clients may send JSON
/// with any content type (`curl -d` sends the type of a form).
pub(crate) fn expect_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let from_a_page = headers.contains_key(header::ORIGIN) || headers.contains_key(FETCHED_FROM);
    if !from_a_page || is_json(headers) {
        return Ok(());
    }
    let message = "the body must be JSON: send the header content-type: application/json";
    Err(ApiError::caller(
        ErrorKind::UnsupportedMedia,
        "unsupported_media_type",
        message,
    ))
}

/// Whether `If-None-Match` names this entity tag.
pub(crate) fn matches_tag(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|named| named.trim().trim_start_matches("W/"));
    tags.any(|named| named == "*" || named == tag)
}

/// Whether the content type is JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The deadline from `request-timeout-ms`.
pub(crate) fn parse_deadline(headers: &HeaderMap) -> Result<Option<Instant>, ApiError> {
    let Some(value) = headers.get(PATIENCE) else {
        return Ok(None);
    };
    let ms = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    match ms.filter(|ms| (1..=DEADLINE_MS_MAX).contains(ms)) {
        Some(ms) => Ok(Some(clock::now() + Duration::from_millis(ms))),
        None => Err(ApiError::fields(vec![Problem::new(
            PATIENCE,
            format!("must be an integer from 1 to {DEADLINE_MS_MAX}"),
        )])),
    }
}

/// The priority from `x-priority`.
pub(crate) fn parse_priority(headers: &HeaderMap) -> Result<Option<Priority>, ApiError> {
    let Some(value) = headers.get(PRIORITY) else {
        return Ok(None);
    };
    let class = value
        .to_str()
        .ok()
        .and_then(|name| Priority::from_name(name.trim()));
    class.map(Some).ok_or_else(|| {
        ApiError::fields(vec![Problem::new(
            PRIORITY,
            "must be critical, high, normal, low or background",
        )])
    })
}

/// The header that selects a resumable stream.
const RESUMABLE: &str = "x-stream-resumable";
/// The header that keeps a resumable stream out of the journal.
const DURABLE: &str = "x-stream-durable";
/// The header that selects what returns credit: acknowledgements of the client, or the socket.
const ACKS: &str = "x-stream-acks";

/// Scheduling and delivery of a stream, as the header fields choose them.
///
/// # Errors
/// An invalid priority or deadline; all other invalid fields at once.
pub(crate) fn parse_delivery(headers: &HeaderMap) -> Result<RequestedDelivery, ApiError> {
    let (priority, deadline) = (parse_priority(headers)?, parse_deadline(headers)?);
    let mut problems = Vec::new();
    let mut read = |name: &str, constraint: &str, read: fn(&str) -> Option<bool>| {
        let value = headers.get(name)?;
        let meant = value.to_str().ok().and_then(|text| read(text.trim()));
        if meant.is_none() {
            problems.push(Problem::new(name, constraint));
        }
        meant
    };
    let resumable = read(RESUMABLE, "must be 1 or 0", parse_flag);
    let durable = read(DURABLE, "must be 1 or 0", parse_flag);
    let explicit_acks = read(ACKS, "must be explicit or socket", |text| match text {
        "explicit" => Some(true),
        "socket" => Some(false),
        _ => None,
    });
    if !problems.is_empty() {
        return Err(ApiError::fields(problems));
    }
    Ok(RequestedDelivery {
        priority,
        deadline,
        resumable: resumable.map(Resumable::from_choice),
        durable: durable.unwrap_or(true),
        explicit_acks: explicit_acks.unwrap_or(false),
    })
}

fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
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
    use axum::http::{HeaderName, HeaderValue};
    use wire::shared::error_response::status_code;

    fn parse(fields: &[(&'static str, &'static str)]) -> Result<RequestedDelivery, ApiError> {
        let field = |&(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        parse_delivery(&fields.iter().map(field).collect())
    }

    #[test]
    fn delivery_headers_are_parsed_and_invalid_ones_are_rejected() {
        let stream = |resumable, explicit_acks| RequestedDelivery {
            resumable,
            durable: true,
            explicit_acks,
            ..RequestedDelivery::default()
        };
        let (yes, no) = (Some(Resumable::Yes), Some(Resumable::No));
        let rows: [(&[_], _); 5] = [
            (
                &[(DURABLE, "0")],
                RequestedDelivery {
                    durable: false,
                    ..stream(None, false)
                },
            ),
            (&[], stream(None, false)),
            (&[(RESUMABLE, "1")], stream(yes, false)),
            (&[(RESUMABLE, "0"), (ACKS, "explicit")], stream(no, true)),
            (
                &[(RESUMABLE, " true "), (ACKS, "socket")],
                stream(yes, false),
            ),
        ];
        for (fields, want) in rows {
            assert_eq!(parse(fields).ok(), Some(want), "{fields:?}");
        }
        let error = parse(&[(RESUMABLE, "yes"), (ACKS, "2"), (DURABLE, "")]).expect_err("invalid");
        assert_eq!((error.kind, error.problems.len()), (ErrorKind::Invalid, 3));
    }

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
