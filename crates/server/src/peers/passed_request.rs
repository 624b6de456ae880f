//! A caller's request, as it is sent to other instances.

use crate::access::presented_key::PresentedKeys;
use axum::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, ORIGIN, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

/// Marks a request that was passed on: the instance answers from what it has itself.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("x-millrace-forwarded");
/// Header fields that are not passed on: those of one connection, and the page's origin, which this instance has checked and
/// the other would compare with its own host.
const NOT_PASSED_ON: [HeaderName; 6] =
    [CONNECTION, EXPECT, HOST, ORIGIN, TRANSFER_ENCODING, UPGRADE];

/// Method, path, header fields and key of a caller's request; can be sent more than once.
#[derive(Clone, Debug)]
pub(crate) struct PassedRequest {
    method: Method,
    path_and_query: String,
    headers: HeaderMap,
    body: Bytes,
}

impl PassedRequest {
    /// The request with this head and this complete body.
    pub(crate) fn of(head: &Parts, body: Bytes) -> Self {
        let path = head.uri.path_and_query();
        Self {
            method: head.method.clone(),
            path_and_query: path.map_or("/", |path| path.as_str()).to_owned(),
            headers: passed_headers(head),
            body,
        }
    }

    /// A `GET` request of the same caller.
    pub(crate) fn get(head: &Parts, path_and_query: String) -> Self {
        let mut headers = passed_headers(head);
        headers.remove(CONTENT_LENGTH);
        Self {
            method: Method::GET,
            path_and_query,
            headers,
            body: Bytes::new(),
        }
    }

    /// The request for this address.
    ///
    /// # Errors
    /// The address is no host and port.
    pub(crate) fn build(&self, address: &str) -> Result<Request<Body>, String> {
        let uri = self.path_and_query.parse::<Uri>();
        let uri = uri.map_err(|why| why.to_string())?;
        let host = HeaderValue::from_str(address).map_err(|why| why.to_string())?;
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(HOST, host);
        Ok(request)
    }
}

/// The caller's header fields with the key, marked as passed on.
fn passed_headers(head: &Parts) -> HeaderMap {
    let mut headers = head.headers.clone();
    for name in NOT_PASSED_ON {
        headers.remove(name);
    }
    if let Some(keys) = head.extensions.get::<PresentedKeys>() {
        keys.restore(&mut headers);
    }
    headers.insert(FORWARDED, HeaderValue::from_static("1"));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::presented_key;

    #[test]
    fn request_has_the_callers_key_and_is_marked() {
        let mut request = Request::builder()
            .uri("/v1/streams?limit=3")
            .header("host", "here")
            .header("connection", "close")
            .header("origin", "http://here")
            .header("authorization", "Bearer k")
            .header("x-title", "t")
            .body(())
            .unwrap();
        let keys = presented_key::take_keys(request.headers_mut());
        request.extensions_mut().insert(keys);
        let (head, ()) = request.into_parts();
        let passed = PassedRequest::of(&head, Bytes::new());
        let built = passed.build("127.0.0.1:9").unwrap();
        assert_eq!(built.uri(), "/v1/streams?limit=3");
        let mut fields: Vec<_> = built
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        fields.sort();
        let expected = [
            "authorization: Bearer k",
            "host: 127.0.0.1:9",
            "x-millrace-forwarded: 1",
            "x-title: t",
        ];
        assert_eq!(fields, expected);
        let other = PassedRequest::get(&head, "/v1/jobs/a".to_owned());
        assert_eq!(other.build("h:1").unwrap().uri(), "/v1/jobs/a");
        assert!(other.build("no\nhost").is_err());
    }
}
