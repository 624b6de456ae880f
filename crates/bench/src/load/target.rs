//! Address of a server.

use std::fmt;

/// Address of a server and the path of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `host:port`, for the connection and the `Host` header.
    pub(crate) authority: String,
    /// Path before the endpoints without a trailing slash; ends in `/v1`.
    pub(crate) base: String,
}

/// An invalid address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetError(String);

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TargetError {}

impl std::str::FromStr for Target {
    type Err = TargetError;

    /// Parses `http://HOST[:PORT][/PATH]`; `/v1` is appended where the path does not end in it.
    fn from_str(url: &str) -> Result<Self, TargetError> {
        let wrong = |why: &str| TargetError(format!("{url:?}: {why}"));
        let uri: http::Uri = url.parse().map_err(|why| wrong(&format!("{why}")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(wrong("TLS would be measured too; use http")),
            _ => return Err(wrong("must begin with http://")),
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("names no host"))?;
        let port = uri.port_u16().unwrap_or(80);
        let path = uri.path().trim_end_matches('/');
        let base = if path.ends_with("/v1") {
            path.to_owned()
        } else {
            format!("{path}/v1")
        };
        Ok(Self {
            authority: format!("{host}:{port}"),
            base,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_url_forms_are_parsed() {
        let rows = [
            ("http://127.0.0.1:8420", "127.0.0.1:8420", "/v1"),
            ("http://127.0.0.1:8420/", "127.0.0.1:8420", "/v1"),
            ("http://127.0.0.1:8420/v1", "127.0.0.1:8420", "/v1"),
            ("http://host/v1/", "host:80", "/v1"),
            ("http://host:1/proxy", "host:1", "/proxy/v1"),
            ("http://[::1]:9", "[::1]:9", "/v1"),
        ];
        for (url, authority, base) in rows {
            let target: Target = url.parse().unwrap();
            assert_eq!(
                (&*target.authority, &*target.base),
                (authority, base),
                "{url}"
            );
        }
        for url in [
            "https://host",
            "host:80",
            "http://",
            "ftp://host",
            "",
            "/v1",
        ] {
            let error = url.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(&format!("{url:?}")), "{error}");
        }
    }
}
