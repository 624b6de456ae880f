//! The state that a window's roll-back restores: everything that a program can observe.

use super::Trouble;
use crate::account::{Account, Charge};
use crate::program::Program;
use crate::session::Session;
use crate::value::Value;
use crate::vars::Vars;
use std::ops::Deref;

/// Variables, sessions, counts. Cheap to copy: large values are shared.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Index of the next instruction.
    pub(super) pc: usize,
    pub(super) vars: Vars,
    /// By model.
    pub(super) sessions: Vec<Session>,
    /// Iterations, by loop.
    pub(super) counts: Vec<u64>,
    /// Ids read from each channel.
    pub(super) taken: Vec<u64>,
}

impl State {
    /// The state with the inputs' values; on error the number of inputs that were within the bound.
    pub(super) fn new(
        program: &Program,
        inputs: Vec<Value>,
        models: usize,
        account: &Account,
    ) -> Result<Self, (usize, Trouble)> {
        let mut vars = Vars::new(program.variables.len());
        for (slot, value) in inputs.into_iter().enumerate() {
            let set = vars.set(slot, value, account);
            set.map_err(|why| (slot, why))?;
        }
        Ok(Self {
            pc: 0,
            vars,
            sessions: vec![Session::default(); models],
            counts: vec![0; program.loops],
            taken: vec![0; program.channels.len()],
        })
    }

    /// Bytes of a copy, shared values left out.
    pub(super) fn copy_bytes(&self) -> usize {
        let counts = self.counts.len() + self.taken.len();
        size_of::<Self>()
            + self.vars.copy_bytes()
            + self.sessions.len() * size_of::<Session>()
            + counts * size_of::<u64>()
    }

    /// A copy to roll back to.
    ///
    /// # Errors
    /// The bound would be exceeded.
    pub(super) fn snapshot(&self, account: &Account) -> Result<Snapshot, Trouble> {
        Ok(Snapshot {
            _charge: account.charge(self.copy_bytes())?,
            state: self.clone(),
        })
    }
}

/// A state to roll back to.
pub(super) struct Snapshot {
    state: State,
    _charge: Charge,
}

impl Deref for Snapshot {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}
