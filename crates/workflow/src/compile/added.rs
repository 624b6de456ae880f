//! Ops added by a Rust program.

use super::fields::Fields;
use super::{Compiler, OPS};
use crate::ops::{Field, Role};
use crate::program::{Bound, Op};
use crate::value::{Kind, Value};
use serde_json::Value as Json;
use std::sync::Arc;

impl Compiler<'_> {
    /// Compiles an added op of this name; reports an error if there is none.
    pub(super) fn added(&mut self, name: &str, f: &mut Fields<'_>) -> Option<Op> {
        let Some(op) = self.ops.find(name).map(Arc::clone) else {
            let known = OPS.into_iter().chain(self.ops.added());
            let known = known.collect::<Vec<&str>>().join(", ");
            self.wrong.add(
                f.at("op"),
                format!("`{name}` is unknown; known are {known}"),
            );
            return None;
        };
        let fields = op.fields().to_vec();
        let mut bound = Vec::with_capacity(fields.len());
        for role in [Role::Input, Role::Parameter, Role::Output] {
            for field in fields.iter().filter(|field| field.role == role) {
                bound.push((*field, self.bind_field(*field, f)));
            }
        }
        Some(Op::Custom { op, fields: bound })
    }

    fn bind_field(&mut self, field: Field, f: &mut Fields<'_>) -> Bound {
        let Field { name, role, kind } = field;
        match role {
            Role::Input => Bound::Var(f.input(self, name, kind)),
            Role::Output => Bound::Var(f.output(self, name, kind)),
            Role::Parameter => self.bind_parameter(name, kind, f),
        }
    }

    fn bind_parameter(&mut self, name: &'static str, kind: Kind, f: &mut Fields<'_>) -> Bound {
        let json = f.json(name);
        let braced = json.and_then(Json::as_str);
        let braced = braced.and_then(|text| text.strip_prefix('{')?.strip_suffix('}'));
        if let Some(variable) = braced {
            let slot = self.find_variable(variable, &f.at(name)).unwrap_or(0);
            if self.variables.get(slot).is_some_and(|v| v.kind != kind) {
                self.wrong
                    .add(f.at(name), format!("must be {}", kind.name()));
            }
            return Bound::Var(slot);
        }
        let value = json.and_then(|json| Value::from_json(kind, json));
        if value.is_none() {
            self.wrong
                .add(f.at(name), format!("must be {}", kind.name()));
        }
        Bound::Literal(value.unwrap_or(Value::Int(0)))
    }
}
