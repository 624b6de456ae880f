//! What a caller may ask an answer to look like.

use super::GrammarError;
use super::schema::Schema;
use crate::Tokenizer;
use crate::answer::{CallForm, CalledTool, call_grammar};
use llguidance::api::TopLevelGrammar;
use serde_json::Value;

/// Bytes of a grammar or of a schema as it was sent.
pub const GRAMMAR_BYTES_MAX: usize = 1 << 18;
/// Answers in a choice.
pub const CHOICES_IN_GRAMMAR_MAX: usize = 4096;

/// What an answer must look like.
#[derive(Clone, Debug, PartialEq)]
pub enum GrammarSource {
    /// Any JSON object.
    JsonObject,
    /// JSON that is valid under this schema.
    JsonSchema(Value),
    /// Text that matches this regular expression from its first to its last character.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// What this grammar derives from `start`, in llguidance's dialect of Lark.
    Lark(String),
    /// Calls of these tools as a family writes them, where they open.
    Calls(CallForm, Vec<CalledTool>),
}

/// Bounded and normalised, ready to be compiled.
pub(super) enum Source {
    Schema(Schema),
    /// Calls, and the schemas of their arguments with their tools' places.
    Calls(TopLevelGrammar, Vec<(usize, Schema)>),
    Other(TopLevelGrammar),
}

impl GrammarSource {
    /// Names its content: equal for equal sources.
    pub(super) fn key(&self) -> String {
        match self {
            Self::JsonObject => "object".into(),
            Self::JsonSchema(schema) => format!("schema {schema}"),
            Self::Regex(regex) => format!("regex {regex}"),
            Self::Choice(choices) => format!("choice {choices:?}"),
            Self::Lark(lark) => format!("lark {lark}"),
            Self::Calls(form, tools) => format!("calls {form:?} {tools:?}"),
        }
    }

    /// Measures it and reads it.
    pub(super) fn read(&self, tokenizer: &Tokenizer) -> Result<Source, GrammarError> {
        let other = |grammar| Ok(Source::Other(grammar));
        match self {
            Self::JsonObject => {
                Schema::read(&serde_json::json!({"type": "object"})).map(Source::Schema)
            }
            Self::JsonSchema(schema) => Schema::read(schema).map(Source::Schema),
            Self::Regex(regex) => {
                bounded(regex)?;
                other(TopLevelGrammar::from_regex(regex))
            }
            Self::Choice(choices) => other(TopLevelGrammar::from_lark(lark_of(choices)?)),
            Self::Lark(lark) => {
                bounded(lark)?;
                if lark.contains("::=") {
                    return Err(GrammarError::whole(
                        "is in GBNF (\"::=\"), which is not understood; write it in Lark, \
                         where a rule is \"name: ...\" and the first one is \"start\"",
                    ));
                }
                other(TopLevelGrammar::from_lark(lark.clone()))
            }
            Self::Calls(form, tools) => {
                let schemas = tools.iter().filter_map(|tool| {
                    let schema = tool.arguments.as_ref()?;
                    Some((tool.place, schema))
                });
                let read = |(tool, schema)| match Schema::read(schema) {
                    Ok(schema) => Ok((tool, schema)),
                    Err(error) => Err(error.in_tool(tool)),
                };
                let schemas = schemas.map(read).collect::<Result<_, _>>()?;
                let lark =
                    call_grammar(*form, tools, tokenizer).map_err(|unwritten| GrammarError {
                        place: format!("[{}]", tools[unwritten.tool].place),
                        why: unwritten.why,
                    })?;
                Ok(Source::Calls(TopLevelGrammar::from_lark(lark), schemas))
            }
        }
    }
}

fn bounded(text: &str) -> Result<(), GrammarError> {
    match text.len() {
        0 => Err(GrammarError::whole("is empty")),
        1..=GRAMMAR_BYTES_MAX => Ok(()),
        bytes => Err(GrammarError::whole(format!(
            "has {bytes} bytes; at most {GRAMMAR_BYTES_MAX} are accepted"
        ))),
    }
}

/// Texts as alternatives; a text in Lark is written as in JSON.
fn lark_of(choices: &[String]) -> Result<String, GrammarError> {
    if choices.is_empty() || choices.len() > CHOICES_IN_GRAMMAR_MAX {
        return Err(GrammarError::whole(format!(
            "has {} choices; from 1 to {CHOICES_IN_GRAMMAR_MAX}",
            choices.len()
        )));
    }
    if let Some(at) = choices.iter().position(String::is_empty) {
        return Err(GrammarError {
            place: format!("[{at}]"),
            why: "is empty; an answer has at least one token".into(),
        });
    }
    let quoted: Vec<String> = choices
        .iter()
        .map(|choice| Value::from(choice.as_str()).to_string())
        .collect();
    let lark = format!("start: {}", quoted.join(" | "));
    bounded(&lark)?;
    Ok(lark)
}
