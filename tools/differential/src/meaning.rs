//! What an answer was understood to say: as much as every parser tells.

use serde_json::Value;
use std::fmt;

/// An answer, without the order of its parts, which not every parser tells, and without the blanks
/// around and between them, which every parser sees differently.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meaning {
    pub(crate) reasoning: String,
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
}

/// One call; its arguments as they were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl PartialEq for Meaning {
    fn eq(&self, other: &Self) -> bool {
        words(&self.reasoning) == words(&other.reasoning)
            && words(&self.text) == words(&other.text)
            && self.calls == other.calls
    }
}

impl PartialEq for Call {
    /// JSON is compared as what it says, anything else as it stands.
    fn eq(&self, other: &Self) -> bool {
        let value = |call: &Self| serde_json::from_str::<Value>(&call.arguments).ok();
        self.name == other.name
            && match (value(self), value(other)) {
                (Some(a), Some(b)) => a == b,
                (None, None) => self.arguments == other.arguments,
                _ => false,
            }
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (kind, text) in [("think", &self.reasoning), ("text", &self.text)] {
            let text = words(text);
            if !text.is_empty() {
                parts.push(format!("{kind} {text:?}"));
            }
        }
        let spell = |call: &Call| format!("{}({})", call.name, call.arguments);
        parts.extend(self.calls.iter().map(spell));
        match parts.is_empty() {
            true => f.write_str("nothing"),
            false => f.write_str(&parts.join(" ")),
        }
    }
}
