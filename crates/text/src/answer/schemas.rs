//! What the tools of a request take, as far as reading calls needs it.

use serde_json::Value;
use std::collections::HashMap;

/// How deep a schema's `$ref`, `anyOf` and their like are followed.
const FOLLOWED_MAX: usize = 4;

/// The tools of a request, by name, with the types of their parameters.
#[derive(Clone, Debug, Default)]
pub struct ToolSchemas {
    tools: HashMap<String, HashMap<String, ParameterKind>>,
}

/// How a parameter that is written as plain text is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterKind {
    /// As it stands.
    String,
    /// As it stands, but for `null`.
    NullableString,
    /// As a value of one word or number.
    Scalar,
    /// As an object or a list.
    Nested,
    /// Nothing is known: as what it looks like.
    Unknown,
}

impl ToolSchemas {
    /// Of tools in OpenAI's shape (`{"type": "function", "function": {"name", "parameters"}}`), or
    /// with name and schema at the top.
    pub fn new(tools: &[Value]) -> Self {
        let tools = tools.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            let schema = function
                .get("parameters")
                .or_else(|| function.get("input_schema"));
            Some((name, schema.map(parameters).unwrap_or_default()))
        });
        Self {
            tools: tools.collect(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether there is a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// How a tool's parameter is read.
    pub(super) fn kind(&self, tool: &str, parameter: &str) -> ParameterKind {
        let parameters = self.tools.get(tool);
        parameters
            .and_then(|parameters| parameters.get(parameter).copied())
            .unwrap_or(ParameterKind::Unknown)
    }
}

/// How a parameter of a schema `root` is read; whether anything is known of it, and whether it may be a string.
pub(super) fn kind_of(property: &Value, root: &Value) -> (ParameterKind, bool, bool) {
    let mut types = Types::default();
    types.add(property, root, 0);
    let is_known = types.string || types.null || types.scalar || types.nested;
    (types.kind(), is_known, types.string)
}

fn parameters(schema: &Value) -> HashMap<String, ParameterKind> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(name, property)| (name.clone(), kind_of(property, schema).0))
        .collect()
}

/// Which types a schema allows.
#[derive(Default)]
struct Types {
    string: bool,
    null: bool,
    scalar: bool,
    nested: bool,
}

impl Types {
    fn add(&mut self, schema: &Value, root: &Value, depth: usize) {
        if depth == FOLLOWED_MAX {
            return;
        }
        match schema.get("type") {
            Some(Value::String(name)) => self.name(name),
            Some(Value::Array(names)) => names
                .iter()
                .filter_map(Value::as_str)
                .for_each(|name| self.name(name)),
            _ => {}
        }
        let constants = schema.get("enum").and_then(Value::as_array);
        let constants = constants.into_iter().flatten().chain(schema.get("const"));
        if schema.get("type").is_none() {
            constants.for_each(|constant| self.constant(constant));
        }
        for name in ["anyOf", "oneOf", "allOf"] {
            let options = schema.get(name).and_then(Value::as_array);
            for option in options.into_iter().flatten() {
                self.add(option, root, depth + 1);
            }
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|path| root.pointer(path.strip_prefix('#')?));
        if let Some(target) = target {
            self.add(target, root, depth + 1);
        }
    }

    fn name(&mut self, name: &str) {
        match name {
            "string" => self.string = true,
            "null" => self.null = true,
            "integer" | "number" | "boolean" => self.scalar = true,
            "object" | "array" => self.nested = true,
            _ => {}
        }
    }

    fn constant(&mut self, constant: &Value) {
        match constant {
            Value::String(_) => self.string = true,
            Value::Null => self.null = true,
            Value::Bool(_) | Value::Number(_) => self.scalar = true,
            Value::Array(_) | Value::Object(_) => self.nested = true,
        }
    }

    fn kind(&self) -> ParameterKind {
        match (self.string, self.null, self.scalar, self.nested) {
            (true, false, false, false) => ParameterKind::String,
            (true, true, false, false) => ParameterKind::NullableString,
            (false, _, _, true) if !self.null && !self.scalar => ParameterKind::Nested,
            (false, _, true, false) | (false, true, false, false) => ParameterKind::Scalar,
            _ => ParameterKind::Unknown,
        }
    }
}
