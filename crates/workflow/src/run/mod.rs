//! One run of a program: a machine that is polled.
//!
//! ```text
//! mod      what its host sees        machine  instructions, one after the other
//! ops      what each op does         chat     conversations to text
//! streams  what it does with channels  channel  a channel's inside end
//! window   batched loops: what is held, emitted, taken back
//! state    what is rolled back       trouble  why a run ends early
//! embed    a prompt as one vector     items     lists of anything
//! load     how much work an instruction is
//! ```
//!
//! The host polls for [`Event`]s. A poll runs instructions until there is something to tell, or until a token or
//! an id from outside has to be waited for (the waker is left there). When [`UNITS_PER_POLL`] units of work were
//! done and events told since it last waited or rested, it rests ([`Event::Rest`]): no program keeps others from
//! running. What is too much for a poll is told as [`Event::Heavy`].

mod channel;
mod chat;
mod embed;
mod items;
mod load;
mod machine;
mod ops;
mod state;
mod streams;
mod trouble;
mod window;

pub use trouble::Trouble;

use crate::account::Account;
use crate::error::Faults;
use crate::model::Model;
use crate::program::Program;
use crate::session::{Following, Session};
use crate::value::Value;
use channel::Channel;
use embed::Embedding;
use engine::Terms;
use serde_json::{Map, Value as Json};
use state::State;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use stream::{End, Stop};
use window::Window;

/// Units of work done and events told between two times that a run lets others go first.
pub const UNITS_PER_POLL: u64 = 1024;

/// What a run may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens it may emit; also the iterations of a loop that says none. Bounds what the engine gives it.
    pub tokens_max: usize,
    /// Instructions it may run, one that goes over long texts or lists counted as many: ends a program that
    /// goes round for ever.
    pub ops_max: u64,
    /// Items that channels may hold, all together, and ids that a window may read ahead of what was told (4
    /// bytes each).
    pub channel_items_max: usize,
    /// Bytes its values may take, all together: texts, lists, transcripts, and what windows keep to go back to.
    pub value_bytes_max: usize,
    /// Bytes of the value it returns: its host keeps that when the run is over.
    pub returned_bytes_max: usize,
    /// Bytes of text that one poll may go over; see [`Event::Heavy`].
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

/// On which terms a run is served.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// What it may use.
    pub limits: Limits,
    /// How urgent its requests are, whose they are, which clocks run. With `since`, the clocks that count
    /// from a request's coming count from the run's.
    pub terms: Terms,
    /// When its caller's patience ends.
    pub deadline: Option<Instant>,
    /// Seconds since the Unix epoch, for templates that tell the date.
    pub now_unix_s: i64,
}

/// Hears what a run does, for people who look for a fault in a program.
pub trait Observer: Send {
    /// An instruction of the step at `place` is about to be run, or tried again.
    fn op(&mut self, place: &str);
    /// So many tokens of a window are about to be emitted.
    fn drain(&mut self, place: &str, tokens: usize);
}

/// What a run tells its host.
pub enum Event {
    /// A token was emitted; of the channel with this name, or of a batched loop that has none.
    Token {
        /// The channel's variable.
        channel: Option<Arc<str>>,
        /// The id.
        id: u32,
    },
    /// The program reads from a channel: this is its other end. Dropping it closes the channel.
    Opened {
        /// The channel's variable.
        channel: Arc<str>,
        /// The end that writes.
        writer: stream::ring::Writer<u32>,
    },
    /// The next step goes over a long text: it is for [`Run::labour`] to do, where that holds nobody up. Until
    /// then this is what polling tells.
    Heavy,
    /// The run yields: others first, then it is to be polled again, though nothing wakes it.
    Rest,
    /// The run has ended. Returned once; nothing follows.
    Ended(Outcome),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// As any stream's. A program that came to its end has stopped.
    pub end: End,
    /// What it returned, or what its `return_value` holds.
    pub value: Option<Value>,
    /// What went wrong, with the step's path.
    pub fault: Option<crate::Fault>,
}

/// What a run has used of its models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens that were prefilled.
    pub prompt_tokens: u64,
    /// Tokens that were drawn, told or not.
    pub drawn_tokens: u64,
}

/// One run of a program.
pub struct Run {
    program: Arc<Program>,
    models: Vec<Arc<Model>>,
    plan: Plan,
    /// What its values take.
    account: Account,
    /// What is rolled back.
    state: State,
    following: Vec<Following>,
    /// What `forward` waits for.
    embedding: Option<Embedding>,
    channels: Vec<Option<Channel>>,
    window: Option<Window>,
    /// Whether what is written is held back.
    captures: bool,
    /// What was written outside of batched loops and not emitted: channels.
    held: VecDeque<usize>,
    events: VecDeque<Event>,
    /// Tokens that were prefilled.
    prefilled: u64,
    ops: u64,
    /// Units of work until others go first.
    left: u64,
    emitted: usize,
    now: Instant,
    alarm: Option<Instant>,
    outcome: Option<Outcome>,
    told: bool,
    observer: Option<Box<dyn Observer>>,
}

impl Run {
    /// A run that has not begun. `model` finds a model by its id; `None` is the default one.
    ///
    /// # Errors
    /// All that is wrong with what was given; it is too much; a model is not there.
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
            .and_then(|m| m.tokenizer.eos().or(m.eos.first().copied()));
        let values = program.bind(given, eos)?;
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

    /// Lets this hear what the run does.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Goes on with sessions of an earlier run: of the models in the program's order, as many as there are.
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

    /// A variable's value, as it is now.
    pub fn variable(&self, name: &str) -> Option<&Value> {
        let slot = self
            .program
            .variables
            .iter()
            .position(|v| *v.name == *name)?;
        self.state.vars.get(slot)
    }

    /// What happens next. `Pending` leaves the waker with whatever is waited for; where [`Run::alarm`] says a
    /// time, it is to be polled then too. `now` never goes back.
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

    /// What it has used of its models so far.
    pub fn spent(&self) -> Spent {
        Spent {
            prompt_tokens: self.prefilled,
            drawn_tokens: self.following.iter().map(Following::drawn).sum(),
        }
    }

    /// Bytes its values take now.
    pub fn value_bytes(&self) -> usize {
        self.account.used()
    }

    /// When it wants to be polled though nothing wakes it.
    pub fn alarm(&self) -> Option<Instant> {
        self.alarm
    }

    /// Ends it. What was told stays told; variables and sessions are as they were at the last token that was.
    pub fn stop(&mut self) {
        if self.outcome.is_none() {
            self.roll_back();
            self.finish(End::Cancelled, None, None);
        }
    }

    fn finish(&mut self, end: End, value: Option<Value>, fault: Option<crate::Fault>) {
        self.following.iter_mut().for_each(Following::leave);
        self.channels.iter_mut().for_each(|channel| *channel = None);
        self.window = None;
        self.embedding = None;
        if self.outcome.is_none() {
            self.outcome = Some(Outcome { end, value, fault });
        }
    }

    /// Ends well.
    fn complete(&mut self, value: Option<Value>) -> Result<(), Trouble> {
        let slot = self.program.return_value;
        let value = value.or_else(|| self.state.vars.get(slot?).cloned());
        let bytes = value.as_ref().map_or(0, Value::bytes);
        let most = self.plan.limits.returned_bytes_max;
        if bytes > most {
            let what =
                format!("returns a value of {bytes} bytes; at most {most} (returned_bytes_max)");
            return Err(Trouble::program(what));
        }
        self.finish(End::Stop(Stop::Eos), value, None);
        Ok(())
    }
}
