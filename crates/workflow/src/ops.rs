//! Ops that a Rust program adds to the language.

use crate::value::{Kind, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Role of a field of an added op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Name of a variable that is read.
    Input,
    /// Name of a variable that is set.
    Output,
    /// A literal, or `"{variable}"`.
    Parameter,
}

/// A field of an added op. All are required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in documents.
    pub name: &'static str,
    /// Role of the field.
    pub role: Role,
    /// Kind of the value.
    pub kind: Kind,
}

/// An op that a Rust program adds.
pub trait CustomOp: Send + Sync {
    /// Declares the fields.
    fn fields(&self) -> &[Field];

    /// Runs the op: reads inputs, sets outputs. Must be quick and must not wait: long work belongs
    /// elsewhere, with results sent through a channel.
    ///
    /// # Errors
    /// A message for users; the run fails with the message and the step's path.
    fn run(&self, call: &mut Call<'_>) -> Result<(), String>;
}

/// The call of an added op.
pub struct Call<'a> {
    pub(crate) given: &'a [(&'static str, Value)],
    pub(crate) fields: &'a [Field],
    pub(crate) set: Vec<(&'static str, Value)>,
}

impl Call<'_> {
    /// The value of an input or a parameter.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.given.iter().find(|(given, _)| *given == name);
        found.map(|(_, value)| value)
    }

    /// Sets an output. An unknown output or a value of another kind fails the step.
    pub fn set(&mut self, name: &'static str, value: Value) {
        self.set.push((name, value));
    }

    /// The error of the outputs that were set.
    pub(crate) fn fault(&self) -> Option<String> {
        let outputs = self.fields.iter().filter(|f| f.role == Role::Output);
        for field in outputs.clone() {
            if !self.set.iter().any(|(name, _)| *name == field.name) {
                return Some(format!("did not set its output `{}`", field.name));
            }
        }
        self.set.iter().find_map(|(name, value)| {
            let field = outputs.clone().find(|field| field.name == *name);
            match field {
                Some(field) if field.kind == value.kind() => None,
                Some(field) => Some(format!("set `{name}` to no {}", field.kind.name())),
                None => Some(format!("set `{name}`, which is no output of it")),
            }
        })
    }
}

/// An op of this name exists already.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is an op `{0}` already")]
pub struct NameTaken(pub String);

/// The ops that documents may use: built-in and added ones.
#[derive(Clone, Default)]
pub struct Ops {
    added: BTreeMap<String, Arc<dyn CustomOp>>,
}

impl Ops {
    /// Adds an op.
    ///
    /// ```
    /// use workflow::{Call, CustomOp, Field, Kind, Ops, Role, Value};
    ///
    /// struct Shout;
    ///
    /// impl CustomOp for Shout {
    ///     fn fields(&self) -> &[Field] {
    ///         &[
    ///             Field { name: "input", role: Role::Input, kind: Kind::Text },
    ///             Field { name: "output", role: Role::Output, kind: Kind::Text },
    ///         ]
    ///     }
    ///
    ///     fn run(&self, call: &mut Call<'_>) -> Result<(), String> {
    ///         let Some(Value::Text(text)) = call.get("input") else {
    ///             return Err("no text".to_owned());
    ///         };
    ///         let loud = Value::text(&text.to_uppercase());
    ///         call.set("output", loud);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut ops = Ops::default();
    /// ops.register_op("shout", Shout)?;
    /// let program = workflow::Program::compile(
    ///     br#"{"name": "loud", "inputs": [{"name": "text", "type": "text"}], "return_value": "loud",
    ///          "steps": [{"op": "shout", "input": "text", "output": "loud"}]}"#,
    ///     &ops,
    /// );
    /// assert!(program.is_ok());
    /// # Ok::<(), workflow::NameTaken>(())
    /// ```
    ///
    /// # Errors
    /// The name is that of a built-in op, or was added before.
    pub fn register_op(
        &mut self,
        name: &str,
        op: impl CustomOp + 'static,
    ) -> Result<(), NameTaken> {
        let own = crate::compile::OPS.contains(&name);
        if own || self.added.contains_key(name) {
            return Err(NameTaken(name.to_owned()));
        }
        self.added.insert(name.to_owned(), Arc::new(op));
        Ok(())
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<dyn CustomOp>> {
        self.added.get(name)
    }

    pub(crate) fn added(&self) -> impl Iterator<Item = &str> {
        self.added.keys().map(String::as_str)
    }
}
