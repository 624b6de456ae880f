//! A response of the chat completions API, reduced to what checks need.

use serde_json::Value;

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Name of the tool.
    pub name: String,
    /// Parsed arguments; `Null` where they are not JSON.
    pub arguments: Value,
}

/// Output of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelAnswer {
    /// Content; empty where there is none.
    pub text: String,
    /// Reasoning, if the server separates reasoning from content.
    pub reasoning: String,
    /// Tool calls.
    pub calls: Vec<ToolCall>,
}

impl ModelAnswer {
    /// Parses a non-streaming response; `None` for other JSON.
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
                .map(parse_call)
                .collect::<Option<_>>()?,
        })
    }

    /// One line for a report.
    pub fn summary(&self) -> String {
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

fn parse_call(value: &Value) -> Option<ToolCall> {
    let function = value.get("function")?;
    let arguments = function.get("arguments")?;
    Some(ToolCall {
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
    fn content_reasoning_and_tool_calls_are_parsed() {
        let body = json!({"choices": [{"message": {"content": "x", "reasoning_content": "y"}}]});
        let answer = ModelAnswer::of(&body).unwrap();
        assert_eq!(answer.summary(), r#"(thought "y") "x""#);
        let called = json!({"function": {"name": "f", "arguments": "{\"a\": 1}"}});
        let body = json!({"choices": [{"message": {"content": null, "tool_calls": [called]}}]});
        let answer = ModelAnswer::of(&body).unwrap();
        assert_eq!(answer.summary(), r#"call f {"a":1}"#);
        for body in [json!({}), json!({"choices": []}), json!({"choices": [{}]})] {
            assert_eq!(ModelAnswer::of(&body), None, "{body}");
        }
    }
}
