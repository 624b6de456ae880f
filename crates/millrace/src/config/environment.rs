//! Settings from environment variables: `server.bind` is `MILLRACE_SERVER_BIND`.

use super::problem_words::did_you_mean;
use serde_json::Value;

const PREFIX: &str = "MILLRACE_";

/// Variables with the prefix that are no settings.
const OTHERS: [&str; 8] = [
    "MILLRACE_CONFIG",
    "MILLRACE_DEBUG_STREAM_POLL",
    "MILLRACE_DEBUG_WORKFLOW_OPS",
    "MILLRACE_ISA",
    "MILLRACE_SEED",
    super::api_keys::VARIABLE,
    super::api_keys::ONE,
    super::webhooks::VARIABLE,
];

/// What Kubernetes puts into the environment of each container for a service of its namespace, as after `docker --link`.
/// The names of a service `millrace` or `millrace-…` begin as those of settings do.
#[derive(Debug, Default)]
pub(super) struct ServiceLinks {
    /// The services' names as in variables, such as `MILLRACE_HEADLESS`.
    services: Vec<String>,
}

impl ServiceLinks {
    /// The services that the environment has: each has a host and a port.
    pub(super) fn among(vars: &[(String, String)]) -> Self {
        let has = |name: &str| vars.iter().any(|(other, _)| other == name);
        let hosts = vars.iter().filter_map(|(name, _)| {
            let service = name.strip_suffix("_SERVICE_HOST")?;
            format!("{service}_").starts_with(PREFIX).then_some(service)
        });
        let services = hosts.filter(|service| has(&format!("{service}_SERVICE_PORT")));
        Self {
            services: services.map(str::to_owned).collect(),
        }
    }

    /// Whether a variable is about one of the services, and so no setting.
    pub(super) fn has(&self, name: &str, text: &str) -> bool {
        let of = |service: &String| name.strip_prefix(service.as_str())?.strip_prefix('_');
        self.services.iter().filter_map(of).any(|rest| {
            let is_url = || {
                text.split_once("://")
                    .is_some_and(|(scheme, _)| is_protocol(scheme))
            };
            match rest.strip_prefix("PORT_") {
                // A port's number and protocol, then nothing or `_PROTO`, `_PORT`, `_ADDR`.
                Some(port) => port.starts_with(|c: char| c.is_ascii_digit()),
                None if rest == "PORT" => is_url(),
                None => {
                    matches!(rest, "SERVICE_HOST" | "SERVICE_PORT")
                        || rest.starts_with("SERVICE_PORT_")
                }
            }
        })
    }
}

fn is_protocol(scheme: &str) -> bool {
    matches!(scheme, "tcp" | "udp" | "sctp")
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
    use super::ServiceLinks;

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
        let others = [
            ("MILLRACE_SERVER_BIND", "0.0.0.0:8420"),
            ("MILLRACE_SERVER_PORT", "8420"),
            ("MILLRACE_PORTS", "tcp://10.96.7.1:8420"),
            ("MILLRACE_OTHER_SERVICE_HOST", "10.96.7.3"),
            ("MILLRACE_OTHER_PORT", "tcp://10.96.7.3:80"),
        ];
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        let all: Vec<_> = links.iter().chain(&others).map(owned).collect();
        let found = ServiceLinks::among(&all);
        for (name, text) in links {
            assert!(found.has(name, text), "{name}");
        }
        for (name, text) in others {
            assert!(!found.has(name, text), "{name}: no such service");
        }
        assert!(!found.has("MILLRACE_PORT", "8420"), "someone's own mistake");
    }
}
