//! The API key in a request's header fields.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use generate::error::ApiError;

/// The header in which clients of Anthropic's API send the key.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The keys that a request presents, at most one in each header. An empty value is no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyPair<'a> {
    /// In `Authorization: Bearer` or, without one, in `x-api-key`.
    pub(crate) bearer: Option<&'a [u8]>,
    /// In `x-api-key`, if another one.
    pub(crate) other: Option<&'a [u8]>,
}

impl KeyPair<'_> {
    /// The error of a request whose two keys are both valid: two parsers of the request could see two different callers.
    pub(crate) fn ambiguous() -> ApiError {
        ambiguous_credentials(
            &X_API_KEY,
            "x-api-key: not the key in authorization; send one of them",
        )
    }
}

/// The keys in `Authorization: Bearer` and in `x-api-key`.
///
/// # Errors
/// A header field occurs twice.
pub(crate) fn find_keys(headers: &HeaderMap) -> Result<KeyPair<'_>, ApiError> {
    let is_given = |key: &&[u8]| !key.is_empty();
    let bearer = bearer_key(headers)?.filter(is_given);
    let other = x_api_key(headers)?.filter(is_given);
    Ok(KeyPair {
        bearer: bearer.or(other),
        other: other.filter(|key| bearer.is_some_and(|bearer| bearer != *key)),
    })
}

/// Removes the keys, so that no code behind the authentication layer can reveal them.
pub(crate) fn remove_keys(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    headers.remove(X_API_KEY);
}

/// The credentials after the scheme, whose case does not matter (RFC 9110, 11.1).
fn bearer_key(headers: &HeaderMap) -> Result<Option<&[u8]>, ApiError> {
    let value = single_value(
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
    let value = single_value(headers, &X_API_KEY, "x-api-key: sent more than once")?;
    Ok(value.map(|value| value.as_bytes().trim_ascii()))
}

/// The value of a header field that may occur once.
fn single_value<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    twice: &'static str,
) -> Result<Option<&'a HeaderValue>, ApiError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(ambiguous_credentials(name, twice)),
    }
}

fn ambiguous_credentials(name: &HeaderName, message: &'static str) -> ApiError {
    ApiError::field(name.as_str(), "ambiguous_credentials", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_read_from_either_header() {
        type Row = (
            &'static [(&'static str, &'static str)],
            [Option<&'static str>; 2],
        );
        let rows: [Row; 12] = [
            (&[], [None; 2]),
            (&[("authorization", "Bearer k")], [Some("k"), None]),
            (&[("authorization", "bEARER  k ")], [Some("k"), None]),
            (&[("x-api-key", "k")], [Some("k"), None]),
            (
                &[("x-api-key", "no"), ("authorization", "Bearer k")],
                [Some("k"), Some("no")],
            ),
            (
                &[("x-api-key", "k"), ("authorization", "Bearer k")],
                [Some("k"), None],
            ),
            (
                &[("x-api-key", " "), ("authorization", "Bearer k")],
                [Some("k"), None],
            ),
            (
                &[("x-api-key", "k"), ("authorization", "Bearer ")],
                [Some("k"), None],
            ),
            (
                &[("x-api-key", "k"), ("authorization", "Basic abc")],
                [Some("k"), None],
            ),
            (&[("authorization", "Basic abc")], [None; 2]),
            (&[("authorization", "Bearer")], [None; 2]),
            (
                &[("x-api-key", ""), ("authorization", "Bearer ")],
                [None; 2],
            ),
        ];
        for (fields, keys) in rows {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.insert(*name, value.parse().unwrap());
            }
            let found = find_keys(&headers).expect("no header twice");
            let keys = keys.map(|key| key.map(str::as_bytes));
            assert_eq!([found.bearer, found.other], keys, "{fields:?}");
            remove_keys(&mut headers);
            assert!(headers.is_empty(), "{fields:?}");
        }
    }
}
