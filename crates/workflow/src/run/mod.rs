//! One run of a program: a machine that is polled.
//!
//! ```text
//! mod      the host's interface      machine  execution of instructions in order
//! ops      execution of the ops      chat     conversations to text
//! streams  ops on channels           channel  a channel's inside end
//! window   batched loops: iterations that are held, emitted, rolled back
//! embed    embeddings of prompts     items    lists of JSON values
//! load     the cost of an instruction
//! ```
//!
//! The host polls for [`Event`]s. A poll runs instructions until there is an event, or until the run waits for a token or
//! an id from outside (the waker is registered there). After [`UNITS_PER_POLL`] units of work
//! and events since the last wait or rest, the run rests ([`Event::Rest`]), so that no program keeps others from
//! running. Work that is too long for a poll is reported as [`Event::Heavy`].

mod channel;
mod chat;
mod embed;
mod load;
mod machine;
mod ops;
mod streams;
mod window;

use crate::trouble::Trouble;

use crate::account::Account;
use crate::document::Faults;
use crate::model::Model;
use crate::program::Program;
use crate::session::{Following, Session};
use crate::value::Value;
use channel::Channel;
use embed::Embedding;
use engine::Terms;
use machine::State;
use serde_json::{Map, Value as Json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use stream::{End, Stop};
use window::Window;

/// Units of work and events between two rests.
pub const UNITS_PER_POLL: u64 = 1024;

/// Limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens to emit; also the iterations of a loop without a limit. Bounds the tokens of the engine.
    pub tokens_max: usize,
    /// Instructions to run, one over long texts or lists counted as many: ends a program that
    /// loops for ever.
    pub ops_max: u64,
    /// Items held by all channels together, and ids that a window may read ahead of emitted tokens (4
    /// bytes each).
    pub channel_items_max: usize,
    /// Bytes of all values: texts, lists, transcripts, and the states that windows may roll back to.
    pub value_bytes_max: usize,
    /// Bytes of the returned value, which the host keeps after the run.
    pub returned_bytes_max: usize,
    /// Bytes of text that one poll may process; see [`Event::Heavy`].
    pub inline_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tokens_max: 4096,
            ops_max: 1_000_000,
            channel_items_max: 1 << 16,
            value_bytes_max: 8 << 20,
            returned_bytes_max: 4 << 20,
            inline_bytes_max: 16 << 10,
        }
    }
}

/// Terms of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Limits.
    pub limits: Limits,
    /// Terms of the run's requests: priority, account, clocks. With `since`, the clocks that count
    /// from a request's arrival count from the run's.
    pub terms: Terms,
    /// Deadline of the caller.
    pub deadline: Option<Instant>,
    /// Seconds since the Unix epoch, for templates that use the date.
    pub now_unix_s: i64,
}

/// Observes a run, to debug a program.
pub trait Observer: Send {
    /// Reports an instruction of the step at `place` before the run, or a retry.
    fn op(&mut self, place: &str);
    /// Reports that this many tokens of a window are about to be emitted.
    fn drain(&mut self, place: &str, tokens: usize);
}

/// An event of a run, for the host.
pub enum Event {
    /// A token was emitted, to the channel of this name, or by a batched loop without one.
    Token {
        /// The channel's variable.
        channel: Option<Arc<str>>,
        /// The id.
        id: u32,
    },
    /// The program reads from a channel: this is the writer's end. Dropping it closes the channel.
    Opened {
        /// The channel's variable.
        channel: Arc<str>,
        /// The writer's end.
        writer: stream::ring::RingWriter<u32>,
    },
    /// The next step processes a long text: run [`Run::labour`] on a thread that may take its time. Until
    /// then every poll returns this event.
    Heavy,
    /// The run rests: poll again after other work, without a wake-up.
    Rest,
    /// The run has ended. Returned once; no event follows.
    Ended(Outcome),
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// End, as of any stream. A program that reached the last step has stopped.
    pub end: End,
    /// Returned value, or the value of `return_value`.
    pub value: Option<Value>,
    /// Error message, with the step's path.
    pub fault: Option<crate::Fault>,
}

/// Tokens that a run has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Prefilled tokens.
    pub prompt_tokens: u64,
    /// Sampled tokens, emitted or not.
    pub drawn_tokens: u64,
}

/// One run of a program.
pub struct Run {
    program: Arc<Program>,
    models: Vec<Arc<Model>>,
    plan: Plan,
    /// Memory of the run's values.
    account: Account,
    /// The state that a roll-back restores.
    state: State,
    following: Vec<Following>,
    /// The embedding that `forward` waits for.
    embedding: Option<Embedding>,
    channels: Vec<Option<Channel>>,
    window: Option<Window>,
    /// Whether written output is held back.
    captures: bool,
    /// Channels written outside of batched loops and not emitted.
    held: VecDeque<usize>,
    events: VecDeque<Event>,
    /// Prefilled tokens.
    prefilled: u64,
    ops: u64,
    /// Units of work until the next rest.
    left: u64,
    emitted: usize,
    now: Instant,
    alarm: Option<Instant>,
    outcome: Option<Outcome>,
    told: bool,
    observer: Option<Box<dyn Observer>>,
}

