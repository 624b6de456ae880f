//! Batched loops: iterations that are held, emitted, rolled back.
//!
//! # States
//!
//! A window runs its body `batch` times and holds the outputs of each iteration, with a copy of the state after
//! the iteration. A full window is *drained*: iteration by iteration the token is emitted, and the state after becomes
//! the *committed* one. With `stream_async_poll` a full window is set aside, and drained when the next one
//! is full: two are in flight.
//!
//! An end-of-sequence token is not emitted: the run returns to the committed state, discards everything
//! computed beyond, and continues behind the loop. A run that is stopped or fails does the same, but
//! ends; a failure waits until the iterations before are emitted. Ids read from a channel meanwhile
//! are read again. A batch of 1 is the plain loop; since a token depends on the transcript and the parameters
//! alone, a larger one emits equal tokens, only later.

use super::machine::{DONE, Done};
use super::state::Snapshot;
use super::{Event, Run, Trouble};
use crate::error::Fault;
use crate::program::{Instr, WindowSpec};
use crate::value::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use stream::End;

/// A running batched loop.
pub(super) struct Window {
    spec: WindowSpec,
    /// Index of the loop's head.
    head: usize,
    /// Index of the instruction behind the loop.
    exit: usize,
    batch: usize,
    ahead: bool,
    interval: Duration,
    iterations_max: u64,
    eos: Option<u32>,
    /// Number of the channel that tokens are written to.
    channel: Option<usize>,
    iterations: u64,
    /// Iterations since the last full window.
    in_window: usize,
    /// Channels that the current iteration has written to, in order.
    writes: Vec<usize>,
    current: VecDeque<Iteration>,
    previous: Option<VecDeque<Iteration>>,
    draining: VecDeque<Iteration>,
    drained_at: Option<Instant>,
    committed: Snapshot,
    /// Tokens emitted by the loop.
    out: Arc<Vec<u32>>,
    closing: Option<Closing>,
}

/// Outputs of one iteration.
struct Iteration {
    writes: Vec<usize>,
    /// The token, if there is no channel for tokens.
    token: Option<u32>,
    after: Snapshot,
}

/// The reason why a drained window ends.
enum Closing {
    Exit,
    Return(Option<Value>),
    Fail(End, Option<Fault>),
}

impl Window {
    /// Tokens that the engine may be ahead.
    pub(super) fn in_flight(&self) -> u64 {
        let windows = if self.ahead { 2 } else { 1 };
        (self.batch * windows) as u64
    }

    /// Records a write; returns false for one token too many.
    pub(super) fn wrote(&mut self, channel: usize) -> bool {
        let token = self.channel == Some(channel);
        let again = token && self.writes.contains(&channel);
        self.writes.push(channel);
        !again
    }

    fn next_window(&mut self) -> Option<VecDeque<Iteration>> {
        let next = self.previous.take();
        next.or_else(|| (!self.current.is_empty()).then(|| std::mem::take(&mut self.current)))
    }
}

impl Run {
    pub(super) fn open_window(&mut self, spec: &WindowSpec) -> Result<(), Trouble> {
        let batch = self.int(&spec.batch)?;
        let most = self.plan.limits.tokens_max;
        let batch = usize::try_from(batch)
            .ok()
            .filter(|b| (1..=most).contains(b));
        let batch = batch
            .ok_or_else(|| Trouble::program(format!("batch_size must be from 1 to {most}")))?;
        let ahead = self.flag(&spec.ahead)?;
        let channel = match spec.channel {
            None => None,
            Some(slot) => Some(self.fitting_channel(slot, batch * if ahead { 2 } else { 1 })?),
        };
        let interval = u64::try_from(self.int(&spec.interval_us)?).unwrap_or(0);
        let eos = spec.eos.as_ref().map(|eos| self.int(eos)).transpose()?;
        let iterations_max = self.iterations(spec.max.as_ref())?;
        let exit = match self.program.code[self.state.pc + 1].instr {
            Instr::WindowHead { exit } => exit,
            _ => self.program.code.len() - 1, // the compiler puts a head there
        };
        // Hidden until the loop has ended; otherwise programs could observe the window's size.
        self.state.vars.clear(spec.out);
        self.state.pc += 1;
        let committed = self.state.snapshot(&self.account)?;
        self.window = Some(Window {
            spec: spec.clone(),
            head: self.state.pc,
            exit,
            batch,
            ahead,
            interval: Duration::from_micros(interval),
            iterations_max,
            eos: eos.and_then(|eos| u32::try_from(eos).ok()),
            channel,
            iterations: 0,
            in_window: 0,
            writes: Vec::new(),
            current: VecDeque::new(),
            previous: None,
            draining: VecDeque::new(),
            drained_at: None,
            committed,
            out: Arc::default(),
            closing: None,
        });
        Ok(())
    }

