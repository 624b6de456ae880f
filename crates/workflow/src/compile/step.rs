//! Steps without bodies: those of the language, and ops added by a Rust program.

use super::fields::Fields;
use super::{Compiler, OPS};
use crate::ops::{Field, Role};
use crate::program::{Bound, Direction, Instr, Op, Param, PrefillMode, SampleParams, TokenizeMode};
use crate::value::{Kind, Value};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// Kinds that an item may have.
const ITEMS: [(&str, Kind); 6] = [
    ("text", Kind::Text),
    ("integer", Kind::Int),
    ("float", Kind::Float),
    ("bool", Kind::Bool),
    ("array", Kind::Array),
    ("u32[]", Kind::Tokens),
];

/// Kinds that a list may contain.
const LISTED: [Kind; 7] = [
    Kind::Text,
    Kind::Int,
    Kind::Float,
    Kind::Bool,
    Kind::Array,
    Kind::Tokens,
    Kind::Tensor,
];

impl Compiler<'_> {
    /// Compiles a step; returns false for an unknown op.
    pub(super) fn plain(&mut self, name: &str, f: &mut Fields<'_>) -> bool {
        let op = match name {
            "prefill" | "graph_forward" | "sample" => self.model_op(name, f),
            "tokenize" | "detokenize" | "format_chat" | "check_eos" => self.text_op(name, f),
            "compute_int" => Op::ComputeInt {
                expr: f.expr(self, Kind::Int),
                output: f.output(self, "output", Kind::Int),
            },
            "compute_float" => Op::ComputeFloat {
                expr: f.expr(self, Kind::Float),
                output: f.output(self, "output", Kind::Float),
            },
            "forward" => self.compile_forward(f),
            "get_item" => {
                let kind = f.word(self, "type", &ITEMS);
                Op::GetItem {
                    input: f.input(self, "input", Kind::Array),
                    index: f.int(self, "index", 0),
                    kind,
                    output: f.output(self, "output", kind),
                }
            }
            "append_item" => Op::AppendItem {
                input: f.input_in(self, "input", &LISTED),
                output: f.output(self, "output", Kind::Array),
            },
            "append_token" => Op::AppendToken {
                input: f.input(self, "input", Kind::Int),
                output: f.output(self, "output", Kind::Tokens),
            },
            "stream_init" | "stream_write_u32" | "stream_read_u32" | "stream_flush" => {
                self.stream_op(name, f)
            }
            "capture_begin" => Op::CaptureBegin,
            "capture_end" => Op::Commit {
                ends: true,
                wait: f.flag(self, "wait", true),
            },
            "synchronize" | "capture_wait" => Op::Commit {
                ends: false,
                wait: Param::Literal(true),
            },
            name => match self.added(name, f) {
                Some(op) => op,
                None => return false,
            },
        };
        self.emit_instr(Instr::Op(op), f.path);
        true
    }

    /// An op on a model with one input and one output.
    fn compile_forward(&mut self, f: &mut Fields<'_>) -> Op {
        let model = f.model(self);
        let input = f.within(self, "inputs", "input_ids");
        let input = input.and_then(|(name, path)| self.find_of(name, Kind::Tokens, &path));
        let output = f.within(self, "outputs", "embedding");
        let output = output.map(|(name, path)| self.make_variable(name, Kind::Tensor, &path));
        Op::Forward {
            model,
            input: input.unwrap_or(0),
            output: output.unwrap_or(0),
            normalize: f.flag(self, "normalize", false),
        }
    }

    fn model_op(&mut self, name: &str, f: &mut Fields<'_>) -> Op {
        match name {
            "prefill" => {
                let model = f.model(self);
                let input = f.input(self, "input", Kind::Tokens);
                let output_pos = f.output_if(self, "output_pos", Kind::Int);
                let modes = [
                    ("delta", PrefillMode::Delta),
                    ("full_append_only", PrefillMode::FullAppendOnly),
                    ("full", PrefillMode::Full),
                ];
                Op::Prefill {
                    model,
                    input,
                    output_pos,
                    mode: f.word(self, "mode", &modes),
                    logits: self.make_variable("logits", Kind::Logits, f.path),
                }
            }
            "graph_forward" => Op::GraphForward {
                model: f.model(self),
                token: f.input(self, "token_var", Kind::Int),
                position: f.int_if(self, "position"),
                logits: self.make_variable("logits", Kind::Logits, f.path),
            },
            _ => Op::Sample {
                logits: f.input(self, "logits", Kind::Logits),
                params: Box::new(self.sample_params(f)),
                output: f.output(self, "output", Kind::Int),
                logprob: f.output_if(self, "output_logprob", Kind::Float),
            },
        }
    }

    fn sample_params(&mut self, f: &mut Fields<'_>) -> SampleParams {
        SampleParams {
            temperature: f.float(self, "temperature", 0.0),
            top_k: f.int(self, "top_k", 0),
            top_p: f.float(self, "top_p", 1.0),
            min_p: f.float(self, "min_p", 0.0),
            repeat_penalty: f.float(self, "repeat_penalty", 1.0),
            repeat_last_n: f.int(self, "repeat_last_n", 64),
            presence_penalty: f.float(self, "presence_penalty", 0.0),
            frequency_penalty: f.float(self, "frequency_penalty", 0.0),
            seed: f.int(self, "seed", 0),
        }
    }

    fn text_op(&mut self, name: &str, f: &mut Fields<'_>) -> Op {
        let model = f.model(self);
        match name {
            "tokenize" => {
                let modes = [
                    ("prompt", TokenizeMode::Prompt),
                    ("chat", TokenizeMode::Chat),
                    ("delta", TokenizeMode::Delta),
                    ("continue", TokenizeMode::Continue),
                ];
                Op::Tokenize {
                    model,
                    input: f.input(self, "input", Kind::Text),
                    base: f.input_of(self, "base_tokens", &[Kind::Tokens]),
                    mode: f.word(self, "mode", &modes),
                    output: f.output(self, "output", Kind::Tokens),
                }
            }
            "detokenize" => Op::Detokenize {
                model,
                input: f.input(self, "input", Kind::Tokens),
                all: f.word(self, "mode", &[("text", false), ("all", true)]),
                output: f.output(self, "output", Kind::Text),
            },
            "check_eos" => Op::CheckEos {
                model,
                input: f.input(self, "input", Kind::Int),
                eos: f.int_if(self, "eos_token"),
                output: f.output(self, "output", Kind::Bool),
            },
            _ => Op::FormatChat {
                model,
                input: f.input_in(self, "input", &[Kind::Array, Kind::Text]),
                opens_answer: f.flag(self, "add_generation_prompt", true),
                system: f.text_if(self, "system_prompt"),
                delta: f.word(self, "mode", &[("full", false), ("delta", true)]),
                kwargs: self.template_kwargs(f),
                output: f.output(self, "output", Kind::Text),
            },
        }
    }

    fn template_kwargs(&mut self, f: &mut Fields<'_>) -> Map<String, Json> {
        match f.json("template_kwargs") {
            None => Map::new(),
            Some(Json::Object(map)) => map.clone(),
            Some(_) => {
                self.wrong.add(f.at("template_kwargs"), "must be an object");
                Map::new()
            }
        }
    }

    fn stream_op(&mut self, name: &str, f: &mut Fields<'_>) -> Op {
        match name {
            "stream_init" => {
                let capacity = f.int_if(self, "capacity");
                if capacity.is_none() {
                    self.wrong
                        .add(f.at("capacity"), "is missing, or no integer");
                }
                self.channels.push(Direction::Unknown);
                Op::StreamInit {
                    channel: self.channels.len() - 1,
                    capacity: capacity.unwrap_or(Param::Literal(1)),
                    output: f.output(self, "output", Kind::Channel),
                }
            }
            "stream_write_u32" => {
                let channel = f.input(self, "channel", Kind::Channel);
                self.directed(f, "channel", channel, Direction::Out);
                Op::StreamWrite {
                    channel,
                    input: f.input(self, "input", Kind::Int),
                }
            }
            "stream_read_u32" => {
                let channel = f.input(self, "channel", Kind::Channel);
                self.directed(f, "channel", channel, Direction::In);
                Op::StreamRead {
                    channel,
                    wait: f.flag(self, "wait", false),
                    output: f.output(self, "output", Kind::Int),
                }
            }
            _ => {
                let channel = f.input(self, "channel", Kind::Channel);
                self.directed(f, "channel", channel, Direction::Out);
                Op::Commit {
                    ends: false,
                    wait: f.flag(self, "wait", true),
                }
            }
        }
    }
}

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
