//! What must be true of an answer.

use super::answer::{Answer, Call};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Conditions; all that are given must hold. Blanks around texts do not count.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Check {
    /// The whole text.
    pub equals: Option<String>,
    /// The whole text is one of these.
    pub equals_any: Option<Vec<String>>,
    /// All of these are in the text, whatever their case.
    pub contains: Option<Vec<String>>,
    /// Characters of the text at least.
    pub at_least: Option<usize>,
    /// There is one call, and it is this one.
    pub tool_call: Option<WantedCall>,
    /// Whether there are calls (`true`), or none, nor anything that looks like one (`false`).
    pub calls: Option<bool>,
    /// Whether something was thought before (`true`), or nothing (`false`).
    pub reasoning: Option<bool>,
}

/// A call with exactly these arguments.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedCall {
    /// The tool.
    pub name: String,
    /// Its arguments, in any order.
    pub arguments: Map<String, Value>,
}

impl Check {
    /// Whether the answer is right, and what is wrong with it otherwise.
    ///
    /// # Errors
    /// The first condition that does not hold, in words.
    pub fn judge(&self, answer: &Answer) -> Result<(), String> {
        self.judge_text(answer.text.trim())?;
        self.judge_calls(answer)?;
        match self.reasoning {
            Some(true) if answer.reasoning.trim().is_empty() => Err("no thoughts".to_owned()),
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

    fn judge_calls(&self, answer: &Answer) -> Result<(), String> {
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
            [call] if wanted.is(call) => Ok(()),
            [] => Err(format!("no call; wanted {}", wanted.shown())),
            _ => Err(format!("wanted {}", wanted.shown())),
        }
    }
}

impl WantedCall {
    fn is(&self, call: &Call) -> bool {
        self.name == call.name && call.arguments.as_object() == Some(&self.arguments)
    }

    fn shown(&self) -> String {
        format!("{} {}", self.name, Value::Object(self.arguments.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(text: &str) -> Answer {
        Answer {
            text: text.to_owned(),
            ..Answer::default()
        }
    }

    fn called(name: &str, arguments: Value) -> Answer {
        let name = name.to_owned();
        Answer {
            calls: vec![Call { name, arguments }],
            ..Answer::default()
        }
    }

    #[rustfmt::skip]
    #[test]
    fn answers_are_judged() {
        let call = json!({"tool_call": {"name": "f", "arguments": {"a": 1, "b": "x"}}});
        let thought = Answer { reasoning: "hm".to_owned(), ..said("7") };
        let rows = [
            ("equal", json!({"equals": "7"}), said(" 7\n"), ""),
            ("not equal", json!({"equals": "7"}), said("8"), "wanted \"7\""),
            ("one of", json!({"equals_any": ["6", "7"]}), said("7"), ""),
            ("none of", json!({"equals_any": ["6"]}), said("7"), "wanted one of"),
            ("contained", json!({"contains": ["fox"]}), said("A FOX."), ""),
            ("missing", json!({"contains": ["fox", "owl"]}), said("fox"), "\"owl\" is not in it"),
            ("too short", json!({"at_least": 3}), said("ab"), "shorter than 3"),
            ("call, any order", call.clone(), called("f", json!({"b": "x", "a": 1})), ""),
            ("other name", call.clone(), called("g", json!({"a": 1, "b": "x"})), "wanted f"),
            ("other argument", call.clone(), called("f", json!({"a": 2, "b": "x"})), "wanted f"),
            ("one too few", call.clone(), called("f", json!({"a": 1})), "wanted f"),
            ("no JSON", call.clone(), called("f", Value::Null), "wanted f"),
            ("no call", call, said("f"), "no call"),
            ("needless", json!({"calls": false}), called("f", json!({})), "nobody needs"),
            ("written", json!({"calls": false}), said("<tool_call>"), "nobody needs"),
            ("none", json!({"calls": false}), said("x"), ""),
            ("any", json!({"calls": true}), called("f", json!({})), ""),
            ("not any", json!({"calls": true}), said("x"), "no call"),
            ("thought", json!({"reasoning": true}), thought.clone(), ""),
            ("did not think", json!({"reasoning": true}), said("7"), "no thoughts"),
            ("thought unasked", json!({"reasoning": false}), thought, "nobody asked"),
            ("all must hold", json!({"equals": "7", "reasoning": true}), said("7"), "no thoughts"),
        ];
        for (label, check, answer, told) in rows {
            let check: Check = serde_json::from_value(check).unwrap();
            match check.judge(&answer) {
                Ok(()) => assert_eq!(told, "", "{label}"),
                Err(why) => assert!(!told.is_empty() && why.contains(told), "{label}: {why}"),
            }
        }
    }
}
