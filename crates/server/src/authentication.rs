//! The authentication layer: host allow-list, API key and scope of every request.
//!
//! Health probes pass without a check, `/openapi.json` and `/docs` without a key. CORS preflights carry no key and
//! are answered in this layer.

use crate::cross_origin::{self, Source};
use crate::gateway::keys::{Caller, Keys, Scope, Scopes};
use crate::host_allow_list::HostAllowList;
use crate::{error_response, openapi, presented_key};
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderValue, Uri, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use generate::error::{ApiError, ErrorKind};
use std::sync::{Arc, PoisonError, RwLock};
use wire::codings;

/// The keys and host names that are accepted.
pub(crate) struct Authentication {
    keys: Arc<Keys>,
    hosts: Arc<RwLock<HostAllowList>>,
}

impl Authentication {
    /// A layer that accepts these keys and host names.
    pub(crate) fn new(keys: Arc<Keys>, hosts: Arc<RwLock<HostAllowList>>) -> Self {
        Self { keys, hosts }
    }

    /// Puts the caller into the request's extensions and removes the key from the header fields.
    fn check(&self, request: &mut Request) -> Result<Checked, ApiError> {
        codings::expect_plain(request.headers())?;
        let path = request.uri().path();
        let is_health = path == "/health" || path.starts_with("/health/");
        if !is_health {
            self.expect_host(request)?;
        }
        let source = Source::of_request(request);
        if cross_origin::is_preflight(request) {
            source.expect_allowed()?;
            return Ok(Checked::Preflight);
        }
        source.expect_asked(request)?;
        if is_health || openapi::is_open(path) {
            return Ok(Checked::Request);
        }
        let key = presented_key::presented(request.headers())?;
        if self.keys.are_required() {
            presented_key::expect_one(request.headers())?;
        }
        let caller = self
            .keys
            .identify(key)
            .ok_or_else(|| unauthorized(key.is_some()))?;
        let needed = needed(path);
        if !caller.scopes.has_any(needed) {
            let words = format!("this API key lacks the required scope: {needed}");
            return Err(ApiError::caller(
                ErrorKind::Forbidden,
                "insufficient_scope",
                words,
            ));
        }
        presented_key::strip(request.headers_mut());
        request.extensions_mut().insert(caller);
        Ok(Checked::Request)
    }

    fn is_ours(&self, host: &str) -> bool {
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        hosts.allow(host)
    }

    fn expect_host(&self, request: &Request) -> Result<(), ApiError> {
        match named(request) {
            // The field is optional in HTTP/1.0; browsers always send it.
            Named::Nothing if request.version() < Version::HTTP_11 => Ok(()),
            Named::Host(host) if self.is_ours(host) => Ok(()),
            Named::Host(_) => Err(ApiError::caller(
                ErrorKind::Misdirected,
                "misdirected_request",
                "this host name is not allowed (the operator can add it: server.hosts)",
            )),
            Named::Nothing | Named::Nonsense => Err(ApiError::bad_request(
                "invalid_host",
                "the request must have one Host header field",
            )),
        }
    }
}

/// A request that passed the checks.
enum Checked {
    /// Answered by a route.
    Request,
    /// Answered by the authentication layer.
    Preflight,
}

/// Passes a request on, or rejects it.
pub(crate) async fn authenticate(
    State(authentication): State<Arc<Authentication>>,
    mut request: Request,
    next: Next,
) -> Response {
    match authentication.check(&mut request) {
        Ok(Checked::Request) => next.run(request).await,
        Ok(Checked::Preflight) => cross_origin::preflight(&request),
        Err(error) => reject(request.uri().path(), &error),
    }
}

/// The caller of a request that passed the layer.
pub(crate) fn caller(extensions: &Extensions) -> Result<&Caller, ApiError> {
    // Unreachable: the layer sets the caller of every request that it passes on.
    extensions
        .get()
        .ok_or_else(|| ApiError::ours("internal_error", "the request has no caller"))
}

/// The scopes of a path; one of them is sufficient.
fn needed(path: &str) -> Scopes {
    match path {
        "/metrics" => Scopes::of(&[Scope::Metrics, Scope::Admin]),
        "/api/pull" | "/api/create" | "/api/copy" | "/api/delete" => Scopes::of(&[Scope::Admin]),
        "/v1/streams/feed" => Scopes::of(&[Scope::Admin]),
        "/v1/heartbeats/stream" => Scopes::of(&[Scope::Metrics, Scope::Admin]),
        path if path == "/v1/streams" || path.starts_with("/v1/streams/") => {
            Scopes::of(&[Scope::Inference, Scope::Admin])
        }
        _ => Scopes::of(&[Scope::Inference]),
    }
}

/// The host name in a request.
enum Named<'a> {
    Host(&'a str),
    Nothing,
    Nonsense,
}

/// The host of a request. A target in absolute form contains the host (RFC 9112, 3.2.2), but the `Host` field is
/// required too.
fn named(request: &Request) -> Named<'_> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) => Named::Nothing,
        (Some(host), None) => host.to_str().map_or(Named::Nonsense, Named::Host),
        (Some(_), Some(_)) => Named::Nonsense,
    };
    let uri = request.uri();
    let authority = uri.authority().filter(|_| is_absolute(uri));
    match (host, authority) {
        (Named::Nonsense, _) => Named::Nonsense,
        (Named::Nothing, Some(_)) if request.version() >= Version::HTTP_11 => Named::Nothing,
        (_, Some(authority)) => Named::Host(authority.as_str()),
        (host, None) => host,
    }
}

fn is_absolute(uri: &Uri) -> bool {
    uri.scheme().is_some()
}

fn unauthorized(presented: bool) -> ApiError {
    let words = if presented {
        "invalid API key"
    } else {
        "send an API key: the header authorization: Bearer ..., or x-api-key"
    };
    ApiError::caller(ErrorKind::Unauthenticated, "invalid_api_key", words)
}

/// The error response in the path's wire protocol, with the header field that HTTP requires for the status.
fn reject(path: &str, error: &ApiError) -> Response {
    let mut response = error_response::response(path, error);
    let (name, value) = match error.kind {
        ErrorKind::Unauthenticated => (header::WWW_AUTHENTICATE, "Bearer realm=\"millrace\""),
        ErrorKind::Forbidden => (
            header::WWW_AUTHENTICATE,
            "Bearer realm=\"millrace\", error=\"insufficient_scope\"",
        ),
        // The accepted codings (RFC 9110, 12.5.3).
        ErrorKind::UnsupportedMedia => (header::ACCEPT_ENCODING, "identity"),
        _ => return response,
    };
    let headers = response.headers_mut();
    headers.insert(name, HeaderValue::from_static(value));
    response
}
