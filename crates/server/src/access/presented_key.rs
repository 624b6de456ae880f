//! The API key in a request's header fields.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use generate::error::ApiError;

/// The header in which clients of Anthropic's API send the key.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The key in `Authorization: Bearer` or, without one, in `x-api-key`.
///
/// # Errors
/// A header field occurs twice: two parsers of the request could see two different callers.
pub(crate) fn find_key(headers: &HeaderMap) -> Result<Option<&[u8]>, ApiError> {
    Ok(bearer_key(headers)?.or(x_api_key(headers)?))
}

/// Rejects a request with two different keys.
///
/// # Errors
/// `Authorization: Bearer` and `x-api-key` differ.
pub(crate) fn expect_single_key(headers: &HeaderMap) -> Result<(), ApiError> {
    match (bearer_key(headers)?, x_api_key(headers)?) {
        (Some(bearer), Some(key)) if bearer != key => Err(ambiguous_credentials(
            &X_API_KEY,
            "x-api-key: not the key in authorization; send one of them",
        )),
        _ => Ok(()),
    }
}

/// Removes the keys, so that no code behind the authentication layer can reveal them, and returns them for a request that
/// is passed on to another gateway.
pub(crate) fn take_keys(headers: &mut HeaderMap) -> PresentedKeys {
    PresentedKeys([header::AUTHORIZATION, X_API_KEY].map(|name| headers.remove(name)))
}

/// The header fields with the key of a request.
#[derive(Clone)]
pub(crate) struct PresentedKeys([Option<HeaderValue>; 2]);

impl PresentedKeys {
    /// Adds the fields to a request for another gateway.
    pub(crate) fn restore(&self, headers: &mut HeaderMap) {
        let names = [header::AUTHORIZATION, X_API_KEY];
        for (name, value) in names.into_iter().zip(self.0.clone()) {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
    }
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
            Option<&'static str>,
        );
        let rows: [Row; 8] = [
            (&[], None),
            (&[("authorization", "Bearer k")], Some("k")),
            (&[("authorization", "bEARER  k ")], Some("k")),
            (&[("x-api-key", "k")], Some("k")),
            (
                &[("x-api-key", "no"), ("authorization", "Bearer k")],
                Some("k"),
            ),
            (
                &[("x-api-key", "k"), ("authorization", "Basic abc")],
                Some("k"),
            ),
            (&[("authorization", "Basic abc")], None),
            (&[("authorization", "Bearer")], None),
        ];
        for (fields, key) in rows {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.insert(*name, value.parse().unwrap());
            }
            let found = find_key(&headers).expect("one key");
            assert_eq!(found, key.map(str::as_bytes), "{fields:?}");
            let taken = take_keys(&mut headers);
            assert!(headers.is_empty(), "{fields:?}");
            taken.restore(&mut headers);
            assert_eq!(headers.keys_len(), fields.len().min(2), "{fields:?}");
        }
    }
}
