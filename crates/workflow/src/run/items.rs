//! Lists of JSON values: reading and appending items.

use super::{Run, Trouble};
use crate::program::{Param, Slot};
use crate::value::{Kind, Value};
use serde_json::Value as Json;
use std::sync::Arc;

impl Run {
    /// The result of `get_item`.
    pub(super) fn get_item(
        &mut self,
        (input, output): (Slot, Slot),
        index: &Param<i64>,
        kind: Kind,
    ) -> Result<(), Trouble> {
        let index = self.int(index)?;
        let Value::Array(items) = self.value(input)? else {
            return Err(Trouble::program("there is no list"));
        };
        let item = usize::try_from(index).ok().and_then(|at| items.get(at));
        let item = item.ok_or_else(|| {
            Trouble::program(format!("index is {index}; the list has {}", items.len()))
        })?;
        let value = Value::from_json(kind, item);
        let value = value
            .ok_or_else(|| Trouble::program(format!("item {index} is not {}", kind.name())))?;
        self.set(output, value)
    }

    /// Executes `append_item`.
    pub(super) fn append_item(&mut self, input: Slot, output: Slot) -> Result<(), Trouble> {
        let item = self.value(input)?.to_json();
        if self.state.vars.get(output).is_none() {
            self.set(output, Value::Array(Arc::default()))?;
        }
        self.state.vars.append_item(output, item, &self.account)
    }
}

impl Value {
    /// Converts JSON to a value of this kind, if possible. An integer is a float too.
    pub(crate) fn from_json(kind: Kind, json: &Json) -> Option<Self> {
        let list = || json.as_array();
        match kind {
            Kind::Int => json.as_i64().map(Self::Int),
            Kind::Float => json.as_f64().map(Self::Float),
            Kind::Bool => json.as_bool().map(Self::Bool),
            Kind::Text => json.as_str().map(Self::text),
            Kind::Array => list().map(|items| Self::Array(Arc::new(items.clone()))),
            Kind::Tokens => {
                let ids = list()?.iter();
                let ids = ids.map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
                ids.collect::<Option<Vec<u32>>>().map(Self::tokens)
            }
            Kind::Tensor | Kind::Logits | Kind::Channel => None,
        }
    }
}
