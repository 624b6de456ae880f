//! Sources of grammars. A caller's Lark is checked before compilation (depth, embedded schemas), and embedded schemas
//! get exact numbers.

use super::error::GrammarError;
use super::json_schema::BoundedSchema;
use super::lexer_work::GRAMMAR_BYTES_MAX;
use super::number_lexemes::{NumberRules, NumberedGrammar};
use super::schema_numbers::make_all_exact;
use super::{gbnf, schema_normalization};
use crate::Tokenizer;
use crate::answer::{CallSyntax, ConstrainedTool, call_grammar};
use llguidance::api::TopLevelGrammar;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Alternatives in a choice.
pub const CHOICES_IN_GRAMMAR_MAX: usize = 4096;

/// Constraint of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrammarSource {
    /// Any JSON object.
    JsonObject,
    /// JSON that is valid under this schema.
    JsonSchema(Value),
    /// Text that matches this regular expression completely.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// Text derived from the rule `start` in llguidance's dialect of Lark, or from the rule `root` in GBNF.
    Lark(String),
    /// Calls of these tools in a family's syntax, after the opening delimiter. No request has such a source.
    #[serde(skip)]
    Calls(CallSyntax, Vec<ConstrainedTool>),
    /// The inner source with objects closed by default ([`GrammarSource::with_closed_objects`]). No request has
    /// such a source.
    #[serde(skip)]
    ClosedObjects(Box<GrammarSource>),
}

/// A source that is within the bounds and ready to compile.
pub(super) enum CheckedSource {
    BoundedSchema(BoundedSchema),
    /// Calls, and the argument schemas with the tools' indices.
    Calls(NumberedGrammar, Vec<(usize, BoundedSchema)>),
    /// A client's grammar, without forced tokens: llguidance follows forced text without a bound, and in a
    /// grammar that traps itself (`A: /a+/` before an `"a"`) forever.
    Lark(NumberedGrammar),
    Other(NumberedGrammar),
}

impl GrammarSource {
    /// This source with objects closed by default: a schema with `properties` and neither
    /// `additionalProperties` nor `unevaluatedProperties` allows no other properties.
    #[must_use]
    pub fn with_closed_objects(self) -> Self {
        match self {
            Self::JsonSchema(_) | Self::Calls(..) => Self::ClosedObjects(Box::new(self)),
            other => other,
        }
    }

    /// The source without the default for objects.
    pub fn inner(&self) -> &Self {
        match self {
            Self::ClosedObjects(inner) => inner,
            other => other,
        }
    }

    /// Cache key: equal for equal sources.
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

    /// Checks the bounds and parses the source.
    pub(super) fn read(&self, tokenizer: &Tokenizer) -> Result<CheckedSource, GrammarError> {
        let other = |grammar| {
            let numbers = NumberRules::default();
            Ok(CheckedSource::Other(NumberedGrammar { grammar, numbers }))
        };
        match self {
            Self::JsonObject => BoundedSchema::read(&serde_json::json!({"type": "object"}))
                .map(CheckedSource::BoundedSchema),
            Self::JsonSchema(schema) => {
                BoundedSchema::read(schema).map(CheckedSource::BoundedSchema)
            }
            Self::Regex(regex) => {
                bounded(regex)?;
                other(TopLevelGrammar::from_regex(regex))
            }
            Self::Choice(choices) => other(TopLevelGrammar::from_lark(lark_of(choices)?)),
            Self::Lark(lark) => {
                bounded(lark)?;
                if gbnf::is_gbnf(lark) {
                    let grammar = TopLevelGrammar::from_lark(gbnf::to_lark(lark)?);
                    let numbers = NumberRules::default();
                    return Ok(CheckedSource::Lark(NumberedGrammar { grammar, numbers }));
                }
                check(lark)?;
                let made = |schema| schema_normalization::normalized(&schema);
                numbered(lark, made).map(CheckedSource::Lark)
            }
            Self::Calls(form, tools) => calls(*form, tools, tokenizer, Ok),
            Self::ClosedObjects(source) => match &**source {
                Self::JsonSchema(schema) => Ok(CheckedSource::BoundedSchema(
                    BoundedSchema::read(schema)?.closed()?,
                )),
                Self::Calls(form, tools) => calls(*form, tools, tokenizer, BoundedSchema::closed),
                other => other.read(tokenizer),
            },
        }
    }
}

