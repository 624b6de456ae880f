//! A request to a made model, as the request to its weights' own model that it stands for.

use crate::fields::{self, Object, Raw};
use crate::format::Format;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Ollama's options, and what OpenAI's and the native format call them.
const OPTIONS: [(&str, &str); 11] = [
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("top_k", "top_k"),
    ("min_p", "min_p"),
    ("seed", "seed"),
    ("stop", "stop"),
    ("repeat_penalty", "repetition_penalty"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("num_predict", "max_tokens"),
    ("min_tokens", "min_tokens"),
];

/// How a derived model is asked: fields that a request to it has where it gives none itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DerivedModel {
    /// The base model.
    pub parent: String,
    /// The system message.
    pub system: Option<String>,
    /// How a prompt is written for `/api/generate`, as Ollama's templates are.
    pub template: Option<String>,
    /// Ollama's options.
    pub options: Map<String, Value>,
}

impl DerivedModel {
    /// The body with all in it that the model says where the body does not; `None` of a body that is no
    /// object, which its reader refuses. What the body says is not looked into, but for who speaks.
    pub fn written_into(&self, format: Format, body: &[u8]) -> Option<Vec<u8>> {
        let mut body = Written::parse(std::str::from_utf8(body).ok()?)?;
        match format {
            Format::OllamaChat | Format::OllamaGenerate => self.options_beside(&mut body),
            Format::AiSdkUi
            | Format::Chat
            | Format::Completion
            | Format::Job
            | Format::Messages
            | Format::Responses => {
                self.options_within(format, &mut body);
            }
        }
        match (format, &self.system) {
            (_, None) | (Format::Completion | Format::Job, _) => {}
            (Format::OllamaChat | Format::Chat, Some(system)) => say_first(&mut body, system),
            (Format::OllamaGenerate | Format::Messages | Format::AiSdkUi, Some(system)) => {
                body.say("system", &json!(system));
            }
            (Format::Responses, Some(system)) => body.say("instructions", &json!(system)),
        }
        if let (Format::OllamaGenerate, Some(template)) = (format, &self.template) {
            body.say("template", &json!(template));
        }
        Some(body.written().into_bytes())
    }

    fn options_beside(&self, body: &mut Written<'_>) {
        let given = body.get("options").unwrap_or("{}").to_owned();
        if let Some(mut options) = Written::parse(&given) {
            for (name, value) in &self.options {
                options.say(name, value);
            }
            body.set("options", options.written());
        }
    }

    fn options_within(&self, format: Format, body: &mut Written<'_>) {
        for (name, called) in OPTIONS {
            let Some(value) = self.options.get(name) else {
                continue;
            };
            let (called, value) = match (format, called) {
                (Format::Messages, "stop") => ("stop_sequences", listed(value)),
                (Format::Messages, "temperature" | "top_p" | "top_k" | "max_tokens")
                | (Format::Responses, "temperature" | "top_p")
                | (Format::AiSdkUi | Format::Chat | Format::Completion | Format::Job, _) => {
                    (called, value.clone())
                }
                (Format::Responses, "max_tokens") => ("max_output_tokens", value.clone()),
                // A field that the format does not have.
                _ => continue,
            };
            // Ollama's -1 and -2 are what these formats mean by saying nothing.
            let says_nothing = name == "num_predict" && value.as_i64().is_none_or(|n| n < 1);
            let says_else = called == "max_tokens" && body.get("max_completion_tokens").is_some();
            if !says_nothing && !says_else {
                body.say(called, &value);
            }
        }
    }
}

/// An object whose values are kept as they are written.
struct Written<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Written<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let object: Object<'a> = serde_json::from_str(text).ok()?;
        let entry =
            |(name, raw): (&str, Raw<'a>)| (Cow::Owned(name.to_owned()), Cow::Borrowed(raw.get()));
        Some(Self(object.entries().map(entry).collect()))
    }

    /// The value under a name; null counts as absent.
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| &**value)
            .filter(|value| *value != "null")
    }

    fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, said)) => *said = Cow::Owned(value),
            None => self
                .0
                .push((Cow::Owned(name.to_owned()), Cow::Owned(value))),
        }
    }

    /// Sets what is not said.
    fn say(&mut self, name: &str, value: &Value) {
        if self.get(name).is_none() {
            self.set(name, value.to_string());
        }
    }

    fn written(&self) -> String {
        let entries = self
            .0
            .iter()
            .map(|(name, value)| format!("{}:{value}", json!(name)));
        format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
    }
}

/// A system message before the others, if there is none.
fn say_first(body: &mut Written<'_>, system: &str) {
    let Some(written) = body.get("messages") else {
        return;
    };
    let Ok(messages) = serde_json::from_str::<Vec<Raw<'_>>>(written) else {
        return;
    };
    let is_system = |message: &Raw<'_>| {
        let role = fields::object(*message).and_then(|message| message.get("role"));
        let role = role.and_then(fields::text);
        matches!(role.as_deref(), Some("system" | "developer"))
    };
    if messages.is_empty() || messages.iter().any(is_system) {
        return;
    }
    let first = json!({"role": "system", "content": system});
    let rest = written.strip_prefix('[').unwrap_or_default();
    let all = format!("[{first},{rest}");
    body.set("messages", all);
}

fn listed(value: &Value) -> Value {
    match value {
        Value::Array(_) => value.clone(),
        one => json!([one]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_said_as_the_model_was_made() {
        let made = DerivedModel {
            parent: "tiny".to_owned(),
            system: Some("Be brief.".to_owned()),
            template: Some("{{ .Prompt }}".to_owned()),
            options: [
                ("temperature", json!(0)),
                ("num_predict", json!(7)),
                ("stop", json!("x")),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect(),
        };
        let user = json!({"role": "user", "content": "hi"});
        let first = json!({"role": "system", "content": "Be brief."});
        let rows = [
            (
                Format::OllamaChat,
                json!({"messages": [user], "options": {"temperature": 1}}),
                json!({"messages": [first, user], "options": {"temperature": 1, "num_predict": 7, "stop": "x"}}),
            ),
            (
                Format::OllamaGenerate,
                json!({"prompt": "hi", "system": "Be long.", "options": null}),
                json!({"prompt": "hi", "system": "Be long.", "template": "{{ .Prompt }}",
                       "options": {"temperature": 0, "num_predict": 7, "stop": "x"}}),
            ),
            (
                Format::Chat,
                json!({"messages": [first], "max_completion_tokens": 3}),
                json!({"messages": [first], "max_completion_tokens": 3, "temperature": 0, "stop": "x"}),
            ),
            (
                Format::Messages,
                json!({"messages": [user], "max_tokens": 9}),
                json!({"messages": [user], "max_tokens": 9, "system": "Be brief.", "temperature": 0,
                       "stop_sequences": ["x"]}),
            ),
            (
                Format::Completion,
                json!({"prompt": "hi"}),
                json!({"prompt": "hi", "temperature": 0, "max_tokens": 7, "stop": "x"}),
            ),
            (
                Format::Responses,
                json!({"input": "hi"}),
                json!({"input": "hi", "temperature": 0, "max_output_tokens": 7, "instructions": "Be brief."}),
            ),
        ];
        for (format, body, want) in rows {
            let written = made
                .written_into(format, body.to_string().as_bytes())
                .unwrap();
            let written: Value = serde_json::from_slice(&written).unwrap();
            assert_eq!(written, want, "{format:?}");
        }
        assert_eq!(made.written_into(Format::Chat, b"[]"), None);
    }
}
