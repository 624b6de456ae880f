//! The origins of web pages that may send cross-origin requests.
//!
//! The host allow-list, against DNS rebinding.
//!
//! A web page can point a domain at 127.0.0.1 and let the browser send requests to this server as if the server
//! belonged to the page. Such a request carries the page's host name, which is not in the list.
//!
//! Cross-origin requests of web pages (CORS, the Fetch standard).
//!
//! For requests without a body, or with a body that an HTML form could send, a browser sends the request of any
//! origin without a preflight and only withholds the response from the page. Before all other requests the browser
//! sends a preflight (`OPTIONS`). Therefore a page of another origin gets no successful preflight, and a request that
//! needs no preflight is rejected here; the server does not rely on the browser for more. Requests without `Origin`
//! come from programs, or only read.

use crate::request::extract;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use generate::error::{ApiError, ErrorKind};
use std::net::{IpAddr, SocketAddr};

/// Allows every origin.
const ANY: &str = "*";
/// Excludes the pages of this machine.
const NONE: &str = "none";
/// The origin of pages that have none: files, sandboxed frames.
const NULL: &str = "null";
/// Schemes of installed applications; no page of the web has such an origin.
const APP_SCHEMES: [&str; 5] = ["app", "file", "tauri", "vscode-file", "vscode-webview"];
/// Schemes of the web, with their default ports.
const WEB_SCHEMES: [(&str, u16); 2] = [("http", 80), ("https", 443)];

/// Origins of web pages that may use this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins {
    any: bool,
    /// Pages that this machine serves to itself, and installed applications.
    local: bool,
    null: bool,
    listed: Vec<Pattern>,
}