    fn fitting_channel(&self, slot: usize, least: usize) -> Result<usize, Trouble> {
        let channel = self.channel_of(slot)?;
        let capacity = self.channels[channel]
            .as_ref()
            .map_or(0, super::Channel::capacity);
        if capacity >= least {
            Ok(channel)
        } else {
            Err(Trouble::program(format!(
                "stream_channel holds {capacity}; its windows need {least}"
            )))
        }
    }

    /// Drains due windows, leaves the loop, or continues with the body.
    pub(super) fn window_head(&mut self, place: &str) -> Done {
        loop {
            let now = self.now;
            let Some(window) = &mut self.window else {
                return DONE;
            };
            if let Some(iteration) = window.draining.pop_front() {
                return Poll::Ready(self.emit_iteration(iteration));
            }
            if window.closing.is_some() {
                match window.next_window() {
                    Some(next) => self.drain_window(next, place),
                    None => return Poll::Ready(self.close_window()),
                }
                continue;
            }
            let condition = window.spec.condition;
            let more = window.iterations < window.iterations_max;
            let full = window.in_window == window.batch;
            let due = window.drained_at.map(|at| at + window.interval);
            let waits = full && window.ahead && window.previous.is_some();
            if waits && let Some(due) = due.filter(|due| now < *due) {
                self.alarm = Some(due);
                return Poll::Pending;
            }
            let holds = if more {
                match self.holds(condition) {
                    Ok(holds) => holds,
                    Err(why) => return Poll::Ready(Err(why)),
                }
            } else {
                false
            };
            let Some(window) = &mut self.window else {
                return DONE;
            };
            if !holds {
                window.closing = Some(Closing::Exit);
            } else if full {
                window.in_window = 0;
                let full = std::mem::take(&mut window.current);
                let next = if window.ahead {
                    window.previous.replace(full)
                } else {
                    Some(full)
                };
                if let Some(next) = next {
                    self.drain_window(next, place);
                }
            } else {
                window.iterations += 1;
                self.state.pc += 1;
                return DONE;
            }
        }
    }

    fn drain_window(&mut self, next: VecDeque<Iteration>, place: &str) {
        if let Some(observer) = &mut self.observer {
            observer.drain(place, next.len());
        }
        if let Some(window) = &mut self.window {
            window.drained_at = Some(self.now);
            window.draining = next;
        }
    }

    /// While the program waits for an id from outside: emits the next complete iteration, if there is one,
    /// because the outside writer may wait for that output.
    pub(super) fn drain_early(&mut self) -> bool {
        let Some(window) = &mut self.window else {
            return false;
        };
        if window.draining.is_empty()
            && let Some(next) = window.next_window()
        {
            if window.current.is_empty() {
                window.in_window = 0;
            }
            window.draining = next;
        }
        let next = window.draining.pop_front();
        next.is_some_and(|iteration| self.emit_iteration(iteration).is_ok())
    }

    pub(super) fn end_iteration(&mut self, head: usize) -> Result<(), Trouble> {
        let Some(window) = &mut self.window else {
            return Ok(());
        };
        let token = window.spec.token;
        let token = match window.channel {
            Some(_) => None,
            None => Some(self.id_var(token)?),
        };
        self.hold_iteration(token)?;
        self.state.pc = head;
        Ok(())
    }

    fn hold_iteration(&mut self, token: Option<u32>) -> Result<(), Trouble> {
        let after = self.state.snapshot(&self.account)?;
        if let Some(window) = &mut self.window {
            let writes = std::mem::take(&mut window.writes);
            window.current.push_back(Iteration {
                writes,
                token,
                after,
            });
            window.in_window += 1;
        }
        Ok(())
    }

