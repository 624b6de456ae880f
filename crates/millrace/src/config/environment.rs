//! Settings from environment variables: `server.bind` is `MILLRACE_SERVER_BIND`.

use super::problem_words::did_you_mean;
use serde_json::Value;

const PREFIX: &str = "MILLRACE_";

/// Variables with the prefix that are no settings.
const OTHERS: [&str; 9] = [
    "MILLRACE_CONFIG",
    "MILLRACE_DEBUG_STREAM_POLL",
    "MILLRACE_DEBUG_WORKFLOW_OPS",
    "MILLRACE_GPU_TESTS",
    "MILLRACE_ISA",
    "MILLRACE_SEED",
    super::api_keys::VARIABLE,
    super::api_keys::ONE,
    super::webhooks::VARIABLE,
];

/// The process's variables that begin with `MILLRACE_`; a value that is not UTF-8 has replacement characters.
pub(crate) fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_ours = name.starts_with(PREFIX);
        is_ours.then(|| (name, value.to_string_lossy().into_owned()))
    })
}

/// Whether a variable is one of those that Kubernetes puts into the environment of each container for a service of its
/// namespace, or `docker --link` for a container. The names of those of a service `millrace` or `millrace-...` begin as
/// those of settings do.
pub(super) fn is_service_link(name: &str, text: &str) -> bool {
    let is_url = text
        .split_once("://")
        .is_some_and(|(scheme, _)| matches!(scheme, "tcp" | "udp" | "sctp"));
    let is_port = |rest: &str| {
        // A port's number and protocol, then nothing or `_PROTO`, `_PORT`, `_ADDR`.
        let mut parts = rest.splitn(3, '_');
        let number = parts.next().unwrap_or_default();
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    };
    name.starts_with(PREFIX)
        && (name.ends_with("_SERVICE_HOST")
            || name.ends_with("_SERVICE_PORT")
            || name.contains("_SERVICE_PORT_")
            || (name.ends_with("_PORT") && is_url)
            || name
                .split_once("_PORT_")
                .is_some_and(|(_, rest)| is_port(rest)))
}

/// Whether a variable is meant to be a setting.
pub(super) fn is_setting(name: &str) -> bool {
    name.starts_with(PREFIX) && !OTHERS.contains(&name)
}

/// Key and value of a variable, with the type of the key's default.
pub(super) fn setting(
    known: &[(String, Value)],
    name: &str,
    text: &str,
) -> Result<(String, Value), String> {
    let (key, default) = known
        .iter()
        .find(|(key, _)| variable(key) == name)
        .ok_or_else(|| {
            let hint = did_you_mean(name, known.iter().map(|(key, _)| variable(key)));
            format!("{name}: there is no such setting{hint}")
        })?;
    Ok((key.clone(), typed_value(default, text)))
}

/// The variable of a key.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// A variable's value: text if the default is text; a list as JSON or as words with commas between them; else JSON. Text
/// that is not valid JSON stays text, which the typed settings reject by name.
fn typed_value(default: &Value, text: &str) -> Value {
    if default.is_string() {
        return Value::String(text.to_owned());
    }
    if default.is_array() && !text.trim_start().starts_with('[') {
        let words = text.split(',').map(str::trim);
        return words.filter(|word| !word.is_empty()).collect();
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::is_service_link;

    #[test]
    fn variables_of_services_are_no_settings() {
        let links = [
            ("MILLRACE_SERVICE_HOST", "10.96.7.1"),
            ("MILLRACE_SERVICE_PORT", "8420"),
            ("MILLRACE_SERVICE_PORT_HTTP", "8420"),
            ("MILLRACE_PORT", "tcp://10.96.7.1:8420"),
            ("MILLRACE_PORT_8420_TCP", "tcp://10.96.7.1:8420"),
            ("MILLRACE_PORT_8420_TCP_PROTO", "tcp"),
            ("MILLRACE_PORT_8420_TCP_PORT", "8420"),
            ("MILLRACE_PORT_8420_TCP_ADDR", "10.96.7.1"),
            ("MILLRACE_PODS_SERVICE_HOST", "10.96.7.2"),
            ("MILLRACE_PODS_SERVICE_PORT", "53"),
            ("MILLRACE_PODS_PORT", "udp://10.96.7.2:53"),
        ];
        for (name, text) in links {
            assert!(is_service_link(name, text), "{name}");
        }
        let others = [
            ("MILLRACE_SERVER_BIND", "0.0.0.0:8420"),
            ("MILLRACE_SERVER_PORT", "8420"),
            ("MILLRACE_PORTS", "tcp://10.96.7.1:8420"),
            ("MILLRACE_PORT", "8420"),
            ("MILLRACE_PORT_RANGE", "8420"),
        ];
        for (name, text) in others {
            assert!(!is_service_link(name, text), "{name}");
        }
    }
}
