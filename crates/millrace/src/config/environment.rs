//! Settings from environment variables: `server.bind` is `MILLRACE_SERVER_BIND`.

use serde_json::Value;

const PREFIX: &str = "MILLRACE_";

/// Variables with the prefix that are no settings.
const OTHERS: [&str; 9] = [
    "MILLRACE_CONFIG",
    "MILLRACE_DEBUG_STREAM_POLL",
    "MILLRACE_DEBUG_WORKFLOW_OPS",
    "MILLRACE_ISA",
    "MILLRACE_SEED",
    super::api_keys::VARIABLE,
    super::api_keys::ONE,
    super::otlp::VARIABLE,
    super::webhooks::VARIABLE,
];

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
        .ok_or_else(|| format!("{name}: there is no such setting"))?;
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
