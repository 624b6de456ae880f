//! Cross-origin requests of web pages (CORS, the Fetch standard).
//!
//! For requests without a body, or with a body that an HTML form could send, a browser sends the request of any
//! origin without a preflight and only withholds the response from the page. Before all other requests the browser
//! sends a preflight (`OPTIONS`). Therefore a page of another origin gets no successful preflight, and a request that
//! needs no preflight is rejected here; the server does not rely on the browser for more. Requests without `Origin`
//! come from programs, or only read.

use crate::access::origins::Origins;
use crate::request::request_headers;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use generate::error::{ApiError, ErrorKind};

/// Methods of the routes.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
/// Header fields of responses that a page may read, in addition to the CORS-safelisted ones.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, request-id, x-stream-id, x-stream-durable, retry-after, retry-after-ms, x-should-retry, x-millrace-ignored-fields, \
     etag, stream-next-offset, stream-up-to-date, stream-closed, stream-cursor",
);
/// How long a browser may cache the response to a preflight.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("3600");
/// Private Network Access: a page of the web requests a server in a private network.
const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");
const TRUE: HeaderValue = HeaderValue::from_static("true");
const ANY: HeaderValue = HeaderValue::from_static("*");
const ORIGIN: HeaderValue = HeaderValue::from_static("origin");

/// The origin of a request. The connection stores this value in the extensions of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestOrigin {
    /// No web page: a program, or a request of the browser for no page.
    Program,
    /// A page of this server, according to the `Host` field.
    SameOrigin,
    /// A page that may use this server, with the value for `Access-Control-Allow-Origin`.
    Allowed(HeaderValue),
    /// Any other page.
    Foreign,
}

impl RequestOrigin {
    /// The origin of a request with these header fields.
    pub(crate) fn of(headers: &HeaderMap, origins: &Origins) -> Self {
        let mut all = headers.get_all(header::ORIGIN).iter();
        let origin = match (all.next(), all.next()) {
            (None, _) => return Self::Program,
            (Some(origin), None) => origin,
            (Some(_), Some(_)) => return Self::Foreign,
        };
        let text = origin.to_str().unwrap_or_default();
        if origins.allows_any() {
            return Self::Allowed(ANY);
        }
        if origins.allows_origin(text) {
            return Self::Allowed(origin.clone());
        }
        let host = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        match (text.split_once("://"), host) {
            (Some((_, origin)), Some(host)) if origin.eq_ignore_ascii_case(host) => {
                Self::SameOrigin
            }
            _ => Self::Foreign,
        }
    }

    /// The origin of a request that the connection has marked.
    pub(crate) fn of_request(request: &Request) -> Self {
        let source = request.extensions().get::<Self>().cloned();
        // Unreachable: the connection marks every request.
        source.unwrap_or(Self::Foreign)
    }

    /// # Errors
    /// The request comes from a page that may not use this server.
    pub(crate) fn expect_allowed(&self) -> Result<(), ApiError> {
        match self {
            Self::Foreign => Err(ApiError::caller(
                ErrorKind::Forbidden,
                "origin_refused",
                "web pages of this origin are not allowed (the operator can add it: server.origins)",
            )),
            _ => Ok(()),
        }
    }

    /// # Errors
    /// The request comes from a page that may not use this server, and needs no preflight.
    pub(crate) fn expect_preflighted(&self, request: &Request) -> Result<(), ApiError> {
        if *request.method() == Method::POST && !request_headers::is_json(request.headers()) {
            self.expect_allowed()
        } else {
            Ok(())
        }
    }

    /// Adds the CORS header fields to the response.
    pub(crate) fn add_headers(&self, response: &mut Response) {
        if *self == Self::Program {
            return;
        }
        let headers = response.headers_mut();
        headers.append(header::VARY, ORIGIN);
        if let Self::Allowed(origin) = self {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}

/// Whether the request is a CORS preflight.
pub(crate) fn is_preflight(request: &Request) -> bool {
    let headers = request.headers();
    let has_method = headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    *request.method() == Method::OPTIONS && has_method && headers.contains_key(header::ORIGIN)
}

/// The response to the preflight of an allowed page: all requested header fields are allowed.
pub(crate) fn preflight_response(request: &Request) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
    let requested = request.headers();
    if let Some(fields) = requested.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, fields.clone());
    }
    if requested.contains_key(REQUEST_PRIVATE_NETWORK) {
        headers.insert(ALLOW_PRIVATE_NETWORK, TRUE);
    }
    response
}