/// Calls of tools, with `made` applied to the argument schemas.
fn calls(
    form: CallSyntax,
    tools: &[ConstrainedTool],
    tokenizer: &Tokenizer,
    made: fn(BoundedSchema) -> Result<BoundedSchema, GrammarError>,
) -> Result<CheckedSource, GrammarError> {
    let (mut tools, mut schemas) = (tools.to_vec(), Vec::new());
    for tool in &mut tools {
        let Some(arguments) = &mut tool.arguments else {
            continue;
        };
        let schema = BoundedSchema::read(arguments).and_then(made);
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
    Ok(CheckedSource::Calls(numbered(&lark, Ok)?, schemas))
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

/// A choice in Lark, whose string literals have JSON's syntax.
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
    // One terminal: alternatives of a rule would each be a terminal.
    let lark = format!("start: CHOICE\nCHOICE: {}", quoted.join(" | "));
    bounded(&lark)?;
    Ok(lark)
}

/// Nesting of brackets in a grammar, including brackets in strings.
pub const LARK_DEPTH_MAX: usize = 1000;
/// Keyword before an embedded schema.
const SCHEMA_MARK: &str = "%json";

/// Rejects a grammar that is nested too deeply or contains a schema that would be rejected alone.
pub(super) fn check(lark: &str) -> Result<(), GrammarError> {
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in lark.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > LARK_DEPTH_MAX {
        return Err(GrammarError::whole(format!(
            "has brackets nested {deepest} deep; at most {LARK_DEPTH_MAX} (LARK_DEPTH_MAX) are accepted"
        )));
    }
    for (at, _) in lark.match_indices(SCHEMA_MARK) {
        let after = &lark[at + SCHEMA_MARK.len()..];
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        // llguidance rejects other text after the keyword, or the keyword is inside a string.
        if let Some(Ok(schema @ Value::Object(_))) = values.next() {
            BoundedSchema::read(&schema).map_err(|error| {
                let line = lark[..at].lines().count().max(1);
                GrammarError::whole(format!("line {line}: the schema after %json: {error}"))
            })?;
        }
    }
    Ok(())
}

/// The grammar with the embedded schemas as `made` makes them and their numbers in exact forms; llguidance reads everything else as
/// it is.
pub(super) fn numbered(
    lark: &str,
    made: impl Fn(Map<String, Value>) -> Result<Map<String, Value>, GrammarError>,
) -> Result<NumberedGrammar, GrammarError> {
    let (mut places, mut schemas, mut end) = (Vec::new(), Vec::new(), 0);
    for (at, _) in lark.match_indices(SCHEMA_MARK) {
        let start = at + SCHEMA_MARK.len();
        if at < end {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&lark[start..]).into_iter::<Value>();
        if let Some(Ok(Value::Object(schema))) = values.next() {
            end = start + values.byte_offset();
            let mut schema = made(schema)?;
            make_all_exact(&mut schema);
            places.push(start..end);
            schemas.push(Value::Object(schema));
        }
    }
    let numbers = NumberRules::of(&mut schemas)?.embedded();
    let (mut exact, mut copied) = (String::new(), 0);
    for (place, schema) in places.into_iter().zip(&schemas) {
        exact.push_str(&lark[copied..place.start]);
        exact.push(' ');
        exact.push_str(&schema.to_string());
        copied = place.end;
    }
    exact.push_str(&lark[copied..]);
    Ok(NumberedGrammar {
        grammar: TopLevelGrammar::from_lark(exact),
        numbers,
    })
}
