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
            let mut fields = Fields::new(map, &path);
            if self.compile_flow(op, &mut fields) {
                fields.finish(self);
            }
        }
    }

    /// Compiles one step; returns false for an unknown op.
    fn compile_flow(&mut self, op: &str, f: &mut Fields<'_>) -> bool {
        match op {
            "if" => self.compile_if(f),
            "while" => self.compile_while(f),
            "while_batched" => self.compile_window(f),
            "break" => self.compile_exit(f, op),
            "continue" => self.compile_exit(f, op),
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
                let value = f.input_of(self, "value", &all);
                self.emit_instr(Instr::Return(value), f.path);
            }
            op => return self.plain(op, f),
        }
        true
    }

    fn compile_if(&mut self, f: &mut Fields<'_>) {
        let condition = f.condition(self);
        let jump = self.emit_instr(Instr::JumpUnless(condition, 0), f.path);
        self.nest.push(Nest::Branch);
        let (then, path) = f.body(self, "then");
        self.block(then, &path);
        let (otherwise, path) = f.body(self, "else");
        let mut end = self.code.len();
        if !otherwise.is_empty() {
            let over = self.emit_instr(Instr::Jump(0), f.path);
            end = self.code.len();
            self.block(otherwise, &path);
            self.code[over].instr = Instr::Jump(self.code.len());
        }
        self.nest.pop();
        self.code[jump].instr = Instr::JumpUnless(condition, end);
    }

    fn compile_while(&mut self, f: &mut Fields<'_>) {
        let id = self.loops;
        self.loops += 1;
        let condition = f.condition(self);
        let max = f.int_if(self, "max_iterations");
        self.emit_instr(Instr::Loop(id), f.path);
        let head = self.emit_instr(Instr::Jump(0), f.path);
        self.nest.push(Nest::Loop {
            head,
            breaks: Vec::new(),
        });
        let (body, path) = f.body(self, "body");
        self.block(body, &path);
        let exit = self.emit_instr(Instr::Jump(head), f.path) + 1;
        self.code[head].instr = Instr::Again {
            id,
            condition,
            max,
            exit,
        };
        if let Some(Nest::Loop { breaks, .. }) = self.nest.pop() {
            for at in breaks {
                self.code[at].instr = Instr::Jump(exit);
            }
        }
    }

    fn compile_window(&mut self, f: &mut Fields<'_>) {
        let within = self.nest.iter().any(|n| matches!(n, Nest::Window { .. }));
        if within {
            self.wrong
                .add(f.path, "lies in another while_batched; use while inside");
        }
        let condition = f.condition(self);
        let spec = WindowSpec {
            condition,
            max: f.int_if(self, "max_iterations"),
            batch: f.int(self, "batch_size", 1),
            token: f.output(self, "token_var", Kind::Int),
            channel: self.out_channel(f, "stream_channel"),
            ahead: f.flag(self, "stream_async_poll", false),
            interval_us: f.int(self, "stream_poll_interval_us", 200),
            out: f.output(self, "output_tokens", Kind::Tokens),
            eos: f.int_if(self, "eos_token"),
        };
        self.emit_instr(Instr::Window(Box::new(spec)), f.path);
        let head = self.emit_instr(Instr::Jump(0), f.path);
        self.nest.push(Nest::Window {
            head,
            nexts: Vec::new(),
        });
        let (body, path) = f.body(self, "body");
        self.block(body, &path);
        let next = self.emit_instr(Instr::WindowNext { head }, f.path);
        self.code[head].instr = Instr::WindowHead { exit: next + 1 };
        if let Some(Nest::Window { nexts, .. }) = self.nest.pop() {
            for at in nexts {
                self.code[at].instr = Instr::Jump(next);
            }
        }
    }

    /// A channel that the program writes to.
    pub(super) fn out_channel(&mut self, f: &mut Fields<'_>, name: &'static str) -> Option<Slot> {
        let slot = f.input_of(self, name, &[Kind::Channel])?;
        self.directed(f, name, slot, Direction::Out);
        Some(slot)
    }

    pub(super) fn directed(&mut self, f: &Fields<'_>, name: &str, slot: Slot, way: Direction) {
        if !self.set_direction(slot, way) {
            let what = "is written and read by the program; a channel has its other end outside";
            self.wrong.add(f.at(name), what);
        }
    }

    fn compile_exit(&mut self, f: &Fields<'_>, op: &str) {
        let around = self.nest.iter().rposition(|n| !matches!(n, Nest::Branch));
        let Some(around) = around else {
            self.wrong.add(f.path, format!("`{op}` outside of a loop"));
            return;
        };
        let instr = match (&self.nest[around], op) {
            (Nest::Loop { head, .. }, "continue") => Instr::Jump(*head),
            (Nest::Window { head, .. }, "break") => Instr::WindowBreak { head: *head },
            _ => Instr::Jump(0),
        };
        let at = self.emit_instr(instr, f.path);
        match (&mut self.nest[around], op) {
            (Nest::Loop { breaks, .. }, "break") => breaks.push(at),
            (Nest::Window { nexts, .. }, "continue") => nexts.push(at),
            _ => {}
        }
    }
}
