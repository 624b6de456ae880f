//! Parsers of requests for embeddings: OpenAI's `/v1/embeddings`, and Ollama's `/api/embed` and `/api/embeddings`.

use crate::embeddings_input::{INPUTS_MAX, is_empty_input, optional_inputs_schema, read_inputs};
use crate::field_table::{EMBEDDINGS, FieldTable, OLLAMA_EMBED, OLLAMA_EMBEDDINGS};
use crate::fields::Fields;
use crate::shared::generation_fields;
use crate::shared::keep_alive::keep_alive;
use generate::error::ApiError;
use generate::request::{IgnoredFields, Priority, Prompt};
use serde_json::json;
use std::time::Duration;

/// Properties of a model that bound the fields of a request.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingModel {
    /// Number of token ids.
    pub vocab_size: usize,
    /// Dimension of the vectors.
    pub dimensions: usize,
}

/// A parsed request for embeddings.
#[derive(Debug)]
pub struct ParsedEmbeddings {
    /// At least one text, but for Ollama's routes, where no text asks for the model to be loaded.
    pub texts: Vec<Prompt>,
    /// Dimension of the returned vectors, if the request has one.
    pub dimensions: Option<usize>,
    /// Whether the vectors are returned as base64.
    pub is_base64: bool,
    /// Whether a text longer than the context is truncated instead of rejected.
    pub truncate: bool,
    /// Priority of the request.
    pub priority: Priority,
    /// Time in which the vectors must be computed.
    pub deadline: Option<Duration>,
    /// Fields without a meaning here.
    pub ignored: IgnoredFields,
}

/// Ollama's two routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbedRoute {
    /// `/api/embed`.
    Embed,
    /// `/api/embeddings`.
    Embeddings,
}

impl EmbedRoute {
    /// Name of the field with the texts.
    pub fn input_field(self) -> &'static str {
        match self {
            Self::Embed => "input",
            Self::Embeddings => "prompt",
        }
    }

    fn table(self) -> &'static FieldTable {
        match self {
            Self::Embed => &OLLAMA_EMBED,
            Self::Embeddings => &OLLAMA_EMBEDDINGS,
        }
    }
}

/// Parses a request to `/v1/embeddings`.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_openai(
    mut fields: Fields<'_>,
    model: EmbeddingModel,
) -> Result<ParsedEmbeddings, ApiError> {
    let texts = read_inputs(&mut fields, "input", model.vocab_size);
    fields.record("encoding_format", || json!({"enum": ["float", "base64"]}));
    let is_base64 = match fields.string("encoding_format").as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => {
            fields.reject("encoding_format", "must be float or base64");
            false
        }
    };
    let dimensions = parse_dimensions(&mut fields, model);
    let stream_options = generation_fields::stream_options(&mut fields);
    fields.string("model");
    let ignored = fields.finish_request(&EMBEDDINGS)?;
    Ok(ParsedEmbeddings {
        texts,
        dimensions,
        is_base64,
        truncate: false,
        priority: stream_options.priority,
        deadline: stream_options.deadline,
        ignored,
    })
}

/// Parses a request to one of Ollama's routes.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_ollama(
    mut fields: Fields<'_>,
    route: EmbedRoute,
    model: EmbeddingModel,
) -> Result<ParsedEmbeddings, ApiError> {
    let field = route.input_field();
    let texts = if is_empty_input(&fields, field) {
        Vec::new()
    } else {
        read_inputs(&mut fields, field, model.vocab_size)
    };
    let texts_max = if route == EmbedRoute::Embeddings {
        1
    } else {
        INPUTS_MAX
    };
    fields.record(field, || optional_inputs_schema(texts_max));
    if texts.len() > texts_max {
        fields.reject(field, "must be one text");
    }
    let truncate = fields.boolean("truncate").unwrap_or(true);
    let dimensions = parse_dimensions(&mut fields, model);
    keep_alive(&mut fields);
    fields.string("model");
    let ignored = fields.finish_request(route.table())?;
    Ok(ParsedEmbeddings {
        texts,
        dimensions,
        is_base64: false,
        truncate,
        priority: Priority::default(),
        deadline: None,
        ignored,
    })
}

fn parse_dimensions(fields: &mut Fields<'_>, model: EmbeddingModel) -> Option<usize> {
    fields.integer_as("dimensions", 1..=model.dimensions as i128)
}
