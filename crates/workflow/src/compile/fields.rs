//! One step's fields.

use super::{Compiler, NEVER};
use crate::expr::Expr;
use crate::program::{Condition, Param, Slot};
use crate::value::Kind;
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// One step's fields; records which were read.
pub(super) struct Fields<'a, 'c, 'o> {
    pub(super) c: &'c mut Compiler<'o>,
    map: &'a Map<String, Json>,
    pub(super) path: &'a str,
    read: Vec<&'static str>,
}

impl<'a, 'c, 'o> Fields<'a, 'c, 'o> {
    pub(super) fn new(c: &'c mut Compiler<'o>, map: &'a Map<String, Json>, path: &'a str) -> Self {
        Self {
            c,
            map,
            path,
            read: vec!["op"],
        }
    }

    /// Reports an error of this field.
    pub(super) fn wrong(&mut self, name: &str, what: impl Into<String>) {
        let place = self.at(name);
        self.c.wrong.add(place, what);
    }

    /// The field's JSON; null counts as absent.
    pub(super) fn json(&mut self, name: &'static str) -> Option<&'a Json> {
        self.read.push(name);
        self.map.get(name).filter(|json| !json.is_null())
    }

    pub(super) fn at(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// Reports fields that were not read.
    pub(super) fn finish(&mut self) {
        for key in self.map.keys() {
            if !self.read.contains(&key.as_str()) {
                let known = self.read[1..].join(", ");
                let known = if known.is_empty() { "none" } else { &known };
                self.wrong(key, format!("is unknown; known are {known}"));
            }
        }
    }

    fn variable_name(&mut self, name: &'static str) -> Option<&'a str> {
        let json = self.json(name)?;
        let text = json.as_str();
        if text.is_none() {
            self.wrong(name, "must be a variable's name");
        }
        text
    }

    fn report_missing(&mut self, name: &str) {
        if self.map.get(name).is_none_or(Json::is_null) {
            self.wrong(name, "is missing");
        }
    }

    /// An optional variable to read, of one of these kinds.
    pub(super) fn input_of(&mut self, name: &'static str, kinds: &[Kind]) -> Option<Slot> {
        let variable = self.variable_name(name)?;
        let slot = self.c.find_variable(variable, &self.at(name))?;
        let kind = self.c.variables[slot].kind;
        if !kinds.contains(&kind) {
            let wanted: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            let wanted = wanted.join(" or ");
            let what = format!("names `{variable}`, {}; it must be {wanted}", kind.name());
            self.wrong(name, what);
        }
        Some(slot)
    }

    /// A required variable to read, of one of these kinds.
    pub(super) fn input_in(&mut self, name: &'static str, kinds: &[Kind]) -> Slot {
        self.report_missing(name);
        self.input_of(name, kinds).unwrap_or(0)
    }

    /// A required variable to read, of one kind.
    pub(super) fn input(&mut self, name: &'static str, kind: Kind) -> Slot {
        self.input_in(name, &[kind])
    }

    /// The variable's name in an object with this single entry, and the location.
    pub(super) fn within(&mut self, name: &'static str, entry: &str) -> Option<(&'a str, String)> {
        let path = self.at(name);
        let map = self.json(name).and_then(Json::as_object);
        let only = map
            .filter(|map| map.len() == 1)
            .and_then(|map| map.get(entry));
        let found = only.and_then(Json::as_str);
        if found.is_none() {
            self.c
                .wrong
                .add(&path, format!("must be {{\"{entry}\": a variable's name}}"));
        }
        Some((found?, format!("{path}.{entry}")))
    }

    /// An optional variable to set.
    pub(super) fn output_if(&mut self, name: &'static str, kind: Kind) -> Option<Slot> {
        let variable = self.variable_name(name)?;
        Some(self.c.make_variable(variable, kind, &self.at(name)))
    }

    /// A required variable to set.
    pub(super) fn output(&mut self, name: &'static str, kind: Kind) -> Slot {
        self.report_missing(name);
        self.output_if(name, kind).unwrap_or(0)
    }

    /// A literal or `"{variable}"`; `None` if absent.
    fn parse_param<T>(
        &mut self,
        name: &'static str,
        kinds: &[Kind],
        literal: impl Fn(&Json) -> Option<T>,
    ) -> Option<Param<T>> {
        let json = self.json(name)?;
        let braced = json.as_str().and_then(braced_name);
        let Some(variable) = braced else {
            let value = literal(json);
            if value.is_none() {
                let kind = kinds[0].name();
                let what = format!("must be {kind} or a variable in braces, `\"{{name}}\"`");
                self.wrong(name, what);
            }
            return value.map(Param::Literal);
        };
        let path = self.at(name);
        if kinds[0] == Kind::Int
            && let Some(list) = variable.strip_suffix(".len")
        {
            let slot = self.c.find_variable(list, &path)?;
            if !matches!(
                self.c.variables[slot].kind,
                Kind::Text | Kind::Array | Kind::Tokens | Kind::Tensor
            ) {
                self.c.wrong.add(
                    path,
                    format!("asks for the length of `{list}`, which has none"),
                );
            }
            return Some(Param::Len(slot));
        }
        let slot = self.c.find_variable(variable, &path)?;
        let kind = self.c.variables[slot].kind;
        if !kinds.contains(&kind) {
            let what = format!(
                "uses `{variable}`, {}; it must be {}",
                kind.name(),
                kinds[0].name()
            );
            self.c.wrong.add(path, what);
        }
        Some(Param::Var(slot))
    }

    pub(super) fn int_if(&mut self, name: &'static str) -> Option<Param<i64>> {
        self.parse_param(name, &[Kind::Int], Json::as_i64)
    }

    pub(super) fn int(&mut self, name: &'static str, default: i64) -> Param<i64> {
        self.int_if(name).unwrap_or(Param::Literal(default))
    }

    pub(super) fn float(&mut self, name: &'static str, default: f64) -> Param<f64> {
        let found = self.parse_param(name, &[Kind::Float, Kind::Int], Json::as_f64);
        found.unwrap_or(Param::Literal(default))
    }

    pub(super) fn flag(&mut self, name: &'static str, default: bool) -> Param<bool> {
        let found = self.parse_param(name, &[Kind::Bool], Json::as_bool);
        found.unwrap_or(Param::Literal(default))
    }

    pub(super) fn text_if(&mut self, name: &'static str) -> Option<Param<Arc<str>>> {
        self.parse_param(name, &[Kind::Text], |json| json.as_str().map(Arc::from))
    }

    /// One of these strings; the first if absent.
    pub(super) fn word<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> T {
        let Some(json) = self.json(name) else {
            return words[0].1;
        };
        let found = words.iter().find(|(word, _)| json.as_str() == Some(word));
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(name, format!("must be one of {}", known.join(", ")));
        }
        found.unwrap_or(&words[0]).1
    }

    /// Index of the step's model.
    pub(super) fn model(&mut self) -> usize {
        let json = self.json("model_id");
        if json.is_some_and(|json| !json.is_string()) {
            self.wrong("model_id", "must be a model's id");
        }
        self.c
            .model_index(json.and_then(Json::as_str), &self.at("model_id"))
    }

    pub(super) fn expr(&mut self, kind: Kind) -> Expr {
        let nothing = Expr {
            left: crate::expr::Operand::Int(0),
            right: None,
        };
        self.report_missing("expr");
        let Some(json) = self.json("expr") else {
            return nothing;
        };
        let text = match json {
            Json::String(text) => text.clone(),
            json => json.to_string(),
        };
        let parsed = Expr::parse(&text, kind, &mut |name| {
            let found = self.c.variables.iter().position(|v| *v.name == *name);
            let slot =
                found.ok_or_else(|| format!("uses `{name}`, which nothing has set before"))?;
            Ok((slot, self.c.variables[slot].kind))
        });
        parsed.unwrap_or_else(|what| {
            self.wrong("expr", what);
            nothing
        })
    }

    /// A variable's name, or a boolean.
    pub(super) fn condition(&mut self) -> Condition {
        self.report_missing("condition");
        if let Some(Json::Bool(always)) = self.map.get("condition") {
            self.read.push("condition");
            return Condition::Always(*always);
        }
        let slot = self.input_of("condition", &[Kind::Bool, Kind::Int]);
        slot.map_or(NEVER, Condition::Var)
    }

    /// A list of steps. `phases` is a synonym of `body`.
    pub(super) fn body(&mut self, name: &'static str) -> (&'a [Json], String) {
        let other = (name == "body").then(|| self.json("phases")).flatten();
        let (name, json) = match self.json(name) {
            None if other.is_some() => ("phases", other),
            json => (name, json),
        };
        let path = self.at(name);
        match json {
            Some(Json::Array(steps)) => (steps, path),
            Some(_) => {
                self.c.wrong.add(&path, "must be a list of steps");
                (&[], path)
            }
            None => (&[], path),
        }
    }
}

/// The name in `"{name}"`.
fn braced_name(text: &str) -> Option<&str> {
    text.strip_prefix('{')?.strip_suffix('}')
}
