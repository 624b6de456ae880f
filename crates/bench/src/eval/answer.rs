//! An answer of OpenAI's chat API, as far as it is judged.

use serde_json::Value;

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The tool.
    pub name: String,
    /// Its arguments, parsed; `Null` where they are no JSON.
    pub arguments: Value,
}

/// What the model said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The text; empty where there is none.
    pub text: String,
    /// What was thought before, if the server tells it apart.
    pub reasoning: String,
    /// The calls.
    pub calls: Vec<Call>,
}

impl Answer {
    /// Reads a whole answer's body; `None`: it is none.
    pub fn of(body: &Value) -> Option<Self> {
        let message = body.get("choices")?.get(0)?.get("message")?;
        let text = |name: &str| message.get(name).and_then(Value::as_str);
        let reasoning = text("reasoning_content").or_else(|| text("reasoning"));
        let calls = message.get("tool_calls").and_then(Value::as_array);
        Some(Self {
            text: text("content").unwrap_or_default().to_owned(),
            reasoning: reasoning.unwrap_or_default().to_owned(),
            calls: calls
                .into_iter()
                .flatten()
                .map(call)
                .collect::<Option<_>>()?,
        })
    }

    /// In one line, for a report.
    pub fn shown(&self) -> String {
        let mut parts = Vec::new();
        if !self.reasoning.is_empty() {
            parts.push(format!("(thought {:?})", self.reasoning));
        }
        for call in &self.calls {
            parts.push(format!("call {} {}", call.name, call.arguments));
        }
        if !self.text.is_empty() || parts.is_empty() {
            parts.push(format!("{:?}", self.text));
        }
        parts.join(" ")
    }
}

fn call(value: &Value) -> Option<Call> {
    let function = value.get("function")?;
    let arguments = function.get("arguments")?;
    Some(Call {
        name: function.get("name")?.as_str()?.to_owned(),
        arguments: match arguments.as_str() {
            Some(text) => serde_json::from_str(text).unwrap_or(Value::Null),
            None => arguments.clone(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_thoughts_and_calls_are_read() {
        let body = json!({"choices": [{"message": {"content": "x", "reasoning_content": "y"}}]});
        let answer = Answer::of(&body).unwrap();
        assert_eq!(answer.shown(), r#"(thought "y") "x""#);
        let called = json!({"function": {"name": "f", "arguments": "{\"a\": 1}"}});
        let body = json!({"choices": [{"message": {"content": null, "tool_calls": [called]}}]});
        let answer = Answer::of(&body).unwrap();
        assert_eq!(answer.shown(), r#"call f {"a":1}"#);
        for body in [json!({}), json!({"choices": []}), json!({"choices": [{}]})] {
            assert_eq!(Answer::of(&body), None, "{body}");
        }
    }
}
