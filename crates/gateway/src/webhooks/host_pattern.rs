//! Hosts that may receive events.

use std::fmt;

/// An entry of `webhooks.allowed_hosts`: a host, `*.` and a domain for its subdomains, or `*`; with `:PORT` or `:*`, or
/// the default port of the scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    host: HostName,
    port: Port,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostName {
    Any,
    /// Subdomains of this domain, which begins with a dot.
    Under(String),
    Exact(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Default,
    Any,
    Number(u16),
}

impl HostPattern {
    /// Reads an entry. IPv6 addresses are in brackets.
    ///
    /// # Errors
    /// The text is no such entry.
    pub fn parse(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "{text:?} is not a host, *.DOMAIN or *, with a port or :* behind it where it is another one"
            )
        };
        let text_lower = text.trim().to_ascii_lowercase();
        let after_address = text_lower.rfind(']').map_or(0, |end| end + 1);
        let (host, port) = match text_lower[after_address..].split_once(':') {
            None => (text_lower.as_str(), Port::Default),
            Some((before, port)) => {
                let host = &text_lower[..after_address + before.len()];
                let port = match port {
                    "*" => Port::Any,
                    port => Port::Number(port.parse().map_err(|_| invalid())?),
                };
                (host, port)
            }
        };
        let is_domain = |name: &str| {
            let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            !name.is_empty() && name.chars().all(is_good) && !name.starts_with('.')
        };
        let host = match host {
            "*" => HostName::Any,
            host => match host.strip_prefix("*.") {
                Some(domain) if is_domain(domain) => HostName::Under(format!(".{domain}")),
                None if is_domain(host) || host.starts_with('[') => {
                    HostName::Exact(host.to_owned())
                }
                _ => return Err(invalid()),
            },
        };
        Ok(Self { host, port })
    }

    /// Whether a host, in lower case, and a port are allowed; `is_default`: the port is that of the scheme.
    pub(crate) fn permits(&self, host: &str, port: u16, is_default: bool) -> bool {
        let host_fits = match &self.host {
            HostName::Any => true,
            HostName::Under(domain) => host.len() > domain.len() && host.ends_with(domain),
            HostName::Exact(name) => name == host,
        };
        let port_fits = match self.port {
            Port::Default => is_default,
            Port::Any => true,
            Port::Number(number) => number == port,
        };
        host_fits && port_fits
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostName::Any => f.write_str("*")?,
            HostName::Under(domain) => write!(f, "*{domain}")?,
            HostName::Exact(name) => f.write_str(name)?,
        }
        match self.port {
            Port::Default => Ok(()),
            Port::Any => f.write_str(":*"),
            Port::Number(number) => write!(f, ":{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_permit_their_hosts_and_ports() {
        let rows = [
            ("hooks.example.com", "hooks.example.com", 443, true),
            ("Hooks.Example.com", "hooks.example.com", 443, true),
            ("hooks.example.com", "hooks.example.com", 8443, false),
            ("hooks.example.com:8443", "hooks.example.com", 8443, true),
            ("hooks.example.com:8443", "hooks.example.com", 443, false),
            ("hooks.example.com:*", "hooks.example.com", 1, true),
            ("hooks.example.com", "evil-hooks.example.com", 443, false),
            ("*.example.com", "a.b.example.com", 443, true),
            ("*.example.com", "example.com", 443, false),
            ("*.example.com", "evilexample.com", 443, false),
            ("*", "anything.test", 443, true),
            ("*", "anything.test", 444, false),
            ("*:*", "anything.test", 444, true),
            ("[::1]:*", "[::1]", 9, true),
            ("127.0.0.1:9", "127.0.0.1", 9, true),
        ];
        for (pattern, host, port, want) in rows {
            let parsed = HostPattern::parse(pattern).expect(pattern);
            assert_eq!(
                parsed.permits(host, port, port == 443),
                want,
                "{pattern} {host}:{port}"
            );
        }
    }

    #[test]
    fn text_that_is_no_host_is_rejected() {
        for text in [
            "",
            "https://a.b",
            "a/b",
            "a:b",
            "a:70000",
            "*a.b",
            "*.",
            ".a",
            "a b",
            "a@b",
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text:?}");
        }
    }
}
