//! Address and header fields of the OpenTelemetry collector.

use axum::http::uri::Scheme;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use std::fmt;

/// The path that OTLP appends to the address of a collector.
const METRICS_PATH: &str = "/v1/metrics";
/// The default port of OTLP over HTTP.
const PORT: u16 = 4318;
/// Configured header fields.
const HEADERS_MAX: usize = 16;
/// Bytes of all configured header fields.
const HEADERS_BYTES_MAX: usize = 8 << 10;

/// A collector that accepts OTLP over HTTP. Neither `Debug` nor `Display` shows the values of header fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpTarget {
    /// Host name or address, without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// Value of the `Host` field.
    pub(super) authority: HeaderValue,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
}

impl OtlpTarget {
    /// The target of a base URL such as `http://127.0.0.1:4318`, to which `/v1/metrics` is appended.
    ///
    /// # Errors
    /// Why the URL is invalid, without repeating the URL.
    pub fn at(endpoint: &str) -> Result<Self, String> {
        let uri: Uri = endpoint
            .parse()
            .map_err(|_| "is not an address such as http://127.0.0.1:4318")?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err("must begin with http://; for TLS, send to a collector nearby".to_owned());
        }
        let (Some(authority), Some(host)) = (uri.authority(), uri.host()) else {
            return Err("names no host".to_owned());
        };
        if authority.as_str().contains('@') || uri.query().is_some() {
            let why = "must be scheme, host, port and path only; secrets go into header fields";
            return Err(why.to_owned());
        }
        let authority = HeaderValue::from_str(authority.as_str());
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(PORT),
            authority: authority.map_err(|_| "names no host")?,
            path: format!("{}{METRICS_PATH}", uri.path().trim_end_matches('/')),
            headers: HeaderMap::new(),
        })
    }

    /// The target with header fields, `name=value,other=value`; values are percent-encoded where they contain commas
    /// or blanks (as in `OTEL_EXPORTER_OTLP_HEADERS`).
    ///
    /// # Errors
    /// The number of the invalid entry, without its content.
    pub fn with_headers(mut self, text: &str) -> Result<Self, String> {
        if text.len() > HEADERS_BYTES_MAX {
            return Err(format!("has more than {HEADERS_BYTES_MAX} bytes"));
        }
        let entries = text.split(',').map(str::trim).enumerate();
        for (i, entry) in entries.filter(|(_, entry)| !entry.is_empty()) {
            let (name, value) =
                parse_field(entry).map_err(|why| format!("entry {}: {why}", i + 1))?;
            self.headers.append(name, value);
        }
        if self.headers.len() > HEADERS_MAX {
            return Err(format!("has more than {HEADERS_MAX} entries"));
        }
        Ok(self)
    }
}

/// The URL for the log.
impl fmt::Display for OtlpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "http://[{}]:{}{}", self.host, self.port, self.path),
            false => write!(f, "http://{}:{}{}", self.host, self.port, self.path),
        }
    }
}

fn parse_field(entry: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let (name, value) = entry.split_once('=').ok_or("must be name=value")?;
    let name: HeaderName = name.trim().parse().map_err(|_| "is no field's name")?;
    let value: Vec<u8> = percent_decode_str(value.trim()).collect();
    let mut value = HeaderValue::from_bytes(&value).map_err(|_| "is no field's value")?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_becomes_a_target_url() {
        for (endpoint, place) in [
            ("http://127.0.0.1:9", "http://127.0.0.1:9/v1/metrics"),
            ("http://otel.lan", "http://otel.lan:4318/v1/metrics"),
            ("http://[::1]:7/", "http://[::1]:7/v1/metrics"),
            (
                "http://otel.lan/a/b/",
                "http://otel.lan:4318/a/b/v1/metrics",
            ),
        ] {
            assert_eq!(OtlpTarget::at(endpoint).unwrap().to_string(), place);
        }
        let host = OtlpTarget::at("http://[::1]:7").unwrap().host;
        assert_eq!(host, "::1", "as the system takes it");
        for bad in [
            "",
            "127.0.0.1:4318",
            "https://otel.lan",
            "http://me:sesame@otel.lan",
            "http://otel.lan?key=sesame",
            "http:///v1",
        ] {
            let why = OtlpTarget::at(bad).expect_err(bad);
            assert!(!why.contains("sesame"), "{why}");
        }
    }

    #[test]
    fn header_values_are_decoded_and_never_shown() {
        let target = OtlpTarget::at("http://otel.lan").unwrap();
        let text = " authorization=Basic%20sesame= , x-scope=a%2Cb,";
        let parsed = target.clone().with_headers(text).unwrap();
        assert_eq!(parsed.headers["authorization"], "Basic sesame=");
        assert_eq!(parsed.headers["x-scope"], "a,b");
        let shown = format!("{parsed:?} {parsed}");
        assert!(!shown.contains("sesame"), "{shown}");
        let many = "a=1,".repeat(HEADERS_MAX + 1);
        let long = "a".repeat(HEADERS_BYTES_MAX + 1);
        for bad in ["sesame", "a b=sesame", "a=%0Asesame", &many, &long] {
            let why = target.clone().with_headers(bad).expect_err(bad);
            assert!(!why.contains("sesame"), "{why}");
        }
    }
}
