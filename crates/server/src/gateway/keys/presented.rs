//! The key that came with a request.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use generate::error::ApiError;

/// Anthropic's clients' way of sending it.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The key in `Authorization: Bearer` or, without one, in `x-api-key`.
///
/// # Errors
/// A header field is there twice: two readers of the request could take two callers from it.
pub(crate) fn presented(headers: &HeaderMap) -> Result<Option<&[u8]>, ApiError> {
    Ok(bearer(headers)?.or(x_api_key(headers)?))
}

/// Refuses a request whose header fields hold two keys.
///
/// # Errors
/// `Authorization: Bearer` and `x-api-key` differ.
pub(crate) fn expect_one(headers: &HeaderMap) -> Result<(), ApiError> {
    match (bearer(headers)?, x_api_key(headers)?) {
        (Some(bearer), Some(key)) if bearer != key => Err(ambiguous(
            &X_API_KEY,
            "x-api-key: not the key in authorization; send one of them",
        )),
        _ => Ok(()),
    }
}

/// Takes keys out, so that nothing behind the door can show them.
pub(crate) fn strip(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    headers.remove(X_API_KEY);
}

/// What follows the scheme, whose case does not matter (RFC 9110, 11.1).
fn bearer(headers: &HeaderMap) -> Result<Option<&[u8]>, ApiError> {
    let value = only(
        headers,
        &header::AUTHORIZATION,
        "authorization: sent more than once",
    )?;
    Ok(value.and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(b"bearer ".len())?;
        scheme
            .eq_ignore_ascii_case(b"bearer ")
            .then(|| key.trim_ascii())
    }))
}

fn x_api_key(headers: &HeaderMap) -> Result<Option<&[u8]>, ApiError> {
    let value = only(headers, &X_API_KEY, "x-api-key: sent more than once")?;
    Ok(value.map(|value| value.as_bytes().trim_ascii()))
}

/// The one value of a header field.
fn only<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    twice: &'static str,
) -> Result<Option<&'a HeaderValue>, ApiError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(ambiguous(name, twice)),
    }
}

fn ambiguous(name: &HeaderName, words: &'static str) -> ApiError {
    ApiError::field(name.as_str(), "ambiguous_credentials", words)
}