/// A pattern of origins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// Lower case.
    scheme: String,
    host: HostPattern,
    port: PortPattern,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Any,
    /// This host name (lower case; an IPv6 address in brackets).
    Is(String),
    /// A host name with this suffix, which begins with a dot.
    Under(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortPattern {
    Any,
    /// This port; `None` is the default port of the scheme.
    Is(Option<u16>),
}

impl Default for Origins {
    /// Pages of this machine and installed applications.
    fn default() -> Self {
        Self {
            any: false,
            local: true,
            null: false,
            listed: Vec::new(),
        }
    }
}

impl Origins {
    /// The listed origins and the pages of this machine. An entry is `scheme://host` or `scheme://host:port`, with
    /// `*` for the port, the host, or the first labels of the host (`https://*.example.com`); `null`; `*` for every
    /// origin; or `none` to exclude the pages of this machine.
    ///
    /// # Errors
    /// The invalid entry, and the reason.
    pub fn parse(entries: &[String]) -> Result<Self, String> {
        let mut origins = Self::default();
        for entry in entries {
            match entry.trim() {
                ANY => origins.any = true,
                NONE => origins.local = false,
                NULL => origins.null = true,
                entry => origins.listed.push(Pattern::parse(entry)?),
            }
        }
        Ok(origins)
    }

    /// Whether every origin is allowed.
    pub(crate) fn allows_any(&self) -> bool {
        self.any
    }

    /// Whether pages of this origin may use this server.
    pub(crate) fn allows_origin(&self, origin: &str) -> bool {
        if self.any || origin == NULL {
            return self.any || self.null;
        }
        let origin = origin.to_ascii_lowercase();
        let Some((scheme, host, port)) = split_origin(&origin) else {
            return false;
        };
        let is_local = self.local && is_local(scheme, host);
        is_local
            || self
                .listed
                .iter()
                .any(|listed| listed.matches_origin(scheme, host, port))
    }
}

impl Pattern {
    fn parse(entry: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{entry}` {why}");
        let lower = entry.to_ascii_lowercase();
        let lower = lower.strip_suffix('/').unwrap_or(&lower);
        let Some((scheme, authority)) = lower.split_once("://") else {
            return Err(wrong(
                "is not an origin: add the scheme, such as https://chat.example.com",
            ));
        };
        if authority.contains(['/', '?', '#', '@']) {
            return Err(wrong("must be a scheme, a host and a port only"));
        }
        if authority == ANY {
            return Ok(Self {
                scheme: scheme.to_owned(),
                host: HostPattern::Any,
                port: PortPattern::Any,
            });
        }
        let (any_port, authority) = match authority.strip_suffix(":*") {
            Some(authority) => (true, authority),
            None => (false, authority),
        };
        let origin = format!("{scheme}://{authority}");
        let Some((_, host, port)) = split_origin(&origin) else {
            return Err(wrong("is not an origin"));
        };
        let host = match host.strip_prefix('*') {
            Some("") => HostPattern::Any,
            Some(under) if under.starts_with('.') && !under.contains('*') => {
                HostPattern::Under(under.to_owned())
            }
            None if !host.contains('*') && !host.is_empty() => HostPattern::Is(host.to_owned()),
            _ => {
                return Err(wrong(
                    "has a * that does not stand for a port, a host, or a host's first names",
                ));
            }
        };
        Ok(Self {
            scheme: scheme.to_owned(),
            host,
            port: if any_port {
                PortPattern::Any
            } else {
                PortPattern::Is(port)
            },
        })
    }

    fn matches_origin(&self, scheme: &str, host: &str, port: Option<u16>) -> bool {
        let is_host = match &self.host {
            HostPattern::Any => true,
            HostPattern::Is(name) => name == host,
            HostPattern::Under(end) => host.len() > end.len() && host.ends_with(end.as_str()),
        };
        let is_port = match self.port {
            PortPattern::Any => true,
            PortPattern::Is(listed) => listed == port,
        };
        self.scheme == scheme && is_host && is_port
    }
}

/// Scheme, host and port of an origin in lower case; no port if the origin has the default port of the scheme.
fn split_origin(origin: &str) -> Option<(&str, &str, Option<u16>)> {
    let (scheme, authority) = origin.split_once("://")?;
    let ends_in_bracket = authority.ends_with(']');
    let (host, port) = match authority.rsplit_once(':').filter(|_| !ends_in_bracket) {
        Some((host, port)) => (host, Some(port.parse::<u16>().ok()?)),
        None => (authority, None),
    };
    let own = WEB_SCHEMES
        .iter()
        .find(|(web, _)| *web == scheme)
        .map(|&(_, port)| port);
    Some((scheme, host, port.filter(|_| port != own)))
}

/// Pages that this machine serves to itself, and installed applications.
fn is_local(scheme: &str, host: &str) -> bool {
    if APP_SCHEMES.contains(&scheme) {
        return true;
    }
    if !WEB_SCHEMES.iter().any(|(web, _)| *web == scheme) {
        return false;
    }
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    match literal.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback() || ip.is_unspecified(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Accepts every host name.
const ANY_HOST: &str = "*";
/// Names of the host machine inside containers. The top-level domain `internal` is reserved, so no web page can have
/// such a name.
const CONTAINER_HOSTS: [&str; 3] = [
    "gateway.docker.internal",
    "host.containers.internal",
    "host.docker.internal",
];

/// Host names that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostAllowList {
    /// Every name.
    Any,
    /// The names of this machine, the listening address, and these names (lower case).
    Listed(Vec<String>, IpAddr),
}

impl HostAllowList {
    /// The accepted names of a server that listens on `bind`. If `names` is empty, a server on loopback accepts the
    /// names of this machine, and any other server accepts all names.
    pub(crate) fn new(bind: SocketAddr, names: &[String]) -> Self {
        let open = names.is_empty() && !bind.ip().is_loopback();
        if open || names.iter().any(|name| name == ANY_HOST) {
            return Self::Any;
        }
        let names = names
            .iter()
            .map(|name| strip_port(name).to_ascii_lowercase());
        Self::Listed(names.collect(), bind.ip())
    }

    /// Whether the name in a `Host` field (or in the authority of a request target) is accepted. The port is ignored:
    /// a page can forge only the name.
    pub(crate) fn allows_host(&self, authority: &str) -> bool {
        let Self::Listed(names, bound) = self else {
            return true;
        };
        let name = strip_port(authority).to_ascii_lowercase();
        let literal = name.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = literal.parse::<IpAddr>() {
            return ip.to_canonical().is_loopback() || ip == *bound || names.contains(&name);
        }
        let is_this_machine = name == "localhost"
            || name.ends_with(".localhost")
            || CONTAINER_HOSTS.contains(&name.as_str());
        is_this_machine || names.contains(&name)
    }
}

/// The authority without the port and without the dot of the DNS root.
fn strip_port(authority: &str) -> &str {
    let port = authority
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
    let name = port.map_or(authority, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod host_allow_list_tests {
    use super::HostAllowList;

    /// Listening address, configured names, a requested name, and whether the name is accepted.
    const ROWS: &[(&str, &[&str], &str, bool)] = &[
        ("127.0.0.1:80", &[], "localhost", true),
        ("127.0.0.1:80", &[], "LocalHost:8420", true),
        ("127.0.0.1:80", &[], "localhost.:80", true),
        ("127.0.0.1:80", &[], "chat.localhost", true),
        ("127.0.0.1:80", &[], "127.0.0.1:9", true),
        ("127.0.0.1:80", &[], "127.8.8.8", true),
        ("127.0.0.1:80", &[], "[::1]:80", true),
        ("[::1]:80", &[], "[::1]", true),
        ("[::1]:80", &[], "[::ffff:127.0.0.1]:80", true),
        ("127.0.0.1:80", &[], "Host.Docker.internal:8420", true),
        ("127.0.0.1:80", &[], "host.containers.internal", true),
        ("127.0.0.1:80", &[], "other.docker.internal", false),
        (
            "127.0.0.1:80",
            &[],
            "host.docker.internal.evil.example",
            false,
        ),
        ("127.0.0.1:80", &[], "evil.example", false),
        ("127.0.0.1:80", &[], "localhost.evil.example", false),
        ("127.0.0.1:80", &[], "evillocalhost", false),
        ("127.0.0.1:80", &[], "127.0.0.1.evil.example", false),
        ("127.0.0.1:80", &[], "evil.example:127", false),
        ("127.0.0.1:80", &[], "10.0.0.1", false),
        ("127.0.0.1:80", &[], "0.0.0.0", false),
        ("127.0.0.1:80", &[], "", false),
        ("127.0.0.1:80", &[], ":80", false),
        ("127.0.0.1:80", &["Gpu.Lan"], "gpu.lan:443", true),
        ("127.0.0.1:80", &["gpu.lan"], "localhost", true),
        ("127.0.0.1:80", &["gpu.lan"], "cpu.lan", false),
        ("127.0.0.1:80", &["*"], "evil.example", true),
        ("0.0.0.0:80", &[], "anything.example", true),
        ("10.0.0.5:80", &["gpu.lan"], "10.0.0.5:80", true),
        ("10.0.0.5:80", &["gpu.lan"], "10.0.0.6:80", false),
        ("10.0.0.5:80", &["10.0.0.6"], "10.0.0.6:80", true),
        ("10.0.0.5:80", &["gpu.lan"], "evil.example", false),
    ];

    #[test]
    fn only_listed_host_names_are_accepted() {
        for &(bind, names, called, ours) in ROWS {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let hosts = HostAllowList::new(bind.parse().unwrap(), &names);
            assert_eq!(
                hosts.allows_host(called),
                ours,
                "{bind} {names:?} {called:?}"
            );
        }
    }
}

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
const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");
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
            return Self::Allowed(ANY_ORIGIN);
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
        if *request.method() == Method::POST && !extract::is_json(request.headers()) {
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

#[cfg(test)]
mod tests {
    use super::Origins;

    fn origins(entries: &[&str]) -> Result<Origins, String> {
        let entries: Vec<String> = entries.iter().map(|&entry| entry.to_owned()).collect();
        Origins::parse(&entries)
    }

    /// Entries, an origin, and whether its pages may use this server.
    const ROWS: &[(&[&str], &str, bool)] = &[
        (&[], "http://localhost", true),
        (&[], "http://localhost:3000", true),
        (&[], "https://LocalHost:3000", true),
        (&[], "http://chat.localhost:80", true),
        (&[], "http://127.0.0.1:5173", true),
        (&[], "http://127.8.8.8", true),
        (&[], "http://[::1]:80", true),
        (&[], "http://0.0.0.0:8000", true),
        (&[], "app://obsidian.md", true),
        (&[], "file://", true),
        (&[], "tauri://localhost", true),
        (&[], "vscode-webview://1abc", true),
        (&[], "null", false),
        (&[], "", false),
        (&[], "http://evil.example", false),
        (&[], "http://localhost.evil.example", false),
        (&[], "http://evillocalhost", false),
        (&[], "http://127.0.0.1.evil.example", false),
        (&[], "http://10.0.0.1", false),
        (&[], "chrome-extension://abc", false),
        (&[], "ftp://localhost", false),
        (&["none"], "http://localhost:3000", false),
        (&["none"], "app://obsidian.md", false),
        (&["none", "https://a.example"], "https://a.example", true),
        (&["https://a.example"], "http://localhost:3000", true),
        (&["https://a.example"], "https://A.example", true),
        (&["https://a.example/"], "https://a.example", true),
        (&["https://a.example:443"], "https://a.example", true),
        (&["https://a.example"], "https://a.example:8443", false),
        (&["https://a.example"], "http://a.example", false),
        (&["https://a.example"], "https://b.a.example", false),
        (&["https://a.example"], "https://a.example.evil", false),
        (&["https://a.example:*"], "https://a.example:8443", true),
        (&["https://*.example"], "https://b.a.example", true),
        (&["https://*.example"], "https://example", false),
        (&["https://*.example"], "https://.example", false),
        (&["https://*.example"], "https://a.example:9", false),
        (&["https://*.example:*"], "https://a.example:9", true),
        (&["http://*"], "http://10.0.0.5:99", true),
        (&["http://*"], "https://10.0.0.5", false),
        (&["chrome-extension://*"], "chrome-extension://abc", true),
        (&["null"], "null", true),
        (&["*"], "null", true),
        (&["*"], "https://evil.example", true),
    ];

    #[test]
    fn only_local_and_listed_origins_are_allowed() {
        for &(entries, origin, want) in ROWS {
            let origins = origins(entries).unwrap();
            assert_eq!(
                origins.allows_origin(origin),
                want,
                "{entries:?} {origin:?}"
            );
        }
    }

    #[test]
    fn invalid_origin_is_named_in_the_error() {
        for entry in [
            "a.example",
            "https://a.example/path",
            "https://a*.example",
            "https://*a.example",
            "https://a.*",
            "https://",
            "https://a:b",
            "https://u@a.example",
            "https://a.example:99999",
        ] {
            let why = origins(&[entry]).expect_err(entry);
            assert!(why.contains(entry), "{entry}: {why}");
        }
    }
}
