//! What a caller may ask an answer to look like.

use super::error::GrammarError;
use super::lark_source;
use super::limits::GRAMMAR_BYTES_MAX;
use super::schema::Schema;
use crate::Tokenizer;
use crate::answer::{CallForm, CalledTool, call_grammar};
use llguidance::api::TopLevelGrammar;
use serde_json::Value;

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
    /// The same, with the objects of its schemas closed ([`GrammarSource::with_closed_objects`]).
    ClosedObjects(Box<GrammarSource>),
}

/// Bounded and normalised, ready to be compiled.
pub(super) enum Source {
    Schema(Schema),
    /// Calls, and the schemas of their arguments with their tools' places.
    Calls(TopLevelGrammar, Vec<(usize, Schema)>),
    /// A grammar that a caller wrote. It names no forced tokens: the library follows what is forced without a bound, and
    /// in a grammar that traps itself (`A: /a+/` before an `"a"`) for ever.
    Lark(TopLevelGrammar),
    Other(TopLevelGrammar),
}

impl GrammarSource {
    /// The same, where it has schemas with their objects closed: one whose schema has `properties`, and neither
    /// `additionalProperties` nor `unevaluatedProperties`, has no others.
    #[must_use]
    pub fn with_closed_objects(self) -> Self {
        match self {
            Self::JsonSchema(_) | Self::Calls(..) => Self::ClosedObjects(Box::new(self)),
            other => other,
        }
    }

    /// Without what is said of its objects.
    pub fn inner(&self) -> &Self {
        match self {
            Self::ClosedObjects(inner) => inner,
            other => other,
        }
    }

    /// Names its content: equal for equal sources.
    pub(super) fn key(&self) -> String {
        match self {
            Self::JsonObject => "object".into(),
            Self::JsonSchema(schema) => format!("schema {schema}"),
            Self::Regex(regex) => format!("regex {regex}"),
            Self::Choice(choices) => format!("choice {choices:?}"),
            Self::Lark(lark) => format!("lark {lark}"),
            Self::Calls(form, tools) => format!("calls {form:?} {tools:?}"),
            Self::ClosedObjects(source) => format!("closed {}", source.key()),
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
                lark_source::check(lark)?;
                Ok(Source::Lark(TopLevelGrammar::from_lark(lark.clone())))
            }
            Self::Calls(form, tools) => calls(*form, tools, tokenizer, Ok),
            Self::ClosedObjects(source) => match &**source {
                Self::JsonSchema(schema) => Ok(Source::Schema(Schema::read(schema)?.closed()?)),
                Self::Calls(form, tools) => calls(*form, tools, tokenizer, Schema::closed),
                other => other.read(tokenizer),
            },
        }
    }
}

/// Calls of tools whose arguments' schemas are made so.
fn calls(
    form: CallForm,
    tools: &[CalledTool],
    tokenizer: &Tokenizer,
    made: fn(Schema) -> Result<Schema, GrammarError>,
) -> Result<Source, GrammarError> {
    let (mut tools, mut schemas) = (tools.to_vec(), Vec::new());
    for tool in &mut tools {
        let Some(arguments) = &mut tool.arguments else {
            continue;
        };
        let schema = Schema::read(arguments).and_then(made);
        let schema = schema.map_err(|error| error.in_tool(tool.place))?;
        if arguments.is_object() {
            *arguments = Value::Object(schema.compiled().clone());
        }
        schemas.push((tool.place, schema));
    }
    let lark = call_grammar(form, &tools, tokenizer).map_err(|unwritten| GrammarError {
        place: format!("[{}]", tools[unwritten.tool].place),
        why: unwritten.why,
    })?;
    Ok(Source::Calls(TopLevelGrammar::from_lark(lark), schemas))
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
    // One terminal: as alternatives of a rule each would be a terminal of its own.
    let lark = format!("start: CHOICE\nCHOICE: {}", quoted.join(" | "));
    bounded(&lark)?;
    Ok(lark)
}