impl Run {
    /// A run before the first instruction. `model` finds a model by id; `None` is the default one.
    ///
    /// # Errors
    /// All errors of the inputs; values over the bound; a conversation with more than text; a missing model.
    pub fn new(
        program: &Arc<Program>,
        given: &Map<String, Json>,
        model: impl Fn(Option<&str>) -> Option<Arc<Model>>,
        plan: Plan,
        now: Instant,
    ) -> Result<Self, Faults> {
        let mut models = Vec::with_capacity(program.models.len());
        for id in program.models() {
            let found = model(id).ok_or_else(|| {
                let id = id.unwrap_or("the default one");
                Faults::one("model", format!("{id} is not there"))
            })?;
            models.push(found);
        }
        let eos = models
            .first()
            .and_then(|m| m.handle.tokenizer.eos().or(m.handle.eos.first().copied()));
        let values = program.bind(given, eos)?;
        chat::expect_conversations(program, &values)?;
        let account = Account::new(plan.limits.value_bytes_max);
        let state = State::new(program, values, models.len(), &account);
        let state = state.map_err(|(input, why)| {
            let name = program.inputs.get(input).map_or("", |input| &input.name);
            Faults::one(name, why.what.unwrap_or_default())
        })?;
        Ok(Self {
            following: models.iter().map(|_| Following::default()).collect(),
            channels: program.channels.iter().map(|_| None).collect(),
            embedding: None,
            program: Arc::clone(program),
            models,
            plan,
            account,
            state,
            window: None,
            captures: false,
            held: VecDeque::new(),
            events: VecDeque::new(),
            prefilled: 0,
            ops: 0,
            left: UNITS_PER_POLL,
            emitted: 0,
            now,
            alarm: None,
            outcome: None,
            told: false,
            observer: None,
        })
    }

    /// Sets the observer.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Continues with the sessions of an earlier run, in the order of the program's models, as many as there are.
    #[must_use]
    pub fn with_sessions(mut self, sessions: Vec<Session>) -> Self {
        for (own, earlier) in self.state.sessions.iter_mut().zip(sessions) {
            *own = earlier;
            own.owe(&self.account);
        }
        self
    }

    /// The sessions, one for each model in the program's order.
    pub fn sessions(&self) -> &[Session] {
        &self.state.sessions
    }

    /// A variable's present value.
    pub fn variable(&self, name: &str) -> Option<&Value> {
        let slot = self
            .program
            .variables
            .iter()
            .position(|v| *v.name == *name)?;
        self.state.vars.get(slot)
    }

    /// The next event. `Pending` has registered the waker; if [`Run::alarm`] returns a
    /// time, poll at that time too. `now` never decreases.
    pub fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<Option<Event>> {
        self.now = now;
        self.alarm = None;
        while self.left > 0 {
            if let Some(event) = self.events.pop_front() {
                self.left -= 1;
                return Poll::Ready(Some(event));
            }
            if let Some(outcome) = &self.outcome {
                if std::mem::replace(&mut self.told, true) {
                    return Poll::Ready(None);
                }
                return Poll::Ready(Some(Event::Ended(outcome.clone())));
            }
            if self.is_heavy() {
                return Poll::Ready(Some(Event::Heavy));
            }
            if self.execute(cx).is_pending() {
                self.left = UNITS_PER_POLL;
                return Poll::Pending;
            }
        }
        self.left = UNITS_PER_POLL;
        Poll::Ready(Some(Event::Rest))
    }

    /// Tokens used so far.
    pub fn spent(&self) -> Spent {
        Spent {
            prompt_tokens: self.prefilled,
            drawn_tokens: self.following.iter().map(Following::drawn).sum(),
        }
    }

    /// Bytes of all values now.
    pub fn value_bytes(&self) -> usize {
        self.account.used()
    }

    /// Time at which the run must be polled without a wake-up.
    pub fn alarm(&self) -> Option<Instant> {
        self.alarm
    }

    /// Stops the run. Emitted output stays; variables and sessions are those at the last emitted token.
    pub fn stop(&mut self) {
        if self.outcome.is_none() {
            self.roll_back();
            self.finish_run(End::Cancelled, None, None);
        }
    }

    fn finish_run(&mut self, end: End, value: Option<Value>, fault: Option<crate::Fault>) {
        self.following.iter_mut().for_each(Following::leave);
        self.channels.iter_mut().for_each(|channel| *channel = None);
        self.window = None;
        self.embedding = None;
        if self.outcome.is_none() {
            self.outcome = Some(Outcome { end, value, fault });
        }
    }

    /// Ends the run with success.
    fn complete_run(&mut self, value: Option<Value>) -> Result<(), Trouble> {
        let slot = self.program.return_value;
        let value = value.or_else(|| self.state.vars.get(slot?).cloned());
        let bytes = value.as_ref().map_or(0, Value::bytes);
        let most = self.plan.limits.returned_bytes_max;
        if bytes > most {
            let what =
                format!("returns a value of {bytes} bytes; at most {most} (returned_bytes_max)");
            return Err(Trouble::program(what));
        }
        self.finish_run(End::Stop(Stop::Eos), value, None);
        Ok(())
    }
}
