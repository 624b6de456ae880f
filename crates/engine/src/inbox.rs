//! What the engine thread and the handles share: the way in.
//!
//! - Requests pass through a queue behind a mutex that is held for a few moves only, never while
//!   anything is computed or allocated.
//! - A cancel is a store into the slot of its request, so that it can neither be lost nor wait.
//!   A slot's ids only grow, and the larger id stays: a late cancel of a request that is gone
//!   cannot erase that of its successor.
//! - A pause or a resume is a store too; of two words for one request the later counts.
//! - After each of these, and after a reader returned credit or left, the engine's thread is unparked. It parks only after it looked; an
//!   unpark in between makes the park return at once, so no news is slept through.

use crate::sequence::{Common, Room};
use crate::submitted::Submitted;
use crate::tuning::LiveTuning;
use crate::{EngineConfig, Rejected, Request, RequestId, Stats, Tuning, validate};
use crate::{STEERS_MAX, Steer, Unsteered};
use model::Dims;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Wake;
use std::thread::Thread;
use std::time::Instant;

pub(crate) struct Inbox {
    pub(crate) stats: Stats,
    pub(crate) dims: Dims,
    /// Entries of the model's hidden states; 0: it gives none.
    pub(crate) hidden_dim: usize,
    /// The draft model's sizes, if guesses come from one.
    pub(crate) draft: Option<Dims>,
    pub(crate) config: EngineConfig,
    pub(crate) tuning: LiveTuning,
    pub(crate) epoch: Instant,
    desk: Mutex<Desk>,
    /// Requests that were accepted and not started, wherever they are.
    queued: AtomicUsize,
    /// Tokens those may grow to.
    queued_tokens: AtomicUsize,
    /// By slot: the last request asked to be cancelled; 0 = none.
    cancels: Box<[AtomicU64]>,
    /// By slot: twice the last request asked to be paused or resumed, plus one if paused.
    pauses: Box<[AtomicU64]>,
    /// Changes that wait for the engine; the lock is taken by it only where there are some.
    steers: Mutex<VecDeque<(RequestId, Steer)>>,
    steers_waiting: AtomicUsize,
    thread: OnceLock<Thread>,
}

struct Desk {
    requests: VecDeque<Box<Submitted>>,
    /// Slots no request has.
    vacant: Vec<usize>,
    accepted: u64,
    /// Requests ever put into the queue.
    queued: u64,
    closed: bool,
    /// The engine is no more: what comes now is dropped.
    gone: bool,
    drain_deadline: Option<Instant>,
}

/// A way to refuse a request.
type No = fn(Box<Request>) -> Rejected;

/// What the engine learns about the door at the head of a step.
#[derive(Clone, Copy)]
pub(crate) struct Door {
    pub(crate) closed: bool,
    pub(crate) drain_deadline: Option<Instant>,
}

/// Of a log whose reader returned credit or left.
impl Wake for Inbox {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}

impl Inbox {
    pub(crate) fn new(
        dims: Dims,
        draft: Option<Dims>,
        config: EngineConfig,
        epoch: Instant,
    ) -> Self {
        let slots = config.requests_max();
        Self {
            stats: Stats::default(),
            dims,
            hidden_dim: 0,
            draft,
            config,
            tuning: LiveTuning::new(Tuning::from(&config)),
            epoch,
            desk: Mutex::new(Desk {
                requests: VecDeque::with_capacity(config.inbox_max),
                vacant: (0..slots).rev().collect(),
                accepted: 0,
                queued: 0,
                closed: false,
                gone: false,
                drain_deadline: None,
            }),
            queued: AtomicUsize::new(0),
            queued_tokens: AtomicUsize::new(0),
            cancels: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            pauses: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            steers: Mutex::default(),
            steers_waiting: AtomicUsize::new(0),
            thread: OnceLock::new(),
        }
    }

    pub(crate) fn submit(&self, request: Request) -> Result<RequestId, Rejected> {
        if let Some(words) = validate::faults(&request, &self.dims, &self.config) {
            return Err(Rejected::Invalid(Box::new(request), words));
        }
        let own_max = validate::own_max(&request, &self.dims);
        let tokens = request.choices.len() * (request.prompt.len() + own_max);
        let (id, slot) = match self.reserve(tokens) {
            Ok(reserved) => reserved,
            Err(reject) => return Err(reject(Box::new(request))),
        };
        let room = Room {
            own_max,
            pages_max: validate::pages_alone(&request, &self.dims),
            guesses_max: self.config.guesses_max(),
            draft_pages_max: self.draft.map_or(0, |draft| {
                (request.prompt.len() + own_max).div_ceil(draft.page_tokens)
            }),
        };
        let mut submitted = Box::new(Submitted::new(request, id, slot, room));
        let mut desk = self.desk();
        if !desk.gone {
            // Age is the order of the queue; ids are given earlier, outside of which others pass.
            desk.queued += 1;
            submitted.set_age(desk.queued);
            desk.requests.push_back(submitted);
        }
        drop(desk);
        self.unpark();
        Ok(id)
    }

