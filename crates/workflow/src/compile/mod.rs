//! Compilation of a document to a program.
//!
//! `fields` reads one step's fields, `flow` compiles steps with bodies, `step` those without. Compilation continues after
//! an error: an invalid field is read as a valid one, and the program is discarded at
//! the end.

mod fields;
mod flow;
mod step;

use crate::document::{self, Complaints, STEPS_MAX, VARIABLES_MAX, is_name};
use crate::error::Faults;
use crate::inputs::Input;
use crate::ops::Ops;
use crate::program::{Condition, Direction, Instr, Program, Slot, Step, Variable};
use crate::value::Kind;
use flow::Nest;

/// The built-in ops.
pub(crate) const OPS: [&str; 27] = [
    "append_item",
    "append_token",
    "break",
    "capture_begin",
    "capture_end",
    "capture_wait",
    "check_eos",
    "compute_float",
    "compute_int",
    "continue",
    "detokenize",
    "format_chat",
    "forward",
    "get_item",
    "graph_forward",
    "if",
    "prefill",
    "return",
    "sample",
    "stream_flush",
    "stream_init",
    "stream_read_u32",
    "stream_write_u32",
    "synchronize",
    "tokenize",
    "while",
    "while_batched",
];

/// Compiles a document.
pub(crate) fn compile(bytes: &[u8], ops: &Ops) -> Result<Program, Faults> {
    let mut wrong = Complaints::default();
    let document = document::parse(bytes, &mut wrong)?;
    let mut compiler = Compiler {
        ops,
        wrong,
        known: document.models,
        models: vec![document.default_model],
        variables: Vec::new(),
        code: Vec::new(),
        places: Vec::new(),
        loops: 0,
        channels: Vec::new(),
        nest: Vec::new(),
    };
    compiler.check_default();
    compiler.declare_inputs(&document.inputs);
    compiler.block(&document.steps, "steps");
    compiler.emit_instr(Instr::Return(None), "steps");
    let return_value = document.return_value.as_deref();
    let return_value = return_value.and_then(|name| compiler.find_variable(name, "return_value"));
    compiler.wrong.finish()?;
    Ok(Program {
        name: document.name,
        description: document.description,
        inputs: document.inputs,
        models: compiler.models,
        variables: compiler.variables,
        code: compiler.code,
        places: compiler.places,
        loops: compiler.loops,
        channels: compiler.channels,
        return_value,
    })
}

pub(crate) struct Compiler<'a> {
    ops: &'a Ops,
    wrong: Complaints,
    /// Models that the document lists.
    known: Vec<String>,
    /// Models in use; the first is the default.
    models: Vec<Option<String>>,
    variables: Vec<Variable>,
    code: Vec<Step>,
    places: Vec<String>,
    loops: usize,
    channels: Vec<Direction>,
    /// The bodies around the current step.
    nest: Vec<Nest>,
}

impl Compiler<'_> {
    fn check_default(&mut self) {
        let Some(Some(id)) = self.models.first() else {
            return;
        };
        if !self.known.is_empty() && !self.known.contains(id) {
            let what = format!("names `{id}`, which resources.models does not list");
            self.wrong.add("default_model", what);
        }
    }

    fn declare_inputs(&mut self, inputs: &[Input]) {
        for input in inputs {
            self.variables.push(Variable {
                name: input.name.as_str().into(),
                kind: input.ty.kind(),
            });
        }
    }

    /// Appends an instruction. Returns the index.
    fn emit_instr(&mut self, instr: Instr, path: &str) -> usize {
        if self.places.last().is_none_or(|last| last != path) {
            self.places.push(path.to_owned());
        }
        self.code.push(Step {
            instr,
            place: self.places.len() - 1,
        });
        self.code.len() - 1
    }

    /// The variable of this name, which an earlier step must set.
    fn find_variable(&mut self, name: &str, path: &str) -> Option<Slot> {
        let found = self.variables.iter().position(|v| *v.name == *name);
        if found.is_none() {
            self.wrong
                .add(path, format!("uses `{name}`, which nothing has set before"));
        }
        found
    }

    /// The variable of this name, which must be of one kind.
    fn find_of(&mut self, name: &str, kind: Kind, path: &str) -> Option<Slot> {
        let slot = self.find_variable(name, path)?;
        let is = self.variables[slot].kind;
        if is != kind {
            let what = format!("names `{name}`, {}; it must be {}", is.name(), kind.name());
            self.wrong.add(path, what);
        }
        Some(slot)
    }

    /// The variable of this name, created if need be.
    fn make_variable(&mut self, name: &str, kind: Kind, path: &str) -> Slot {
        let found = self.variables.iter().position(|v| *v.name == *name);
        if let Some(slot) = found {
            let was = self.variables[slot].kind;
            if was != kind {
                let what = format!("makes `{name}` {}; it is {}", kind.name(), was.name());
                self.wrong.add(path, what);
            }
            return slot;
        }
        if !is_name(name) {
            let what = format!("names `{name}`; a name is letters, digits and _, at most 64");
            self.wrong.add(path, what);
        }
        if self.variables.len() >= VARIABLES_MAX {
            self.wrong.add(
                path,
                format!("is one variable too many; at most {VARIABLES_MAX}"),
            );
            return 0;
        }
        self.variables.push(Variable {
            name: name.into(),
            kind,
        });
        self.variables.len() - 1
    }

    /// Index of a model among those in use.
    fn model_index(&mut self, id: Option<&str>, path: &str) -> usize {
        let Some(id) = id else {
            return 0;
        };
        if !self.known.is_empty() && !self.known.iter().any(|known| known == id) {
            self.wrong.add(
                path,
                format!("names `{id}`, which resources.models does not list"),
            );
        }
        let found = self.models.iter().position(|m| m.as_deref() == Some(id));
        found.unwrap_or_else(|| {
            self.models.push(Some(id.to_owned()));
            self.models.len() - 1
        })
    }

    /// Sets a channel's direction; returns `false` if the channel has the other one already.
    fn set_direction(&mut self, slot: Slot, direction: Direction) -> bool {
        let of_slot = self.code.iter().find_map(|step| match &step.instr {
            Instr::Op(crate::program::Op::StreamInit {
                output, channel, ..
            }) if *output == slot => Some(*channel),
            _ => None,
        });
        let Some(channel) = of_slot else {
            return true; // reported already: not a channel
        };
        let known = &mut self.channels[channel];
        if *known == Direction::Unknown {
            *known = direction;
        }
        *known == direction
    }

    fn steps_left(&self) -> bool {
        self.places.len() < STEPS_MAX
    }
}

/// The placeholder of an invalid condition.
const NEVER: Condition = Condition::Always(false);
