//! Execution of instructions in order.

use super::Run;
use crate::account::{Account, Charge};
use crate::document::Fault;
use crate::program::{Condition, Instr, Param, Program, Slot};
use crate::session::Session;
use crate::trouble::Trouble;
use crate::value::Value;
use crate::vars::Vars;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Outcome of an instruction; a pending one is retried.
pub(super) type Done = Poll<Result<(), Trouble>>;

/// Continuation after an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next instruction.
    On,
    /// The present instruction of the run: the same op again, or another place.
    Again,
}

pub(super) const DONE: Done = Poll::Ready(Ok(()));

impl Run {
    /// Runs one instruction, or registers the waker.
    pub(super) fn execute(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let program = Arc::clone(&self.program);
        let step = &program.code[self.state.pc];
        let place = &program.places[step.place];
        if let Some(observer) = &mut self.observer {
            observer.op(place);
        }
        let units = self.next_load().units();
        self.left = self.left.saturating_sub(units);
        self.ops += units;
        let most = self.plan.limits.ops_max;
        if self.ops > most && !self.is_failing() {
            let what = format!("is more than the work of {most} instructions (ops_max)");
            self.fail_run(Trouble::program(what), place);
            return Poll::Ready(());
        }
        match self.execute_instr(&step.instr, place, cx) {
            Poll::Pending => {
                self.ops -= units; // retried later
                Poll::Pending
            }
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(trouble)) => {
                self.fail_run(trouble, place);
                Poll::Ready(())
            }
        }
    }

    fn execute_instr(&mut self, instr: &Instr, place: &str, cx: &mut Context<'_>) -> Done {
        match instr {
            Instr::Op(op) => {
                return match self.op(op, cx) {
                    Poll::Ready(Ok(Next::On)) => {
                        self.state.pc += 1;
                        DONE
                    }
                    Poll::Ready(Ok(Next::Again)) => DONE,
                    Poll::Ready(Err(why)) => Poll::Ready(Err(why)),
                    Poll::Pending => Poll::Pending,
                };
            }
            Instr::Jump(to) => self.state.pc = *to,
            Instr::JumpUnless(condition, to) => {
                return Poll::Ready(self.holds(*condition).map(|holds| {
                    self.state.pc = if holds { self.state.pc + 1 } else { *to };
                }));
            }
            Instr::Loop(id) => {
                self.state.counts[*id] = 0;
                self.state.pc += 1;
            }
            Instr::Again {
                id,
                condition,
                max,
                exit,
            } => {
                let most = self.iterations(max.as_ref());
                let again = most
                    .and_then(|most| Ok(self.state.counts[*id] < most && self.holds(*condition)?));
                return Poll::Ready(again.map(|again| {
                    self.state.counts[*id] += 1;
                    self.state.pc = if again { self.state.pc + 1 } else { *exit };
                }));
            }
            Instr::Window(spec) => return Poll::Ready(self.open_window(spec)),
            Instr::WindowHead { .. } => return self.window_head(place),
            Instr::WindowNext { head } => return Poll::Ready(self.end_iteration(*head)),
            Instr::WindowBreak { head } => return Poll::Ready(self.leave_window(*head)),
            Instr::Return(slot) => return Poll::Ready(self.give_back(*slot)),
        }
        DONE
    }

    fn give_back(&mut self, slot: Option<Slot>) -> Result<(), Trouble> {
        let value = slot.map(|slot| self.value(slot).cloned()).transpose()?;
        if self.window.is_some() {
            return self.return_from_window(value);
        }
        self.emit_held();
        self.complete_run(value)
    }

    /// Iteration limit of a loop; absent or 0 means the token limit.
    pub(super) fn iterations(&self, max: Option<&Param<i64>>) -> Result<u64, Trouble> {
        let told = max.map(|max| self.int(max)).transpose()?.unwrap_or(0);
        Ok(match u64::try_from(told) {
            Ok(0) | Err(_) => self.plan.limits.tokens_max as u64,
            Ok(told) => told,
        })
    }

    /// Ends the run, after a window's complete iterations are emitted.
    fn fail_run(&mut self, trouble: Trouble, place: &str) {
        let fault = trouble.what.map(|what| Fault {
            path: place.to_owned(),
            what,
        });
        if self.window.is_some() && !self.is_failing() {
            self.fail_window(trouble.end, fault);
        } else {
            self.roll_back();
            self.finish_run(trouble.end, None, fault);
        }
    }

    pub(super) fn holds(&self, condition: Condition) -> Result<bool, Trouble> {
        match condition {
            Condition::Always(holds) => Ok(holds),
            Condition::Var(slot) => Ok(self.value(slot)?.holds()),
        }
    }

    /// A variable's value, which must be set.
    pub(super) fn value(&self, slot: Slot) -> Result<&Value, Trouble> {
        self.state.vars.get(slot).ok_or_else(|| {
            let name = &self.program.variables[slot].name;
            Trouble::program(format!("`{name}` is not set here"))
        })
    }

    pub(super) fn int(&self, param: &Param<i64>) -> Result<i64, Trouble> {
        match param {
            Param::Literal(value) => Ok(*value),
            Param::Var(slot) => self.int_var(*slot),
            Param::Len(slot) => {
                self.value(*slot)?;
                let len = self.state.vars.len(*slot).unwrap_or(0);
                Ok(i64::try_from(len).unwrap_or(i64::MAX))
            }
        }
    }

    pub(super) fn int_var(&self, slot: Slot) -> Result<i64, Trouble> {
        match self.value(slot)? {
            Value::Int(value) => Ok(*value),
            other => Err(wrong_kind(other)),
        }
    }

    pub(super) fn float(&self, param: &Param<f64>) -> Result<f64, Trouble> {
        let (Param::Var(slot) | Param::Len(slot)) = param else {
            let Param::Literal(value) = param else {
                return Ok(0.0);
            };
            return Ok(*value);
        };
        match self.value(*slot)? {
            Value::Float(value) => Ok(*value),
            Value::Int(value) => Ok(*value as f64),
            other => Err(wrong_kind(other)),
        }
    }

    pub(super) fn flag(&self, param: &Param<bool>) -> Result<bool, Trouble> {
        match param {
            Param::Literal(value) => Ok(*value),
            Param::Var(slot) | Param::Len(slot) => Ok(self.value(*slot)?.holds()),
        }
    }

    pub(super) fn text(&self, param: &Param<Arc<str>>) -> Result<Arc<str>, Trouble> {
        match param {
            Param::Literal(text) => Ok(Arc::clone(text)),
            Param::Var(slot) | Param::Len(slot) => self.text_var(*slot),
        }
    }

    pub(super) fn text_var(&self, slot: Slot) -> Result<Arc<str>, Trouble> {
        match self.value(slot)? {
            Value::Text(text) => Ok(Arc::clone(text)),
            other => Err(wrong_kind(other)),
        }
    }

    pub(super) fn tokens_var(&self, slot: Slot) -> Result<Arc<Vec<u32>>, Trouble> {
        match self.value(slot)? {
            Value::Tokens(ids) => Ok(Arc::clone(ids)),
            other => Err(wrong_kind(other)),
        }
    }

    /// A token id.
    pub(super) fn id_var(&self, slot: Slot) -> Result<u32, Trouble> {
        let value = self.int_var(slot)?;
        u32::try_from(value).map_err(|_| Trouble::program(format!("{value} is no token")))
    }

    pub(super) fn set(&mut self, slot: Slot, value: Value) -> Result<(), Trouble> {
        self.state.vars.set(slot, value, &self.account)
    }
}

/// The error of a value of another kind than the compiler ensures.
fn wrong_kind(value: &Value) -> Trouble {
    Trouble::program(format!("is given {}", value.kind().name()))
}

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
