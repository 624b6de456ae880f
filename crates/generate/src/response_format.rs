//! Structured output: the grammar that an answer must match, and the request's field of the grammar.

use crate::error::ApiError;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use text::{GrammarError, GrammarSource};

/// When a thread for compiling a grammar may be available again.
const NO_THREAD_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The grammar that an answer must match, and the request's field of the grammar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseFormat {
    /// Schema, regular expression, choice or grammar.
    pub source: GrammarSource,
    /// The field that holds the source.
    pub field: String,
}

/// A response format that takes any JSON object.
pub fn any_object(field: &str) -> ResponseFormat {
    ResponseFormat {
        source: GrammarSource::JsonObject,
        field: field.to_owned(),
    }
}

impl ResponseFormat {
    /// The error of a response format whose grammar cannot be compiled.
    pub fn grammar_error(&self, error: &GrammarError) -> ApiError {
        if error.is_temporary() {
            let words = format!("{}: {}", self.field, error.why);
            return ApiError::capacity("overloaded", words, NO_THREAD_RETRY_AFTER);
        }
        let mut field = self.field.clone();
        if !error.place.is_empty() && !error.place.starts_with('[') {
            field.push('.');
        }
        field.push_str(&error.place);
        let code = match self.source.inner() {
            GrammarSource::JsonSchema(_) | GrammarSource::JsonObject | GrammarSource::Calls(..) => {
                "invalid_json_schema"
            }
            _ => "invalid_grammar",
        };
        ApiError::field(&field, code, format!("{field}: {}", error.why))
    }
}
