//! The authentication layer: host allow-list, API key and scope of every request.
//!
//! Health probes pass without a check; the page, `/openapi.json` and `/docs` without a key. CORS preflights carry no key and
//! are answered in this layer.

use crate::access::cross_origin::{self, RequestOrigin};
use crate::access::origins::HostAllowList;
use crate::config::live_config::LiveConfig;
use crate::peers::{FORWARDED, Peers, SealedRequest, SeenNonces};
use crate::request::request_body;
use crate::request_line::RequestLine;
use crate::response;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use axum::middleware::Next;
use axum::response::Response;
use gateway::keys::{Caller, Keys, Scope, Scopes};
use generate::error::{ApiError, ErrorKind};
use std::sync::{Arc, PoisonError, RwLock};
use stream::Owner;

/// The keys and host names that are accepted.
pub(crate) struct Authentication {
    keys: Arc<Keys>,
    hosts: Arc<RwLock<HostAllowList>>,
    /// Requests that other gateways of the cluster pass on.
    peers: Option<TrustedPeers>,
}

/// What requests of other gateways are checked with.
struct TrustedPeers {
    peers: Peers,
    nonces: SeenNonces,
    config: Arc<LiveConfig>,
}

impl Authentication {
    /// A layer that accepts these keys and host names.
    pub(crate) fn new(keys: Arc<Keys>, hosts: Arc<RwLock<HostAllowList>>) -> Self {
        Self {
            keys,
            hosts,
            peers: None,
        }
    }

    /// Believes these gateways in whose name they ask, if they have the secret of this one.
    pub(crate) fn in_cluster(self, peers: Peers, config: Arc<LiveConfig>) -> Self {
        Self {
            peers: Some(TrustedPeers {
                peers,
                nonces: SeenNonces::default(),
                config,
            }),
            ..self
        }
    }

    /// Puts the caller into the request's extensions and removes the key from the header fields.
    fn check_request(&self, request: &mut Request) -> Result<CheckedRequest, ApiError> {
        request_body::expect_plain(request.headers())?;
        let path = request.uri().path();
        if !is_health(path) {
            self.expect_host(request)?;
        }
        let source = RequestOrigin::of_request(request);
        if cross_origin::is_preflight(request) {
            source.expect_allowed()?;
            return Ok(CheckedRequest::Preflight);
        }
        source.expect_preflighted(request)?;
        if is_public(path) {
            return Ok(CheckedRequest::Route);
        }
        let sealed = self.open_sealed(request)?;
        if let Some(sealed) = sealed {
            let caller = self.keys.caller_of(sealed.owner());
            let caller = caller.ok_or_else(|| unauthorized_error(true))?;
            self.accept(request, caller)?;
            return Ok(CheckedRequest::Sealed(sealed));
        }
        let caller = self.identify(find_keys(request.headers())?)?;
        self.accept(request, caller)?;
        Ok(CheckedRequest::Route)
    }

    /// The request of another gateway; `None`: a caller's own.
    fn open_sealed(&self, request: &Request) -> Result<Option<SealedRequest>, ApiError> {
        let value = request.headers().get(FORWARDED);
        let (Some(value), Some(trusted)) = (value.filter(|value| *value != "1"), &self.peers)
        else {
            return Ok(None);
        };
        SealedRequest::open(request, value, trusted.peers.trust(), &trusted.nonces).map(Some)
    }

    /// Puts a caller with a sufficient scope into the request's extensions, and removes the key.
    fn accept(&self, request: &mut Request, caller: Caller) -> Result<(), ApiError> {
        if let Some(line) = request.extensions().get::<Arc<RequestLine>>() {
            line.set_key(caller.name());
        }
        let required = required_scopes(request.method(), request.uri().path());
        if !caller.scopes.has_any(required) {
            let message = format!("this API key lacks the required scope: {required}");
            return Err(ApiError::caller(
                ErrorKind::Forbidden,
                "insufficient_scope",
                message,
            ));
        }
        remove_keys(request.headers_mut());
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(Arc::clone(&self.keys));
        Ok(())
    }

    /// The complete request, if its body is the one that was sealed.
    async fn read_sealed(
        &self,
        sealed: &SealedRequest,
        request: Request,
    ) -> Result<Request, ApiError> {
        let Some(trusted) = &self.peers else {
            return Ok(request);
        };
        let (head, body) = request.into_parts();
        let body = request_body::read(&head.headers, body, &trusted.config.now()).await?;
        sealed.check_body(&body)?;
        Ok(Request::from_parts(head, Body::from(body)))
    }

    /// The caller with the presented key. Of two keys the valid one counts: clients send a placeholder in one of the headers.
    ///
    /// # Errors
    /// No key is valid, or both are.
    fn identify(&self, keys: KeyPair<'_>) -> Result<Caller, ApiError> {
        let first = self.keys.identify(keys.bearer);
        if !self.keys.are_required() {
            return first.ok_or_else(|| unauthorized_error(keys.bearer.is_some()));
        }
        let second = keys.other.and_then(|key| self.keys.identify(Some(key)));
        match (first, second) {
            (Some(_), Some(_)) => Err(KeyPair::ambiguous()),
            (first, second) => first
                .or(second)
                .ok_or_else(|| unauthorized_error(keys.bearer.is_some())),
        }
    }

    fn is_allowed_host(&self, host: &str) -> bool {
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        hosts.allows_host(host)
    }

