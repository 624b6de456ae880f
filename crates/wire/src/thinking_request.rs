//! What a request says of thinking, to a model that cannot be asked to think.
//!
//! | format | what becomes of it |
//! |---|---|
//! | Ollama | `think: true` (or a level) is a 400, as in Ollama |
//! | all others | the answer is what it is; the header of ignored fields names the field |

use crate::fields::{self, Fields, Kind};
use crate::format::Format;
use generate::error::ApiError;
use std::borrow::Cow;
use text::Capabilities;

/// The fields that ask such a model to think in vain.
///
/// # Errors
/// The format has its own refusal of that.
pub fn in_vain(
    format: Format,
    fields: &Fields<'_>,
    (name, capabilities): (&str, Capabilities),
) -> Result<Vec<&'static str>, ApiError> {
    if capabilities.thinking {
        return Ok(Vec::new());
    }
    let names: &[&'static str] = match format {
        Format::OllamaChat | Format::OllamaGenerate => &["think"],
        Format::AiSdkUi | Format::Chat | Format::Job => {
            &["reasoning_effort", "reasoning", "thinking"]
        }
        Format::Messages => &["thinking"],
        Format::Responses => &["reasoning"],
        Format::Completion => &[],
    };
    let asked = names.iter().filter(|name| asks(fields, name));
    let asked: Vec<&'static str> = asked.copied().collect();
    match format {
        Format::OllamaChat | Format::OllamaGenerate if !asked.is_empty() => {
            // Ollama's own words, by which its clients know it.
            let words = format!("\"{name}\" does not support thinking");
            Err(ApiError::field("think", "unsupported_value", words))
        }
        _ => Ok(asked),
    }
}

/// Whether a field asks for thoughts: it is there, and does not say that there are to be none.
fn asks(fields: &Fields<'_>, name: &str) -> bool {
    let Some(raw) = fields.raw(name) else {
        return false;
    };
    let word = |name: &str| {
        let object = fields::object(raw)?;
        object.get(name).and_then(fields::text).map(Cow::into_owned)
    };
    match fields::kind(raw) {
        Kind::Bool => raw.get() == "true",
        Kind::String => fields::text(raw).as_deref() != Some("none"),
        Kind::Object => {
            let enabled = fields::object(raw).and_then(|object| object.get("enabled"));
            word("type").as_deref() != Some("disabled")
                && word("effort").as_deref() != Some("none")
                && enabled.is_none_or(|enabled| enabled.get() != "false")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_asks_for_thoughts() {
        for (value, want) in [
            (json!(true), true),
            (json!(false), false),
            (json!(null), false),
            (json!("high"), true),
            (json!("none"), false),
            (json!({"type": "enabled", "budget_tokens": 1024}), true),
            (json!({"type": "disabled"}), false),
            (json!({"effort": "low"}), true),
            (json!({"effort": "none"}), false),
            (json!({"enabled": false}), false),
        ] {
            let body = json!({"thinking": value}).to_string();
            let fields = Fields::parse(body.as_bytes()).expect("fields");
            assert_eq!(asks(&fields, "thinking"), want, "{value}");
        }
    }
}