    /// `break`: outputs of the iteration count, a token that is not written yet does not.
    pub(super) fn leave_window(&mut self, head: usize) -> Result<(), Trouble> {
        self.hold_iteration(None)?;
        if let Some(window) = &mut self.window {
            window.closing = Some(Closing::Exit);
        }
        self.state.pc = head;
        Ok(())
    }

    pub(super) fn return_from_window(&mut self, value: Option<Value>) -> Result<(), Trouble> {
        self.hold_iteration(None)?;
        self.close_for(Closing::Return(value));
        Ok(())
    }

    pub(super) fn fail_window(&mut self, end: End, fault: Option<Fault>) {
        self.close_for(Closing::Fail(end, fault));
    }

    /// Continues at the head of the loop, which follows the instruction that opened the loop.
    fn close_for(&mut self, closing: Closing) {
        if let Some(window) = &mut self.window {
            window.closing = Some(closing);
            self.state.pc = window.head;
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        let window = self.window.as_ref();
        window.is_some_and(|w| matches!(w.closing, Some(Closing::Fail(..))))
    }

    /// Emits the outputs of an iteration, or finds the end among them.
    fn emit_iteration(&mut self, iteration: Iteration) -> Result<(), Trouble> {
        let Some(window) = &mut self.window else {
            return Ok(());
        };
        let tokens_in = window.channel;
        let mut given = Vec::with_capacity(iteration.writes.len() + 1);
        for channel in iteration.writes {
            let id = self.channels[channel]
                .as_mut()
                .and_then(super::Channel::drain);
            given.extend(id.map(|id| (Some(channel), id)));
        }
        given.extend(iteration.token.map(|id| (None, id)));
        let token = given.iter().find(|(channel, _)| *channel == tokens_in);
        let token = token.map(|(_, id)| *id);
        let (eos, exit) = (window.eos, window.exit);
        if token.is_some_and(|id| self.is_eos(0, id, eos)) {
            self.roll_back();
            self.window = None;
            self.state.pc = exit;
            self.state.taken.clone_from(&iteration.after.taken); // an end read from outside counts as read
            return Ok(());
        }
        if token.is_some() && self.emitted >= self.plan.limits.tokens_max {
            self.roll_back();
            self.finish_run(End::Length, None, None);
            return Ok(());
        }
        self.emitted += usize::from(token.is_some());
        let told = given.len();
        for (channel, id) in given {
            self.tell(channel, id);
        }
        if let Some(window) = &mut self.window {
            Arc::make_mut(&mut window.out).extend(token);
            if told > 0 {
                let taken = &iteration.after.taken;
                for (channel, taken) in self.channels.iter_mut().zip(taken) {
                    channel
                        .iter_mut()
                        .for_each(|channel| channel.forget(*taken));
                }
                window.committed = iteration.after;
            }
        }
        Ok(())
    }

    pub(super) fn tell(&mut self, channel: Option<usize>, id: u32) {
        let channel = channel.and_then(|channel| self.channels[channel].as_ref()?.name());
        self.events.push_back(Event::Token { channel, id });
    }

    /// Everything was emitted without an end.
    fn close_window(&mut self) -> Result<(), Trouble> {
        let Some(mut window) = self.window.take() else {
            return Ok(());
        };
        let closing = window.closing.take();
        if let Some(Closing::Fail(end, fault)) = closing {
            self.window = Some(window);
            self.roll_back();
            self.finish_run(end, None, fault);
            return Ok(());
        }
        self.set(window.spec.out, Value::Tokens(window.out))?;
        self.state.pc = window.exit;
        match closing {
            Some(Closing::Return(value)) => self.complete_run(value),
            _ => Ok(()),
        }
    }

    /// Restores the state after the last emitted token.
    pub(super) fn roll_back(&mut self) {
        let Some(window) = &self.window else {
            return;
        };
        self.state.clone_from(&window.committed);
        let out = Value::Tokens(Arc::clone(&window.out));
        self.state.vars.owe(window.spec.out, out, &self.account);
        for channel in self.channels.iter_mut().flatten() {
            while channel.drain().is_some() {}
        }
    }
}
