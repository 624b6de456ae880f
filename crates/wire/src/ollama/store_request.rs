//! Parsers of `/api/show`, `/api/pull`, `/api/create`, `/api/copy` and `/api/delete`.
//!
//! Older clients name the model in `name` instead of `model`.

use crate::derived_model::DerivedModel;
use crate::fields::{self, Fields, JsonType, OrReject};
use crate::ollama::go_template::{self, TemplateValues};
use crate::ollama::request::{NOT_SUPPORTED, is_given, string_field};
use crate::shared::generation_fields::check_options;
use generate::error::ApiError;
use serde_json::{Map, Value, json};

/// Names of the field with the model.
const MODEL: &[&str] = &["model", "name"];

/// Fields of `/api/create` that must be absent or empty, with the error message.
const UNSUPPORTED: [(&str, &str); 5] = [
    ("files", "`from` must name a local model"),
    ("adapters", NOT_SUPPORTED),
    ("messages", NOT_SUPPORTED),
    ("quantize", NOT_SUPPORTED),
    (
        "modelfile",
        "use `from`, `system`, `template` and `parameters`",
    ),
];

/// A request to `/api/pull`.
#[derive(Debug)]
pub struct PullRequest {
    /// The model to download.
    pub model: String,
    /// Whether the response reports the progress line by line.
    pub is_streamed: bool,
}

/// A request to `/api/create`.
#[derive(Debug)]
pub struct CreateRequest {
    /// Name of the new model.
    pub model: String,
    /// Whether the response has a line per phase.
    pub is_streamed: bool,
    /// The new model.
    pub derived: DerivedModel,
}

/// A request to `/api/copy`.
#[derive(Debug)]
pub struct CopyRequest {
    /// The model to copy.
    pub source: String,
    /// The new name.
    pub destination: String,
}

/// Parses a request to `/api/show`. Returns the model's name.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_show(mut fields: Fields<'_>) -> Result<String, ApiError> {
    fields.record("name", former_name_schema);
    let name = fields
        .string("model")
        .or_else(|| fields.string("name"))
        .or_reject(&mut fields, "model", "is required");
    fields.finish()?;
    Ok(name.unwrap_or_default().into_owned())
}

/// Parses a request to `/api/pull`.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_pull(mut fields: Fields<'_>) -> Result<PullRequest, ApiError> {
    let request = PullRequest {
        model: required_text(&mut fields, MODEL),
        is_streamed: fields.boolean("stream").unwrap_or(true),
    };
    fields.finish()?;
    Ok(request)
}

/// Parses a request to `/api/create`.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_create(mut fields: Fields<'_>) -> Result<CreateRequest, ApiError> {
    let request = CreateRequest {
        model: required_text(&mut fields, MODEL),
        is_streamed: fields.boolean("stream").unwrap_or(true),
        derived: parse_derived_model(&mut fields),
    };
    fields.finish()?;
    Ok(request)
}

/// Parses a request to `/api/copy`.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_copy(mut fields: Fields<'_>) -> Result<CopyRequest, ApiError> {
    let request = CopyRequest {
        source: required_text(&mut fields, &["source"]),
        destination: required_text(&mut fields, &["destination"]),
    };
    fields.finish()?;
    Ok(request)
}

/// Parses a request to `/api/delete`. Returns the model's name.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_delete(mut fields: Fields<'_>) -> Result<String, ApiError> {
    let name = required_text(&mut fields, MODEL);
    fields.finish()?;
    Ok(name)
}

/// Parses the fields of a derived model.
fn parse_derived_model(fields: &mut Fields<'_>) -> DerivedModel {
    reject_unsupported(fields);
    let template = string_field(fields, "template").filter(|template| !template.is_empty());
    let nothing = TemplateValues {
        system: "",
        prompt: "",
    };
    if let Some(Err(why)) = template
        .as_deref()
        .map(|template| go_template::render(template, nothing))
    {
        fields.reject("template", why);
    }
    DerivedModel {
        parent: required_text(fields, &["from"]),
        system: string_field(fields, "system").filter(|system| !system.is_empty()),
        template,
        adapter: None,
        options: parse_parameters(fields),
    }
}

fn reject_unsupported(fields: &mut Fields<'_>) {
    for (name, error_message) in UNSUPPORTED {
        fields.record(
            name,
            || json!({"enum": ["", [], null], "description": error_message}),
        );
        if is_given(fields, name) {
            fields.reject(name, error_message);
        }
    }
}

/// Parses options as in a request.
fn parse_parameters(fields: &mut Fields<'_>) -> Map<String, Value> {
    const NAME: &str = "parameters";
    let Some(raw) = fields.raw(NAME) else {
        return Map::new();
    };
    if fields::json_type(raw) != JsonType::Object {
        fields.reject(NAME, "must be an object");
        return Map::new();
    }
    fields.within(NAME, check_options);
    fields::parse_value(raw).unwrap_or_default()
}

fn former_name_schema() -> Value {
    json!({"description": "former name of the field model"})
}

/// The first of these fields that is present.
fn required_text(fields: &mut Fields<'_>, names: &[&str]) -> String {
    if names == MODEL {
        fields.record("name", former_name_schema);
    }
    let schema = || json!({"minLength": 1});
    let mut given = names.iter();
    let found = given.find(|name| fields.described(name, schema).is_some());
    let text = found.and_then(|name| string_field(fields, name));
    let text =
        text.filter(|text| !text.is_empty())
            .or_reject(fields, names[0], "is required: a text");
    text.unwrap_or_default()
}

/// Suffix of a name with the default tag.
pub const LATEST: &str = ":latest";

/// The model name with a tag.
pub fn with_tag(id: &str) -> String {
    let name = id.rsplit('/').next().unwrap_or(id);
    if name.contains(':') {
        id.to_owned()
    } else {
        format!("{id}{LATEST}")
    }
}

#[cfg(test)]
mod tests {
    use super::with_tag;

    #[test]
    fn model_name_gets_a_tag() {
        for (id, want) in [
            ("tiny", "tiny:latest"),
            ("tiny:1b", "tiny:1b"),
            ("host:80/tiny", "host:80/tiny:latest"),
        ] {
            assert_eq!(with_tag(id), want);
        }
    }
}
