//! What a variable holds.

use crate::account::ID_BYTES;
use serde_json::Value as Json;
use std::sync::Arc;

/// What a variable holds. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number: a count, an id, a position.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Yes or no.
    Bool(bool),
    /// Text.
    Text(Arc<str>),
    /// A list of anything JSON can say: messages, maps, texts.
    Array(Arc<Vec<Json>>),
    /// Token ids.
    Tokens(Arc<Vec<u32>>),
    /// Numbers that a model computed, in one row.
    Tensor(Arc<Vec<f32>>),
    /// What may follow a session's transcript.
    Logits(Logits),
    /// A ring channel of the run.
    Channel(usize),
}

/// Names the logits at a position of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logits {
    pub(crate) session: usize,
    pub(crate) position: usize,
}

/// What kind of value a variable holds; the same for its whole life.
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
    /// As documents' faults call it.
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
    /// What kind it is.
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

    /// As JSON; logits and channels have no value outside of their run and are null.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Int(value) => (*value).into(),
            Self::Float(value) => (*value).into(),
            Self::Bool(value) => (*value).into(),
            Self::Text(text) => Json::from(&**text),
            Self::Array(items) => Json::Array(items.to_vec()),
            Self::Tokens(ids) => Json::from(ids.to_vec()),
            Self::Tensor(entries) => entries.iter().map(|entry| shortest(*entry)).collect(),
            Self::Logits(_) | Self::Channel(_) => Json::Null,
        }
    }

    /// Bytes it takes beyond a variable's own; about, of an array.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Array(items) => items.iter().map(json_bytes).sum(),
            Self::Tokens(ids) => ids.len() * ID_BYTES,
            Self::Tensor(entries) => entries.len() * size_of::<f32>(),
            _ => 0,
        }
    }

    /// How many things it holds: characters of a text, items of a list.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::Text(text) => Some(text.chars().count()),
            Self::Array(items) => Some(items.len()),
            Self::Tokens(ids) => Some(ids.len()),
            Self::Tensor(entries) => Some(entries.len()),
            _ => None,
        }
    }

    /// Whether a condition on it holds: true, or a number other than 0.
    pub(crate) fn holds(&self) -> bool {
        match self {
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            _ => false,
        }
    }
}

/// What an entry of a map takes beside its key's text and its value.
const ENTRY_BYTES: usize = 64;

/// Bytes that a JSON value takes in memory, about.
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

/// With as few digits as tell it from its neighbours; what is no number is null.
fn shortest(entry: f32) -> Json {
    entry
        .to_string()
        .parse::<f64>()
        .map_or(Json::Null, Json::from)
}
