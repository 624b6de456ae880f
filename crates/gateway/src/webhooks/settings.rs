//! What the operator allows: hosts, and bounds of deliveries.

use std::fmt;
use std::time::Duration;

/// Longest delay between two attempts of a delivery.
const DELAY_MAX: Duration = Duration::from_secs(60 * 60);

/// Permissions and bounds by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Hosts that may receive events; empty: webhooks are off.
    pub allowed_hosts: Vec<HostPattern>,
    /// Whether URLs may be `http://`.
    pub allow_http: bool,
    /// Whether hosts may have addresses that are not public.
    pub allow_private: bool,
    /// Time of one attempt.
    pub timeout: Duration,
    /// Attempts at one time; a key has at most half of them.
    pub in_flight_max: usize,
    /// Running streams with a webhook, and events to be delivered; a key has at most half of them.
    pub waiting_max: usize,
    /// Attempts of one delivery.
    pub attempts_max: u32,
    /// Age of a delivery after which there is no further attempt.
    pub age_max: Duration,
    /// Delay after the first failed attempt; each further delay is four times as long.
    pub retry: Duration,
    /// Deliveries that failed and are kept.
    pub dead_letters_max: usize,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allow_http: false,
            allow_private: false,
            timeout: Duration::from_secs(15),
            in_flight_max: 8,
            waiting_max: 1024,
            attempts_max: 12,
            age_max: Duration::from_secs(24 * 60 * 60),
            retry: Duration::from_secs(5),
            dead_letters_max: 1024,
        }
    }
}

impl WebhookSettings {
    /// Whether any webhook is accepted.
    pub fn is_on(&self) -> bool {
        !self.allowed_hosts.is_empty()
    }

    /// Delay after so many failed attempts: exponential, with 20 % of jitter up or down.
    pub(crate) fn delay(&self, failed: u32, random: u64) -> Duration {
        let factor = 4_u32.saturating_pow(failed.saturating_sub(1).min(15));
        let delay = self.retry.saturating_mul(factor).min(DELAY_MAX);
        let permille = 800 + u32::try_from(random % 401).unwrap_or(0);
        delay * permille / 1000
    }
}

/// Half of a bound, for one key.
pub(crate) fn share(bound: usize) -> usize {
    bound.div_ceil(2)
}

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
    fn delay_grows_up_to_an_hour_with_jitter() {
        let settings = WebhookSettings::default();
        let seconds = |failed, random| settings.delay(failed, random).as_millis();
        assert_eq!(
            [seconds(1, 0), seconds(1, 200), seconds(1, 400)],
            [4000, 5000, 6000]
        );
        let middle: Vec<_> = (1..=8).map(|failed| seconds(failed, 200) / 1000).collect();
        assert_eq!(middle, [5, 20, 80, 320, 1280, 3600, 3600, 3600]);
        assert_eq!(seconds(u32::MAX, 400), 4_320_000);
    }
}

#[cfg(test)]
mod host_pattern_tests {
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
