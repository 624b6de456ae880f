//! Header fields of requests.

use admission::Priority;
use axum::http::{HeaderMap, header};
use gateway::open::{RequestedDelivery, Resumable};
use generate::error::{ApiError, ErrorKind, Problem};
use std::time::{Duration, Instant};
use wire::clock;
use wire::shared::generation_fields::DEADLINE_MS_MAX;

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

/// Whether the client accepts JSON by name.
pub(crate) fn accepts_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let mut kinds = accept.unwrap_or_default().split([',', ';']);
    kinds.any(|kind| kind.trim() == "application/json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

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
}
