//! What a window's roll-back restores: all that a program can see of itself.

use crate::program::Program;
use crate::session::Session;
use crate::value::Value;

/// Variables, sessions, counts. Cheap to copy: what is large is shared.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// The next instruction.
    pub(super) pc: usize,
    /// By slot; `None` until it is set.
    pub(super) vars: Vec<Option<Value>>,
    /// By model.
    pub(super) sessions: Vec<Session>,
    /// Iterations, by loop.
    pub(super) counts: Vec<u64>,
    /// Ids taken from each channel.
    pub(super) taken: Vec<u64>,
}

impl State {
    pub(super) fn new(program: &Program, inputs: Vec<Value>, models: usize) -> Self {
        let mut vars: Vec<Option<Value>> = inputs.into_iter().map(Some).collect();
        vars.resize(program.variables.len(), None);
        Self {
            pc: 0,
            vars,
            sessions: vec![Session::default(); models],
            counts: vec![0; program.loops],
            taken: vec![0; program.channels.len()],
        }
    }
}