    fn expect_host(&self, request: &Request) -> Result<(), ApiError> {
        match requested_host(request) {
            // The field is optional in HTTP/1.0; browsers always send it.
            RequestHost::Missing if request.version() < Version::HTTP_11 => Ok(()),
            RequestHost::Host(host) if self.is_allowed_host(host) => Ok(()),
            RequestHost::Host(_) => Err(ApiError::caller(
                ErrorKind::Misdirected,
                "misdirected_request",
                "this host name is not allowed (the operator can add it: server.hosts)",
            )),
            RequestHost::Missing | RequestHost::Invalid => Err(ApiError::bad_request(
                "invalid_host",
                "the request must have one Host header field",
            )),
        }
    }
}

/// A request that passed the checks.
enum CheckedRequest {
    /// Answered by a route.
    Route,
    /// Passed on by another gateway, and answered by a route.
    Sealed(SealedRequest),
    /// Answered by the authentication layer.
    Preflight,
}

/// Passes a request on, or rejects it.
pub(crate) async fn authenticate(
    State(authentication): State<Arc<Authentication>>,
    mut request: Request,
    next: Next,
) -> Response {
    match authentication.check_request(&mut request) {
        Ok(CheckedRequest::Route) => next.run(request).await,
        Ok(CheckedRequest::Sealed(sealed)) => {
            let path = request.uri().path().to_owned();
            match authentication.read_sealed(&sealed, request).await {
                Ok(request) => {
                    let mut response = next.run(request).await;
                    sealed.seal_answer(&mut response);
                    response
                }
                Err(error) => reject_request(&path, &error),
            }
        }
        Ok(CheckedRequest::Preflight) => cross_origin::preflight_response(&request),
        Err(error) => reject_request(request.uri().path(), &error),
    }
}

/// The caller of a request that passed the layer.
pub(crate) fn caller(extensions: &Extensions) -> Result<&Caller, ApiError> {
    // Unreachable: the layer sets the caller of every request that it passes on.
    extensions
        .get()
        .ok_or_else(|| ApiError::ours("internal_error", "the request has no caller"))
}

/// The name of the key that owns a stream, which is told to callers with the scope `admin`.
pub(crate) fn owner_name(extensions: &Extensions, owner: Owner) -> Option<String> {
    let caller = extensions.get::<Caller>()?;
    let keys = extensions.get::<Arc<Keys>>()?;
    let is_told = caller.scopes.has(Scope::Admin);
    let name = is_told.then(|| keys.name_of(owner)).flatten()?;
    Some(name.to_string())
}

/// Whether a path is answered without an API key.
pub(crate) fn is_public(path: &str) -> bool {
    is_health(path) || matches!(path, "/" | "/openapi.json" | "/docs") || path.starts_with("/page/")
}

fn is_health(path: &str) -> bool {
    path == "/health" || path.starts_with("/health/")
}

/// The scopes of a method and path; one of them is sufficient.
fn required_scopes(method: &Method, path: &str) -> Scopes {
    match path {
        "/metrics" => Scopes::of(&[Scope::Metrics, Scope::Admin]),
        "/api/pull" | "/api/create" | "/api/copy" | "/api/delete" => Scopes::of(&[Scope::Admin]),
        "/lora-adapters" if method == Method::POST => Scopes::of(&[Scope::Admin]),
        "/v1/cluster" => Scopes::of(&[Scope::Admin]),
        "/v1/heartbeats/stream" => Scopes::of(&[Scope::Metrics, Scope::Admin]),
        path if path == "/v1/streams"
            || path.starts_with("/v1/streams/")
            || path.starts_with("/v1/stream/")
            || path.starts_with("/v1/webhooks/") =>
        {
            Scopes::of(&[Scope::Inference, Scope::Admin])
        }
        _ => Scopes::of(&[Scope::Inference]),
    }
}

/// The host name in a request.
enum RequestHost<'a> {
    Host(&'a str),
    Missing,
    Invalid,
}

/// The host of a request. A target in absolute form contains the host (RFC 9112, 3.2.2), but the `Host` field is
/// required too.
fn requested_host(request: &Request) -> RequestHost<'_> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) => RequestHost::Missing,
        (Some(host), None) => host
            .to_str()
            .map_or(RequestHost::Invalid, RequestHost::Host),
        (Some(_), Some(_)) => RequestHost::Invalid,
    };
    let uri = request.uri();
    let authority = uri.authority().filter(|_| is_absolute(uri));
    match (host, authority) {
        (RequestHost::Invalid, _) => RequestHost::Invalid,
        (RequestHost::Missing, Some(_)) if request.version() >= Version::HTTP_11 => {
            RequestHost::Missing
        }
        (_, Some(authority)) => RequestHost::Host(authority.as_str()),
        (host, None) => host,
    }
}

fn is_absolute(uri: &Uri) -> bool {
    uri.scheme().is_some()
}

fn unauthorized_error(presented: bool) -> ApiError {
    let message = if presented {
        "invalid API key"
    } else {
        "send an API key: the header authorization: Bearer ..., or x-api-key"
    };
    ApiError::caller(ErrorKind::Unauthenticated, "invalid_api_key", message)
}

/// The error response in the path's wire protocol, with the header field that HTTP requires for the status.
fn reject_request(path: &str, error: &ApiError) -> Response {
    let mut response = response::for_path(path, error);
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
    fn ambiguous() -> ApiError {
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
fn find_keys(headers: &HeaderMap) -> Result<KeyPair<'_>, ApiError> {
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
