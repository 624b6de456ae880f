//! Requests of web pages: which are answered, and what their browsers are told (CORS, the Fetch standard).
//!
//! A browser sends some requests for a page of any origin without asking, and only keeps the answer from it: those
//! with a body that a form could send, or without one. All others it asks for first, by `OPTIONS` (a preflight).
//! So a page that is not allowed gets no preflight, and what a browser would not have asked for is refused; nobody
//! has to trust a browser for more. Requests without `Origin` are no page's, or only read.

use crate::origins::Origins;
use crate::request_headers;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use generate::error::{ApiError, ErrorKind};

/// Methods that routes answer to.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
/// Header fields of answers that a page may read, beside those that every page may.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, request-id, x-stream-id, retry-after, retry-after-ms, x-should-retry, x-millrace-ignored-fields",
);
/// How long a browser may remember a preflight's answer.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("3600");
/// A page of the web asks for a server of a private network (Private Network Access).
const ASKS_PRIVATE: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOWS_PRIVATE: HeaderName = HeaderName::from_static("access-control-allow-private-network");
const TRUE: HeaderValue = HeaderValue::from_static("true");
const ANY: HeaderValue = HeaderValue::from_static("*");
const ORIGIN: HeaderValue = HeaderValue::from_static("origin");

/// Whose request it is. The connection puts it among the request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// No page's: a program's, or a browser's own.
    Program,
    /// A page of this very server, as its `Host` names it.
    SameOrigin,
    /// A page that may use this server; what its browser is told of it.
    Allowed(HeaderValue),
    /// Any other page.
    Foreign,
}

impl Source {
    /// The decision for a request with these header fields.
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
        if origins.allow(text) {
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

    /// The decision for a request that came through the connection.
    pub(crate) fn of_request(request: &Request) -> Self {
        let source = request.extensions().get::<Self>().cloned();
        // Nobody comes another way; if one did, that is nobody's page.
        source.unwrap_or(Self::Foreign)
    }

    /// # Errors
    /// From a page that may not use this server.
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
    /// From a foreign page, in a form that browsers send without a preflight.
    pub(crate) fn expect_asked(&self, request: &Request) -> Result<(), ApiError> {
        match *request.method() == Method::POST && !request_headers::is_json(request.headers()) {
            true => self.expect_allowed(),
            false => Ok(()),
        }
    }

    /// Tells the browser whether its page may read the answer, and what of it.
    pub(crate) fn mark(&self, answer: &mut Response) {
        if *self == Self::Program {
            return;
        }
        let headers = answer.headers_mut();
        headers.append(header::VARY, ORIGIN);
        if let Self::Allowed(origin) = self {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}

/// Whether a browser asks, before it sends a page's request, if it may.
pub(crate) fn is_preflight(request: &Request) -> bool {
    let headers = request.headers();
    let asks = headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    *request.method() == Method::OPTIONS && asks && headers.contains_key(header::ORIGIN)
}

/// The answer to a preflight of a page that may. The header fields it asks for are those it may send.
pub(crate) fn preflight(request: &Request) -> Response {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers = answer.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
    let asked = request.headers();
    if let Some(fields) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, fields.clone());
    }
    if asked.contains_key(ASKS_PRIVATE) {
        headers.insert(ALLOWS_PRIVATE, TRUE);
    }
    answer
}
