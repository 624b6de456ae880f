//! The head of a document: JSON, names, models and inputs. `compile` reads the steps.

use crate::error::{FAULTS_MAX, Fault, Faults};
use crate::inputs::{Input, InputType};
use serde_json::{Map, Value as Json};

/// Bytes of a document.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Steps of a document, those in bodies included.
pub const STEPS_MAX: usize = 10_000;
/// Nesting depth of bodies.
pub const NESTING_MAX: usize = 32;
/// Variables of a document.
pub const VARIABLES_MAX: usize = 4096;

/// A document with a valid head.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) default_model: Option<String>,
    pub(crate) return_value: Option<String>,
    /// Ids of the document's models.
    pub(crate) models: Vec<String>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) steps: Vec<Json>,
}

const HEAD: [&str; 8] = [
    "name",
    "description",
    "default_model",
    "return_value",
    "resources",
    "inputs",
    "steps",
    "phases",
];

/// Collects errors.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Vec<Fault>);

impl Complaints {
    pub(crate) fn add(&mut self, path: impl Into<String>, what: impl Into<String>) {
        if self.0.len() < FAULTS_MAX {
            self.0.push(Fault {
                path: path.into(),
                what: what.into(),
            });
        }
    }

    pub(crate) fn finish(self) -> Result<(), Faults> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Faults(self.0))
        }
    }
}

/// Reads a document's head. `Err` if the steps cannot be read.
pub(crate) fn parse(bytes: &[u8], wrong: &mut Complaints) -> Result<Document, Faults> {
    if bytes.len() > DOCUMENT_BYTES_MAX {
        let what = format!("has {} bytes; at most {DOCUMENT_BYTES_MAX}", bytes.len());
        return Err(Faults::one("document", what));
    }
    let json = serde_json::from_slice(bytes)
        .map_err(|why| Faults::one("document", format!("is no JSON: {why}")))?;
    let Json::Object(mut head) = json else {
        return Err(Faults::one("document", "must be an object"));
    };
    if let Some(unknown) = head.keys().find(|key| !HEAD.contains(&key.as_str())) {
        wrong.add(
            unknown,
            format!("is unknown; known are {}", HEAD.join(", ")),
        );
    }
    let steps = parse_steps(&mut head, wrong);
    let name = optional_text(&head, "name", wrong);
    if name.as_deref().is_none_or(str::is_empty) {
        wrong.add("name", "must be a text that is not empty");
    }
    Ok(Document {
        name: name.unwrap_or_default(),
        description: optional_text(&head, "description", wrong).unwrap_or_default(),
        default_model: optional_text(&head, "default_model", wrong),
        return_value: optional_text(&head, "return_value", wrong),
        models: parse_models(&head, wrong),
        inputs: parse_inputs(&head, wrong),
        steps,
    })
}

fn parse_steps(head: &mut Map<String, Json>, wrong: &mut Complaints) -> Vec<Json> {
    match (head.remove("steps"), head.remove("phases")) {
        (Some(Json::Array(steps)), None) | (None, Some(Json::Array(steps))) => return steps,
        (Some(_), Some(_)) => wrong.add("phases", "is another word for `steps`: one of them"),
        _ => wrong.add("steps", "must be a list of steps"),
    }
    Vec::new()
}

fn optional_text(map: &Map<String, Json>, field: &str, wrong: &mut Complaints) -> Option<String> {
    match map.get(field) {
        None | Some(Json::Null) => None,
        Some(Json::String(text)) => Some(text.clone()),
        Some(_) => {
            wrong.add(field, "must be a text");
            None
        }
    }
}

fn parse_models(head: &Map<String, Json>, wrong: &mut Complaints) -> Vec<String> {
    let Some(resources) = head.get("resources").filter(|r| !r.is_null()) else {
        return Vec::new();
    };
    let listed = resources
        .as_object()
        .map(|map| (map.len(), map.get("models")));
    let Some((1, Some(Json::Array(models)))) = listed else {
        wrong.add(
            "resources",
            "must be {\"models\": [{\"id\", \"gguf_path\"}]}",
        );
        return Vec::new();
    };
    let mut ids = Vec::new();
    for (at, model) in models.iter().enumerate() {
        let known = model.as_object().is_some_and(|map| {
            map.keys().all(|key| key == "id" || key == "gguf_path")
                && map.get("gguf_path").is_none_or(Json::is_string)
        });
        match model.get("id").and_then(Json::as_str) {
            Some(id) if known && !id.is_empty() => ids.push(id.to_owned()),
            _ => wrong.add(
                format!("resources.models[{at}]"),
                "must be {\"id\": text, \"gguf_path\": text}",
            ),
        }
    }
    ids
}

fn parse_inputs(head: &Map<String, Json>, wrong: &mut Complaints) -> Vec<Input> {
    let listed = match head.get("inputs") {
        None => return Vec::new(),
        Some(Json::Array(listed)) => listed,
        Some(_) => {
            wrong.add("inputs", "must be a list");
            return Vec::new();
        }
    };
    let mut inputs: Vec<Input> = Vec::with_capacity(listed.len());
    for (at, json) in listed.iter().enumerate() {
        let path = format!("inputs[{at}]");
        let Some(input) = Input::parse(json, &path, wrong) else {
            continue;
        };
        if inputs.iter().any(|other| other.name == input.name) {
            wrong.add(
                format!("{path}.name"),
                format!("`{}` is there already", input.name),
            );
            continue;
        }
        inputs.push(input);
    }
    inputs
}

/// Whether a text is a valid variable name.
pub(crate) fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    let begins = chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    begins && text.len() <= 64 && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl InputType {
    pub(crate) const NAMES: [(&'static str, Self); 7] = [
        ("u32", Self::U32),
        ("usize", Self::Usize),
        ("f32", Self::F32),
        ("bool", Self::Bool),
        ("text", Self::Text),
        ("array", Self::Array),
        ("u32[]", Self::Tokens),
    ];
}
