//! Values of variables.

use crate::account::ID_BYTES;
use serde_json::Value as Json;
use std::sync::Arc;

/// A variable's value. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer: a count, an id, a position.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// Text.
    Text(Arc<str>),
    /// A list of JSON values: messages, maps, texts.
    Array(Arc<Vec<Json>>),
    /// Token ids.
    Tokens(Arc<Vec<u32>>),
    /// An array of numbers that a model computed.
    Tensor(Arc<Vec<f32>>),
    /// The logits after a session's transcript.
    Logits(Logits),
    /// A ring channel of the run.
    Channel(usize),
}

/// Identifies the logits at a position of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logits {
    pub(crate) session: usize,
    pub(crate) position: usize,
}

/// Kind of a value; fixed for a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as the values")]
pub enum Kind {
    Int,
    Float,
    Bool,
    Text,
    Array,
    Tokens,
    Tensor,
    Logits,
    Channel,
}

impl Kind {
    /// The kind's name in error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "an integer",
            Self::Float => "a float",
            Self::Bool => "a bool",
            Self::Text => "a text",
            Self::Array => "an array",
            Self::Tokens => "a token list",
            Self::Tensor => "a tensor",
            Self::Logits => "logits",
            Self::Channel => "a channel",
        }
    }
}

impl Value {
    /// The kind of this value.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Int(_) => Kind::Int,
            Self::Float(_) => Kind::Float,
            Self::Bool(_) => Kind::Bool,
            Self::Text(_) => Kind::Text,
            Self::Array(_) => Kind::Array,
            Self::Tokens(_) => Kind::Tokens,
            Self::Tensor(_) => Kind::Tensor,
            Self::Logits(_) => Kind::Logits,
            Self::Channel(_) => Kind::Channel,
        }
    }

    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Token ids.
    pub fn tokens(ids: Vec<u32>) -> Self {
        Self::Tokens(Arc::new(ids))
    }

    /// The value as JSON; logits and channels become null.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Int(value) => (*value).into(),
            Self::Float(value) => (*value).into(),
            Self::Bool(value) => (*value).into(),
            Self::Text(text) => Json::from(&**text),
            Self::Array(items) => Json::Array(items.to_vec()),
            Self::Tokens(ids) => Json::from(ids.to_vec()),
            Self::Tensor(entries) => entries
                .iter()
                .map(|entry| shortest_number(*entry))
                .collect(),
            Self::Logits(_) | Self::Channel(_) => Json::Null,
        }
    }

    /// Bytes beyond those of the variable itself; an estimate for lists.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Array(items) => items.iter().map(json_bytes).sum(),
            Self::Tokens(ids) => ids.len() * ID_BYTES,
            Self::Tensor(entries) => entries.len() * size_of::<f32>(),
            _ => 0,
        }
    }

    /// Length: characters of a text, items of a list.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::Text(text) => Some(text.chars().count()),
            Self::Array(items) => Some(items.len()),
            Self::Tokens(ids) => Some(ids.len()),
            Self::Tensor(entries) => Some(entries.len()),
            _ => None,
        }
    }

    /// The value as a condition: true, or a number other than 0.
    pub(crate) fn holds(&self) -> bool {
        match self {
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            _ => false,
        }
    }
}

/// Bytes of a map's entry beside the key's text and the value.
const ENTRY_BYTES: usize = 64;

/// Estimated bytes of a JSON value in memory.
pub(crate) fn json_bytes(json: &Json) -> usize {
    let inside = match json {
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(json_bytes).sum(),
        Json::Object(map) => map
            .iter()
            .map(|(key, value)| ENTRY_BYTES + key.len() + json_bytes(value))
            .sum(),
    };
    size_of::<Json>() + inside
}

/// The shortest representation that parses to the same number; NaN and infinities become null.
fn shortest_number(entry: f32) -> Json {
    entry
        .to_string()
        .parse::<f64>()
        .map_or(Json::Null, Json::from)
}
