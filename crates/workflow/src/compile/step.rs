//! Steps without bodies: those of the language, and ops added by a Rust program.

use super::OPS;
use super::fields::Fields;
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

impl Fields<'_, '_, '_> {
    /// Compiles a step; returns false for an unknown op.
    pub(super) fn plain(&mut self, name: &str) -> bool {
        let op = match name {
            "prefill" | "graph_forward" | "sample" => self.model_op(name),
            "tokenize" | "detokenize" | "format_chat" | "check_eos" => self.text_op(name),
            "compute_int" => Op::ComputeInt {
                expr: self.expr(Kind::Int),
                output: self.output("output", Kind::Int),
            },
            "compute_float" => Op::ComputeFloat {
                expr: self.expr(Kind::Float),
                output: self.output("output", Kind::Float),
            },
            "forward" => self.compile_forward(),
            "get_item" => {
                let kind = self.word("type", &ITEMS);
                Op::GetItem {
                    input: self.input("input", Kind::Array),
                    index: self.int("index", 0),
                    kind,
                    output: self.output("output", kind),
                }
            }
            "append_item" => Op::AppendItem {
                input: self.input_in("input", &LISTED),
                output: self.output("output", Kind::Array),
            },
            "append_token" => Op::AppendToken {
                input: self.input("input", Kind::Int),
                output: self.output("output", Kind::Tokens),
            },
            "stream_init" | "stream_write_u32" | "stream_read_u32" | "stream_flush" => {
                self.stream_op(name)
            }
            "capture_begin" => Op::CaptureBegin,
            "capture_end" => Op::Commit {
                ends: true,
                wait: self.flag("wait", true),
            },
            "synchronize" | "capture_wait" => Op::Commit {
                ends: false,
                wait: Param::Literal(true),
            },
            name => match self.added(name) {
                Some(op) => op,
                None => return false,
            },
        };
        self.c.emit_instr(Instr::Op(op), self.path);
        true
    }

    /// An op on a model with one input and one output.
    fn compile_forward(&mut self) -> Op {
        let model = self.model();
        let input = self.within("inputs", "input_ids");
        let input = input.and_then(|(name, path)| self.c.find_of(name, Kind::Tokens, &path));
        let output = self.within("outputs", "embedding");
        let output = output.map(|(name, path)| self.c.make_variable(name, Kind::Tensor, &path));
        Op::Forward {
            model,
            input: input.unwrap_or(0),
            output: output.unwrap_or(0),
            normalize: self.flag("normalize", false),
        }
    }

    fn model_op(&mut self, name: &str) -> Op {
        match name {
            "prefill" => {
                let model = self.model();
                let input = self.input("input", Kind::Tokens);
                let output_pos = self.output_if("output_pos", Kind::Int);
                let modes = [
                    ("delta", PrefillMode::Delta),
                    ("full_append_only", PrefillMode::FullAppendOnly),
                    ("full", PrefillMode::Full),
                ];
                Op::Prefill {
                    model,
                    input,
                    output_pos,
                    mode: self.word("mode", &modes),
                    logits: self.c.make_variable("logits", Kind::Logits, self.path),
                }
            }
            "graph_forward" => Op::GraphForward {
                model: self.model(),
                token: self.input("token_var", Kind::Int),
                position: self.int_if("position"),
                logits: self.c.make_variable("logits", Kind::Logits, self.path),
            },
            _ => Op::Sample {
                logits: self.input("logits", Kind::Logits),
                params: Box::new(self.sample_params()),
                output: self.output("output", Kind::Int),
                logprob: self.output_if("output_logprob", Kind::Float),
            },
        }
    }

    fn sample_params(&mut self) -> SampleParams {
        SampleParams {
            temperature: self.float("temperature", 0.0),
            top_k: self.int("top_k", 0),
            top_p: self.float("top_p", 1.0),
            min_p: self.float("min_p", 0.0),
            repeat_penalty: self.float("repeat_penalty", 1.0),
            repeat_last_n: self.int("repeat_last_n", 64),
            presence_penalty: self.float("presence_penalty", 0.0),
            frequency_penalty: self.float("frequency_penalty", 0.0),
            seed: self.int("seed", 0),
        }
    }

    fn text_op(&mut self, name: &str) -> Op {
        let model = self.model();
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
                    input: self.input("input", Kind::Text),
                    base: self.input_of("base_tokens", &[Kind::Tokens]),
                    mode: self.word("mode", &modes),
                    output: self.output("output", Kind::Tokens),
                }
            }
            "detokenize" => Op::Detokenize {
                model,
                input: self.input("input", Kind::Tokens),
                all: self.word("mode", &[("text", false), ("all", true)]),
                output: self.output("output", Kind::Text),
            },
            "check_eos" => Op::CheckEos {
                model,
                input: self.input("input", Kind::Int),
                eos: self.int_if("eos_token"),
                output: self.output("output", Kind::Bool),
            },
            _ => Op::FormatChat {
                model,
                input: self.input_in("input", &[Kind::Array, Kind::Text]),
                opens_answer: self.flag("add_generation_prompt", true),
                system: self.text_if("system_prompt"),
                delta: self.word("mode", &[("full", false), ("delta", true)]),
                kwargs: self.template_kwargs(),
                output: self.output("output", Kind::Text),
            },
        }
    }

    fn template_kwargs(&mut self) -> Map<String, Json> {
        match self.json("template_kwargs") {
            None => Map::new(),
            Some(Json::Object(map)) => map.clone(),
            Some(_) => {
                self.wrong("template_kwargs", "must be an object");
                Map::new()
            }
        }
    }

    fn stream_op(&mut self, name: &str) -> Op {
        match name {
            "stream_init" => {
                let capacity = self.int_if("capacity");
                if capacity.is_none() {
                    self.wrong("capacity", "is missing, or no integer");
                }
                self.c.channels.push(Direction::Unknown);
                Op::StreamInit {
                    channel: self.c.channels.len() - 1,
                    capacity: capacity.unwrap_or(Param::Literal(1)),
                    output: self.output("output", Kind::Channel),
                }
            }
            "stream_write_u32" => {
                let channel = self.input("channel", Kind::Channel);
                self.directed("channel", channel, Direction::Out);
                Op::StreamWrite {
                    channel,
                    input: self.input("input", Kind::Int),
                }
            }
            "stream_read_u32" => {
                let channel = self.input("channel", Kind::Channel);
                self.directed("channel", channel, Direction::In);
                Op::StreamRead {
                    channel,
                    wait: self.flag("wait", false),
                    output: self.output("output", Kind::Int),
                }
            }
            _ => {
                let channel = self.input("channel", Kind::Channel);
                self.directed("channel", channel, Direction::Out);
                Op::Commit {
                    ends: false,
                    wait: self.flag("wait", true),
                }
            }
        }
    }
}