    pub(crate) fn cancel(&self, id: RequestId) {
        if self.was_given(id) {
            self.cancels[self.slot(id)].fetch_max(id.0, Ordering::Relaxed);
            self.unpark();
        }
    }

    /// The last word counts; that for an older request is no word.
    pub(crate) fn pause(&self, id: RequestId, pause: bool) {
        if !self.was_given(id) {
            return;
        }
        let newer = |word: u64| (word >> 1 <= id.0).then_some(id.0 << 1 | u64::from(pause));
        let slot = &self.pauses[self.slot(id)];
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, newer);
        self.unpark();
    }

    /// Bounded by [`STEERS_MAX`], with those that wait at the engine.
    pub(crate) fn steer(&self, id: RequestId, steer: Steer) -> Result<(), Unsteered> {
        if let Some(words) = validate::steer_faults(&steer, &self.dims) {
            return Err(Unsteered::Invalid(words));
        }
        if !self.was_given(id) {
            return Ok(());
        }
        let mut steers = self.steers.lock().unwrap_or_else(PoisonError::into_inner);
        if steers.len() >= STEERS_MAX {
            return Err(Unsteered::Full);
        }
        steers.push_back((id, steer));
        self.steers_waiting.store(steers.len(), Ordering::Release);
        drop(steers);
        self.unpark();
        Ok(())
    }

    /// Moves as many as there is room for; the engine's side.
    pub(crate) fn take_steers(&self, into: &mut Vec<(RequestId, Steer)>) {
        if self.steers_waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut steers = self.steers.lock().unwrap_or_else(PoisonError::into_inner);
        let room = STEERS_MAX.saturating_sub(into.len()).min(steers.len());
        into.extend(steers.drain(..room));
        self.steers_waiting.store(steers.len(), Ordering::Release);
    }

    pub(crate) fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// No new requests; those alive may go on until the deadline, if there is one.
    pub(crate) fn close(&self, drain_deadline: Option<Instant>) {
        let mut desk = self.desk();
        desk.closed = true;
        desk.drain_deadline = match (desk.drain_deadline, drain_deadline) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
        drop(desk);
        self.unpark();
    }

    // What follows is the engine thread's side.

    /// Names the thread to wake. Only the first call counts.
    pub(crate) fn wake_this(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// Moves new requests into `queue` and gives slots back.
    pub(crate) fn take(
        &self,
        queue: &mut VecDeque<Box<Submitted>>,
        vacated: &mut Vec<usize>,
    ) -> Door {
        let mut desk = self.desk();
        queue.extend(desk.requests.drain(..));
        desk.vacant.append(vacated);
        Door {
            closed: desk.closed,
            drain_deadline: desk.drain_deadline,
        }
    }

    pub(crate) fn is_cancelled(&self, id: RequestId, slot: usize) -> bool {
        self.cancels[slot].load(Ordering::Relaxed) == id.0
    }

    pub(crate) fn is_paused(&self, id: RequestId, slot: usize) -> bool {
        self.pauses[slot].load(Ordering::Relaxed) == (id.0 << 1 | 1)
    }

    /// A queued request was started, or ended before it was.
    pub(crate) fn unqueued(&self, request: &Common) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
        self.queued_tokens
            .fetch_sub(request.tokens_max, Ordering::Relaxed);
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// The engine is no more: nothing is taken, and what was queued is dropped (`End::Lost`).
    pub(crate) fn abandon(&self) {
        let mut desk = self.desk();
        desk.closed = true;
        desk.gone = true;
        let orphans = std::mem::take(&mut desk.requests);
        drop(desk);
        drop(orphans);
    }

    /// A place in the queue for a request of so many tokens and a slot, or the way to say no.
    fn reserve(&self, tokens: usize) -> Result<(RequestId, usize), No> {
        let mut desk = self.desk();
        if desk.closed {
            return Err(Rejected::Closed);
        }
        let queued = self.queued();
        let queued_tokens = self.queued_tokens.load(Ordering::Relaxed) + tokens;
        if queued >= self.config.inbox_max
            || (queued > 0 && queued_tokens > self.config.queued_tokens_max)
        {
            return Err(Rejected::Full);
        }
        let slot = desk.vacant.pop().ok_or(Rejected::Full as No)?;
        desk.accepted += 1;
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.queued_tokens.fetch_add(tokens, Ordering::Relaxed);
        let id = desk.accepted * self.cancels.len() as u64 + slot as u64;
        Ok((RequestId(id), slot))
    }

    /// An id that was never given would shadow those to come.
    fn was_given(&self, id: RequestId) -> bool {
        id.0 / self.cancels.len() as u64 <= self.desk().accepted
    }

    /// The slot is the remainder of the id; the quotient counts requests, so ids never repeat.
    pub(crate) fn slot(&self, id: RequestId) -> usize {
        (id.0 % self.cancels.len() as u64) as usize
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Nothing that may panic happens while it is held, beyond moves.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
