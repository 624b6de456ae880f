//! The cost of an instruction, known in advance.
//!
//! Most instructions are one unit of work. One that processes or copies a text or a list is as many units as the
//! bytes require: both a poll and a run have a limit of units. Texts that are too long for a poll
//! are processed separately ([`Run::labour`]).

use super::{Run, UNITS_PER_POLL};
use crate::account::ID_BYTES;
use crate::ops::Role;
use crate::program::{Bound, Instr, Op};
use std::task::{Context, Waker};

/// Bytes of text, or of ids to decode, per unit of work.
const READ_BYTES: usize = 64;
/// Bytes copied or compared per unit of work.
const COPIED_BYTES: usize = 16 << 10;

/// Bytes that an instruction processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Bytes of text to parse, encode or decode.
    reads: usize,
    /// Bytes to copy or compare.
    copies: usize,
}

impl Load {
    fn reads(reads: usize) -> Self {
        Self { reads, copies: 0 }
    }

    fn copies(copies: usize) -> Self {
        Self { reads: 0, copies }
    }

    /// Units of work: one, and more in proportion to the bytes.
    pub(super) fn units(self) -> u64 {
        1 + (self.reads / READ_BYTES + self.copies / COPIED_BYTES) as u64
    }
}

impl Run {
    /// Runs the step that [`Event::Heavy`](super::Event::Heavy) reported, for as long as it takes: call on a
    /// thread without other work. Has no effect at any other time.
    pub fn labour(&mut self) {
        if self.outcome.is_none() && self.is_heavy() {
            let done = self.execute(&mut Context::from_waker(Waker::noop()));
            debug_assert!(done.is_ready(), "what is heavy waits for nobody");
            self.left = UNITS_PER_POLL; // counts as a rest
        }
    }

    /// Whether the next instruction is too long for a poll.
    pub(super) fn is_heavy(&self) -> bool {
        self.next_load().reads > self.plan.limits.inline_bytes_max
    }

    pub(super) fn next_load(&self) -> Load {
        match &self.program.code[self.state.pc].instr {
            Instr::Op(op) => self.load_of(op),
            Instr::Window(_)
            | Instr::WindowNext { .. }
            | Instr::WindowBreak { .. }
            | Instr::Return(_) => Load::copies(self.state.copy_bytes()),
            _ => Load::default(),
        }
    }

    fn load_of(&self, op: &Op) -> Load {
        let vars = &self.state.vars;
        let session = |model: usize| self.state.sessions[model].position() * ID_BYTES;
        match op {
            Op::Tokenize { input, base, .. } => Load {
                reads: vars.bytes(*input),
                copies: base.map_or(0, |base| vars.bytes(base)),
            },
            Op::Detokenize { input, .. } => Load::reads(vars.bytes(*input)),
            Op::FormatChat { model, input, .. } => {
                let session = &self.state.sessions[*model];
                let answer = session.answer().len() * ID_BYTES;
                Load::reads(vars.bytes(*input) + session.said_bytes() + answer)
            }
            Op::Prefill { model, input, .. } => Load::copies(vars.bytes(*input) + session(*model)),
            Op::GraphForward { model, .. } => Load::copies(session(*model)),
            Op::Sample { .. } => {
                let sessions = 0..self.state.sessions.len();
                Load::copies(sessions.map(session).max().unwrap_or(0))
            }
            Op::Forward { input, .. } | Op::GetItem { input, .. } => {
                Load::copies(vars.bytes(*input))
            }
            Op::AppendItem { input, output } => Load {
                reads: vars.bytes(*input),
                copies: vars.bytes(*output),
            },
            Op::AppendToken { output, .. } => Load::copies(vars.bytes(*output)),
            Op::Custom { fields, .. } => {
                let inputs = fields
                    .iter()
                    .filter(|(field, _)| field.role != Role::Output);
                let bytes = inputs.map(|(_, bound)| match bound {
                    Bound::Var(slot) => vars.bytes(*slot),
                    Bound::Literal(value) => value.bytes(),
                });
                Load::reads(bytes.sum())
            }
            _ => Load::default(),
        }
    }
}
