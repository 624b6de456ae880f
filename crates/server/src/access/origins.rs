//! The origins of web pages that may send cross-origin requests.
//!
//! The host allow-list, against DNS rebinding.
//!
//! A web page can point a domain at 127.0.0.1 and let the browser send requests to this server as if the server
//! belonged to the page. Such a request carries the page's host name, which is not in the list.

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
mod tests {
    use super::{HostAllowList, Origins};

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

    /// Listening address, configured names, a requested name, and whether the name is accepted.
    const HOSTS: &[(&str, &[&str], &str, bool)] = &[
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
        for &(bind, names, called, ours) in HOSTS {
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
