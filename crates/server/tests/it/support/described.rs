//! Responses as `/openapi.json` describes them: every response that a test's client reads is validated.
//!
//! Schemas are stricter here than in the document: an object that lists its properties has no others. A field that is
//! added to a response and not to its schema fails a test.

use super::client::Head;
use jsonschema::Validator;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// The document as it is served.
static OPEN_DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(server::openapi_document()).expect("JSON"));

/// The document with closed schemas.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = OPEN_DOCUMENT.clone();
    let schemas = document["components"]["schemas"].as_object_mut();
    for schema in schemas.expect("schemas").values_mut() {
        close(schema);
    }
    document
});

/// Validators by the pointer of their schema.
static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// The request that a response answers.
#[derive(Clone, Debug)]
pub struct RequestLine {
    method: String,
    path: String,
}

impl RequestLine {
    /// The first lines of the requests in these bytes; `None` for those of pipelined requests.
    pub fn parse_all(bytes: &[u8]) -> Vec<Option<Self>> {
        let version = b" HTTP/1.1\r\n";
        let lines = bytes.windows(version.len());
        match lines.filter(|part| part == version).count() {
            1 => vec![Self::parse(bytes)],
            several => vec![None; several],
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let line = bytes.split(|&byte| byte == b'\r').next()?;
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let method = method.to_ascii_lowercase();
        let is_known = matches!(&*method, "get" | "post" | "delete");
        let path = target.split('?').next()?.to_owned();
        is_known.then_some(Self { method, path })
    }

    /// Asserts that a response is one that the document describes.
    pub fn check(&self, head: &Head, body: &str) {
        let Some(path) = template(&self.method, &self.path) else {
            return;
        };
        let pointer = format!("/paths/{}/{}", escaped(path), self.method);
        let responses = &DOCUMENT.pointer(&pointer).expect("an operation")["responses"];
        let (status, response) = described(responses, head.status)
            .unwrap_or_else(|| panic!("{self:?}: status {} is not described", head.status));
        let content = response.get("content").and_then(Value::as_object);
        let Some(content) = content else {
            assert!(body.is_empty(), "{self:?} {status}: body {body:?}");
            return;
        };
        let content_type = head.get("content-type").unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let pointer = format!("{pointer}/responses/{status}/content/{}", escaped(essence));
        assert!(
            content.contains_key(essence),
            "{self:?} {status}: content type {content_type:?} is not described"
        );
        for (schema, value) in values(essence, body) {
            self.validate(&format!("{pointer}{schema}"), &value);
        }
    }

    fn validate(&self, pointer: &str, value: &Value) {
        let validator = validator(pointer);
        let errors: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{error} at {}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{self:?}: {errors:#?} in {value:#}");
    }
}

/// Values of a body, and the pointers of their schemas below the content. A body may be cut.
fn values(essence: &str, body: &str) -> Vec<(&'static str, Value)> {
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    match essence {
        "application/json" => {
            let value = parse(body).unwrap_or_else(|| panic!("not JSON: {body:?}"));
            vec![("/schema", value)]
        }
        "text/event-stream" => {
            let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
            let schema = "/itemSchema/properties/data/anyOf/0/contentSchema";
            data.filter_map(parse)
                .map(|value| (schema, value))
                .collect()
        }
        "application/x-ndjson" => {
            let lines = body.lines().filter_map(parse);
            let lines = lines.map(|mut line| {
                line.as_object_mut().map(|line| line.remove("cursor"));
                line
            });
            lines.map(|line| ("/itemSchema/allOf/0", line)).collect()
        }
        _ => Vec::new(),
    }
}

fn validator(pointer: &str) -> Arc<Validator> {
    let mut validators = VALIDATORS.lock().expect("no panic");
    let found = validators.entry(pointer.to_owned()).or_insert_with(|| {
        let mut schema = DOCUMENT.pointer(pointer).expect("a schema").clone();
        close(&mut schema);
        let components = json!({"schemas": DOCUMENT["components"]["schemas"]});
        let whole = json!({"allOf": [schema], "components": components});
        let validator = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .build(&whole);
        Arc::new(validator.unwrap_or_else(|error| panic!("{pointer}: {error}")))
    });
    Arc::clone(found)
}

/// The path of the document that a path stands for; literal segments win.
fn template(method: &str, path: &str) -> Option<&'static str> {
    let paths = DOCUMENT["paths"].as_object().expect("paths");
    let fits = |template: &str| {
        let (mut given, mut wanted) = (path.split('/'), template.split('/'));
        loop {
            match (given.next(), wanted.next()) {
                (None, None) => return true,
                (Some(given), Some(wanted)) => {
                    let any = wanted.starts_with('{') && !given.is_empty();
                    if !any && given != wanted {
                        return false;
                    }
                }
                _ => return false,
            }
        }
    };
    let found = paths
        .iter()
        .filter(|(name, methods)| fits(name) && methods.get(method).is_some());
    let literal = |name: &&String| name.matches('{').count();
    found
        .map(|(name, _)| name)
        .min_by_key(literal)
        .map(String::as_str)
}

/// The response of a status: its own, or that of its range.
fn described(responses: &Value, status: u16) -> Option<(String, &Value)> {
    let names = [status.to_string(), format!("{}XX", status / 100)];
    names.into_iter().find_map(|name| {
        let response = responses.get(&name)?;
        Some((name, response))
    })
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Closes the objects of a schema that list their properties.
fn close(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    let is_open = !object.contains_key("additionalProperties");
    if object.contains_key("properties") && is_open {
        expand(object);
        object.insert("unevaluatedProperties".to_owned(), json!(false));
    } else {
        branches(object).for_each(close);
        close_properties(object);
    }
}

/// Prepares a part of a closed object, to which other parts add properties: a reference to a schema that is closed by
/// itself becomes a copy that is not.
fn expand(object: &mut Map<String, Value>) {
    let reference = object.get("$ref").and_then(Value::as_str);
    if let Some(reference) = reference.map(|reference| reference[1..].to_owned()) {
        object.remove("$ref");
        let referred = OPEN_DOCUMENT.pointer(&reference).expect("a schema").clone();
        let parts = object.entry("allOf").or_insert_with(|| json!([]));
        parts.as_array_mut().expect("a list").push(referred);
    }
    close_properties(object);
    let parts = branches(object).filter_map(Value::as_object_mut);
    parts.for_each(expand);
}

fn close_properties(object: &mut Map<String, Value>) {
    let properties = object.get_mut("properties").and_then(Value::as_object_mut);
    let properties = properties.into_iter().flatten();
    properties.for_each(|(_, schema)| close(schema));
    for name in ["items", "additionalProperties"] {
        object.get_mut(name).into_iter().for_each(close);
    }
}

fn branches(object: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    let is_list = |name: &str| matches!(name, "oneOf" | "anyOf" | "allOf");
    let lists = object.iter_mut().filter(move |(name, _)| is_list(name));
    lists.filter_map(|(_, list)| list.as_array_mut()).flatten()
}
