//! The collector of exported metrics, and the header fields of the export.
//!
//! The header fields come only from the environment, `MILLRACE_OTLP_HEADERS="name=value,other=value"`, like API keys:
//! settings are printed, secrets must not be.

use super::Settings;
use std::fmt;

/// The variable.
pub(super) const VARIABLE: &str = "MILLRACE_OTLP_HEADERS";

/// The setting.
pub(super) const ENDPOINT: &str = "metrics.otlp_endpoint";

/// The variable's text, which may hold secrets: `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct OtlpHeaders(pub(super) String);

impl fmt::Debug for OtlpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OtlpHeaders(..)")
    }
}

/// The problem, and whether the variable or the setting has it.
pub(super) fn problem(
    settings: &Settings,
    headers: &OtlpHeaders,
) -> Option<(&'static str, String)> {
    target(settings, headers).err()
}

#[cfg(not(feature = "otlp"))]
fn target(settings: &Settings, _: &OtlpHeaders) -> Result<(), (&'static str, String)> {
    match settings.metrics.otlp_endpoint {
        Some(_) => {
            let why = "this millrace was built without OTLP (cargo build --features otlp)";
            Err((ENDPOINT, why.to_owned()))
        }
        None => Ok(()),
    }
}

/// `None`: no export.
#[cfg(feature = "otlp")]
fn target(
    settings: &Settings,
    headers: &OtlpHeaders,
) -> Result<Option<server::OtlpTarget>, (&'static str, String)> {
    let Some(endpoint) = &settings.metrics.otlp_endpoint else {
        return Ok(None);
    };
    let target = server::OtlpTarget::at(endpoint).map_err(|why| (ENDPOINT, why))?;
    let target = target.with_headers(&headers.0);
    target.map(Some).map_err(|why| (VARIABLE, why))
}

/// A server that exports metrics to the collector of these settings.
#[cfg(feature = "otlp")]
pub(crate) fn with_otlp(
    server: server::ServerConfig,
    config: &super::Config,
) -> server::ServerConfig {
    // Problems were reported when the settings were read.
    let otlp = target(&config.settings, &config.otlp_headers);
    server::ServerConfig {
        otlp: otlp.unwrap_or_default(),
        ..server
    }
}

#[cfg(test)]
mod tests {
    use super::super::Layers;
    use super::*;

    /// All problems with `MILLRACE_OTLP_HEADERS` and `metrics.otlp_endpoint`.
    fn told(endpoint: &str, headers: &str) -> Result<String, String> {
        let vars = [
            ("MILLRACE_METRICS_OTLP_ENDPOINT", endpoint),
            (VARIABLE, headers),
        ];
        let vars = vars.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let config = Layers::defaults().environment(vars.into_iter()).finish();
        config
            .map(|config| format!("{config:?}"))
            .map_err(|why| why.to_string())
    }

    #[cfg(not(feature = "otlp"))]
    #[test]
    fn endpoint_without_the_feature_is_rejected_with_advice() {
        let why = told("http://127.0.0.1:4318", "a=sesame").unwrap_err();
        assert!(
            why.contains(ENDPOINT) && why.contains("--features otlp"),
            "{why}"
        );
        assert!(!why.contains("sesame"), "{why}");
    }

    #[cfg(feature = "otlp")]
    #[test]
    fn invalid_value_is_named_without_secrets() {
        let shown = told("http://127.0.0.1:4318", "authorization=sesame").unwrap();
        assert!(!shown.contains("sesame"), "{shown}");
        for (endpoint, headers, named) in [
            ("https://127.0.0.1", "", ENDPOINT),
            ("nowhere", "", ENDPOINT),
            ("http://127.0.0.1:4318", "sesame", VARIABLE),
        ] {
            let why = told(endpoint, headers).expect_err(endpoint);
            assert!(why.contains(named) && !why.contains("sesame"), "{why}");
        }
    }
}
