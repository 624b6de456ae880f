//! Checks of answers.

use super::answer::{ModelAnswer, ToolCall};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Conditions on an answer; all given conditions must hold. Leading and trailing blanks of texts are ignored.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerCheck {
    /// The content equals this text.
    pub equals: Option<String>,
    /// The content equals one of these texts.
    pub equals_any: Option<Vec<String>>,
    /// The content contains all of these texts, in any case.
    pub contains: Option<Vec<String>>,
    /// Minimum number of characters of the content.
    pub at_least: Option<usize>,
    /// The answer has exactly one tool call, equal to this one.
    pub tool_call: Option<ExpectedCall>,
    /// Whether the answer has tool calls (`true`), or neither calls nor text that looks like a call (`false`).
    pub calls: Option<bool>,
    /// Whether the answer has reasoning (`true`), or none (`false`).
    pub reasoning: Option<bool>,
}

/// A tool call with exactly these arguments.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedCall {
    /// Name of the tool.
    pub name: String,
    /// Arguments, in any order.
    pub arguments: Map<String, Value>,
}

impl AnswerCheck {
    /// Checks an answer.
    ///
    /// # Errors
    /// A message about the first condition that does not hold.
    pub fn judge(&self, answer: &ModelAnswer) -> Result<(), String> {
        self.judge_text(answer.text.trim())?;
        self.judge_calls(answer)?;
        match self.reasoning {
            Some(true) if answer.reasoning.trim().is_empty() => Err("no reasoning".to_owned()),
            Some(false) if !answer.reasoning.is_empty() || answer.text.contains("<think>") => {
                Err("unexpected reasoning".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn judge_text(&self, text: &str) -> Result<(), String> {
        if let Some(wanted) = &self.equals
            && text != wanted.trim()
        {
            return Err(format!("wanted {wanted:?}"));
        }
        if let Some(wanted) = &self.equals_any
            && !wanted.iter().any(|wanted| text == wanted.trim())
        {
            return Err(format!("wanted one of {wanted:?}"));
        }
        let lower = text.to_lowercase();
        let mut words = self.contains.iter().flatten();
        if let Some(missing) = words.find(|word| !lower.contains(&word.to_lowercase())) {
            return Err(format!("{missing:?} is not in it"));
        }
        match self.at_least {
            Some(least) if text.chars().count() < least => {
                Err(format!("shorter than {least} characters"))
            }
            _ => Ok(()),
        }
    }

    fn judge_calls(&self, answer: &ModelAnswer) -> Result<(), String> {
        let written = answer.text.contains("<tool_call>");
        match self.calls {
            Some(true) if answer.calls.is_empty() => return Err("no call".to_owned()),
            Some(false) if written || !answer.calls.is_empty() => {
                return Err("unexpected tool call".to_owned());
            }
            _ => {}
        }
        let Some(wanted) = &self.tool_call else {
            return Ok(());
        };
        match answer.calls.as_slice() {
            [call] if wanted.matches(call) => Ok(()),
            [] => Err(format!("no call; wanted {}", wanted.summary())),
            _ => Err(format!("wanted {}", wanted.summary())),
        }
    }
}

impl ExpectedCall {
    fn matches(&self, call: &ToolCall) -> bool {
        self.name == call.name && call.arguments.as_object() == Some(&self.arguments)
    }

    fn summary(&self) -> String {
        format!("{} {}", self.name, Value::Object(self.arguments.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer_with_text(text: &str) -> ModelAnswer {
        ModelAnswer {
            text: text.to_owned(),
            ..ModelAnswer::default()
        }
    }

    fn answer_with_call(name: &str, arguments: Value) -> ModelAnswer {
        let name = name.to_owned();
        ModelAnswer {
            calls: vec![ToolCall { name, arguments }],
            ..ModelAnswer::default()
        }
    }

    #[rustfmt::skip]
    #[test]
    fn checks_accept_and_reject_answers() {
        let call = json!({"tool_call": {"name": "f", "arguments": {"a": 1, "b": "x"}}});
        let reasoned = ModelAnswer { reasoning: "hm".to_owned(), ..answer_with_text("7") };
        let rows = [
            ("equal", json!({"equals": "7"}), answer_with_text(" 7\n"), ""),
            ("not equal", json!({"equals": "7"}), answer_with_text("8"), "wanted \"7\""),
            ("one of", json!({"equals_any": ["6", "7"]}), answer_with_text("7"), ""),
            ("none of", json!({"equals_any": ["6"]}), answer_with_text("7"), "wanted one of"),
            ("contained", json!({"contains": ["fox"]}), answer_with_text("A FOX."), ""),
            ("missing", json!({"contains": ["fox", "owl"]}), answer_with_text("fox"), "\"owl\" is not in it"),
            ("too short", json!({"at_least": 3}), answer_with_text("ab"), "shorter than 3"),
            ("call, any order", call.clone(), answer_with_call("f", json!({"b": "x", "a": 1})), ""),
            ("other name", call.clone(), answer_with_call("g", json!({"a": 1, "b": "x"})), "wanted f"),
            ("other argument", call.clone(), answer_with_call("f", json!({"a": 2, "b": "x"})), "wanted f"),
            ("one too few", call.clone(), answer_with_call("f", json!({"a": 1})), "wanted f"),
            ("no JSON", call.clone(), answer_with_call("f", Value::Null), "wanted f"),
            ("no call", call, answer_with_text("f"), "no call"),
            ("needless", json!({"calls": false}), answer_with_call("f", json!({})), "unexpected tool call"),
            ("written", json!({"calls": false}), answer_with_text("<tool_call>"), "unexpected tool call"),
            ("none", json!({"calls": false}), answer_with_text("x"), ""),
            ("any", json!({"calls": true}), answer_with_call("f", json!({})), ""),
            ("not any", json!({"calls": true}), answer_with_text("x"), "no call"),
            ("reasoning", json!({"reasoning": true}), reasoned.clone(), ""),
            ("no reasoning", json!({"reasoning": true}), answer_with_text("7"), "no reasoning"),
            ("needless reasoning", json!({"reasoning": false}), reasoned, "unexpected reasoning"),
            ("all must hold", json!({"equals": "7", "reasoning": true}), answer_with_text("7"), "no reasoning"),
        ];
        for (label, check, answer, message) in rows {
            let check: AnswerCheck = serde_json::from_value(check).unwrap();
            match check.judge(&answer) {
                Ok(()) => assert_eq!(message, "", "{label}"),
                Err(why) => assert!(!message.is_empty() && why.contains(message), "{label}: {why}"),
            }
        }
    }
}
