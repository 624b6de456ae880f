//! The key that came with a request.

use axum::http::{HeaderMap, HeaderName, header};

/// Anthropic's clients' way of sending it.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The key in `Authorization: Bearer` or, without one, in `x-api-key`.
pub(crate) fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| bearer(value.as_bytes()));
    bearer.or_else(|| {
        headers
            .get(X_API_KEY)
            .map(|value| value.as_bytes().trim_ascii())
    })
}

/// Takes keys out, so that nothing behind the door can show them.
pub(crate) fn strip(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    headers.remove(X_API_KEY);
}

/// What follows the scheme, whose case does not matter (RFC 9110, 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(b"bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| key.trim_ascii())
}
