//! Where an upstream is.

use std::fmt;
use std::str::FromStr;

/// `http://host:port`, with a path in front of `/v1` or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamAddress {
    /// Host and port, as in the header field `Host`.
    pub(crate) authority: String,
    /// Begins with a slash, or is empty; does not end with one.
    prefix: String,
}

/// Why a text is no address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAddress(String);

impl fmt::Display for InvalidAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidAddress {}

impl UpstreamAddress {
    /// The path of a route that begins with a slash.
    pub(crate) fn path_of(&self, route: &str) -> String {
        format!("{}{route}", self.prefix)
    }
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

impl FromStr for UpstreamAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = |why: &str| InvalidAddress(format!("{why}, such as http://10.0.0.2:8000"));
        let uri: http::Uri = text.parse().map_err(|_| invalid("must be a URL"))?;
        if uri.scheme_str() != Some("http") {
            return Err(invalid(
                "must begin with http:// (TLS to an upstream is not supported)",
            ));
        }
        let authority = uri.authority().ok_or_else(|| invalid("must have a host"))?;
        if authority.as_str().contains('@') {
            return Err(invalid("must not contain a user: the key is a setting"));
        }
        if uri.query().is_some() {
            return Err(invalid("must not have a query"));
        }
        let port = authority.port_u16().unwrap_or(80);
        let prefix = uri.path().trim_end_matches('/');
        Ok(Self {
            authority: format!("{}:{port}", authority.host()),
            prefix: prefix.trim_end_matches("/v1").to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_has_a_host_a_port_and_a_prefix() {
        for (text, authority, path) in [
            ("http://a:8000", "a:8000", "/v1/completions"),
            ("http://a", "a:80", "/v1/completions"),
            ("http://a:1/", "a:1", "/v1/completions"),
            ("http://a:1/v1", "a:1", "/v1/completions"),
            ("http://[::1]:9/x/v1/", "[::1]:9", "/x/v1/completions"),
        ] {
            let address: UpstreamAddress = text.parse().unwrap();
            assert_eq!(address.authority, authority, "{text}");
            assert_eq!(address.path_of("/v1/completions"), path, "{text}");
        }
    }

    #[test]
    fn address_of_another_kind_is_rejected() {
        for text in [
            "",
            "a:8000",
            "https://a",
            "http://k@a",
            "http://a?x=1",
            "/v1",
        ] {
            assert!(text.parse::<UpstreamAddress>().is_err(), "{text}");
        }
    }
}
