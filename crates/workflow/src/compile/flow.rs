//! Steps with bodies, and steps that leave a body.

use super::Compiler;
use super::fields::Fields;
use crate::document::NESTING_MAX;
use crate::program::{Direction, Instr, Slot, WindowSpec};
use crate::value::Kind;
use serde_json::Value as Json;

/// A body around the current step.
pub(super) enum Nest {
    /// Body of an `if`.
    Branch,
    /// Body of a `while`: the head, and the jumps to the end with targets that are not known yet.
    Loop { head: usize, breaks: Vec<usize> },
    /// Body of a `while_batched`: the head, and the jumps to the end of an iteration.
    Window { head: usize, nexts: Vec<usize> },
}

impl Compiler<'_> {
    /// Compiles steps in order.
    pub(super) fn block(&mut self, steps: &[Json], path: &str) {
        if self.nest.len() > NESTING_MAX {
            let what = format!("lies too deep; at most {NESTING_MAX} bodies in one another");
            self.wrong.add(path, what);
            return;
        }
        for (at, step) in steps.iter().enumerate() {
            let path = format!("{path}[{at}]");
            if !self.steps_left() {
                let most = crate::document::STEPS_MAX;
                self.wrong
                    .add(path, format!("is one step too many; at most {most}"));
                return;
            }
            let op = step.get("op").and_then(Json::as_str);
            let (Some(map), Some(op)) = (step.as_object(), op) else {
                self.wrong.add(path, "must be an object with an `op`");
                continue;
            };
            let mut fields = Fields::new(self, map, &path);
            if fields.compile_flow(op) {
                fields.finish();
            }
        }
    }
}

impl Fields<'_, '_, '_> {
    /// Compiles one step; returns false for an unknown op.
    fn compile_flow(&mut self, op: &str) -> bool {
        match op {
            "if" => self.compile_if(),
            "while" => self.compile_while(),
            "while_batched" => self.compile_window(),
            "break" => self.compile_exit(op),
            "continue" => self.compile_exit(op),
            "return" => {
                let all = [
                    Kind::Int,
                    Kind::Float,
                    Kind::Bool,
                    Kind::Text,
                    Kind::Array,
                    Kind::Tokens,
                    Kind::Tensor,
                ];
                let value = self.input_of("value", &all);
                self.c.emit_instr(Instr::Return(value), self.path);
            }
            op => return self.plain(op),
        }
        true
    }

    fn compile_if(&mut self) {
        let condition = self.condition();
        let jump = self
            .c
            .emit_instr(Instr::JumpUnless(condition, 0), self.path);
        self.c.nest.push(Nest::Branch);
        let (then, path) = self.body("then");
        self.c.block(then, &path);
        let (otherwise, path) = self.body("else");
        let mut end = self.c.code.len();
        if !otherwise.is_empty() {
            let over = self.c.emit_instr(Instr::Jump(0), self.path);
            end = self.c.code.len();
            self.c.block(otherwise, &path);
            self.c.code[over].instr = Instr::Jump(self.c.code.len());
        }
        self.c.nest.pop();
        self.c.code[jump].instr = Instr::JumpUnless(condition, end);
    }

    fn compile_while(&mut self) {
        let id = self.c.loops;
        self.c.loops += 1;
        let condition = self.condition();
        let max = self.int_if("max_iterations");
        self.c.emit_instr(Instr::Loop(id), self.path);
        let head = self.c.emit_instr(Instr::Jump(0), self.path);
        self.c.nest.push(Nest::Loop {
            head,
            breaks: Vec::new(),
        });
        let (body, path) = self.body("body");
        self.c.block(body, &path);
        let exit = self.c.emit_instr(Instr::Jump(head), self.path) + 1;
        self.c.code[head].instr = Instr::Again {
            id,
            condition,
            max,
            exit,
        };
        if let Some(Nest::Loop { breaks, .. }) = self.c.nest.pop() {
            for at in breaks {
                self.c.code[at].instr = Instr::Jump(exit);
            }
        }
    }

    fn compile_window(&mut self) {
        let within = self.c.nest.iter().any(|n| matches!(n, Nest::Window { .. }));
        if within {
            self.c
                .wrong
                .add(self.path, "lies in another while_batched; use while inside");
        }
        let condition = self.condition();
        let spec = WindowSpec {
            condition,
            max: self.int_if("max_iterations"),
            batch: self.int("batch_size", 1),
            token: self.output("token_var", Kind::Int),
            channel: self.out_channel("stream_channel"),
            ahead: self.flag("stream_async_poll", false),
            interval_us: self.int("stream_poll_interval_us", 200),
            out: self.output("output_tokens", Kind::Tokens),
            eos: self.int_if("eos_token"),
        };
        self.c.emit_instr(Instr::Window(Box::new(spec)), self.path);
        let head = self.c.emit_instr(Instr::Jump(0), self.path);
        self.c.nest.push(Nest::Window {
            head,
            nexts: Vec::new(),
        });
        let (body, path) = self.body("body");
        self.c.block(body, &path);
        let next = self.c.emit_instr(Instr::WindowNext { head }, self.path);
        self.c.code[head].instr = Instr::WindowHead { exit: next + 1 };
        if let Some(Nest::Window { nexts, .. }) = self.c.nest.pop() {
            for at in nexts {
                self.c.code[at].instr = Instr::Jump(next);
            }
        }
    }

    /// A channel that the program writes to.
    pub(super) fn out_channel(&mut self, name: &'static str) -> Option<Slot> {
        let slot = self.input_of(name, &[Kind::Channel])?;
        self.directed(name, slot, Direction::Out);
        Some(slot)
    }

    pub(super) fn directed(&mut self, name: &str, slot: Slot, way: Direction) {
        if !self.c.set_direction(slot, way) {
            let what = "is written and read by the program; a channel has its other end outside";
            self.wrong(name, what);
        }
    }

    fn compile_exit(&mut self, op: &str) {
        let around = self.c.nest.iter().rposition(|n| !matches!(n, Nest::Branch));
        let Some(around) = around else {
            self.c
                .wrong
                .add(self.path, format!("`{op}` outside of a loop"));
            return;
        };
        let instr = match (&self.c.nest[around], op) {
            (Nest::Loop { head, .. }, "continue") => Instr::Jump(*head),
            (Nest::Window { head, .. }, "break") => Instr::WindowBreak { head: *head },
            _ => Instr::Jump(0),
        };
        let at = self.c.emit_instr(instr, self.path);
        match (&mut self.c.nest[around], op) {
            (Nest::Loop { breaks, .. }, "break") => breaks.push(at),
            (Nest::Window { nexts, .. }, "continue") => nexts.push(at),
            _ => {}
        }
    }
}
