//! The origins of web pages that may send cross-origin requests.

use std::net::IpAddr;

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