impl Fields<'_, '_, '_> {
    /// Compiles an added op of this name; reports an error if there is none.
    pub(super) fn added(&mut self, name: &str) -> Option<Op> {
        let Some(op) = self.c.ops.find(name).map(Arc::clone) else {
            let known = OPS.into_iter().chain(self.c.ops.added());
            let known = known.collect::<Vec<&str>>().join(", ");
            self.wrong("op", format!("`{name}` is unknown; known are {known}"));
            return None;
        };
        let fields = op.fields().to_vec();
        let mut bound = Vec::with_capacity(fields.len());
        for role in [Role::Input, Role::Parameter, Role::Output] {
            for field in fields.iter().filter(|field| field.role == role) {
                bound.push((*field, self.bind_field(*field)));
            }
        }
        Some(Op::Custom { op, fields: bound })
    }

    fn bind_field(&mut self, field: Field) -> Bound {
        let Field { name, role, kind } = field;
        match role {
            Role::Input => Bound::Var(self.input(name, kind)),
            Role::Output => Bound::Var(self.output(name, kind)),
            Role::Parameter => self.bind_parameter(name, kind),
        }
    }

    fn bind_parameter(&mut self, name: &'static str, kind: Kind) -> Bound {
        let json = self.json(name);
        let braced = json.and_then(Json::as_str);
        let braced = braced.and_then(|text| text.strip_prefix('{')?.strip_suffix('}'));
        if let Some(variable) = braced {
            let slot = self.c.find_variable(variable, &self.at(name)).unwrap_or(0);
            if self.c.variables.get(slot).is_some_and(|v| v.kind != kind) {
                self.wrong(name, format!("must be {}", kind.name()));
            }
            return Bound::Var(slot);
        }
        let value = json.and_then(|json| Value::from_json(kind, json));
        if value.is_none() {
            self.wrong(name, format!("must be {}", kind.name()));
        }
        Bound::Literal(value.unwrap_or(Value::Int(0)))
    }
}
