//! The inbox: the state that handles and the engine thread share.
//!
//! - Requests pass through a queue behind a mutex that is held for a few moves only, never during
//!   computation or allocation.
//! - A cancel is a store into the slot of the request, so that a cancel is neither lost nor delayed. A slot's
//!   ids only grow, and the larger id stays: a late cancel of an ended request cannot overwrite a cancel of
//!   the slot's next request.
//! - A pause or a resume is a store, too; of several for one request the last counts.
//! - After each of these, and after a reader returned credit or left, the engine thread is unparked. The thread
//!   parks only after it has checked all of them, and an unpark in between makes the park return at once, so no
//!   wake-up is lost.

use crate::config::LiveTuning;
use crate::embedding::EmbeddingPool;
use crate::fair_share::FairShareKey;
use crate::media::{MediaAbilities, MediaIds, SequenceMedia};
use crate::prefix_index::{PrefixChain, PrefixRoot};
use crate::remote_record::RemoteRecord;
use crate::request_state::{ObservedState, RequestState};
use crate::sequence::{Sequence, SequenceLimits};
use crate::terms::PermitState;
use crate::{
    EngineConfig, Rejected, Request, RequestId, RequestUpdate, Stats, Tuning, UPDATES_MAX,
    UpdateRejected, validate,
};
use model::Dims;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

/// The state that handles and the engine thread share.
pub(crate) struct Inbox {
    pub(crate) stats: Arc<Stats>,
    pub(crate) dims: Dims,
    /// Entries of the model's hidden states; 0: the model gives none.
    pub(crate) hidden_dim: usize,
    /// Whether the model's tokens attend to earlier tokens only; see [`model::Capabilities::is_causal`].
    pub(crate) is_causal: bool,
    /// States of sequences; see [`model::Capabilities::states`].
    pub(crate) states: usize,
    /// Number of the model's adapters. A relay's are the engines', each of which compares.
    pub(crate) adapters: usize,
    /// Kinds of inputs that the model takes in place of tokens. A relay's engines get files instead.
    pub(crate) media: MediaAbilities,
    /// Numbers of inputs.
    media_ids: Mutex<MediaIds>,
    /// Sizes of the draft model, if there is one.
    pub(crate) draft: Option<Dims>,
    pub(crate) config: EngineConfig,
    pub(crate) tuning: LiveTuning,
    pub(crate) epoch: Instant,
    queue: Mutex<InboxQueue>,
    /// Requests that were accepted and not started, here or at the scheduler.
    queued: AtomicUsize,
    /// Upper bound of the tokens of these requests.
    queued_tokens: AtomicUsize,
    /// By slot: the last request that was cancelled; 0 = none.
    cancels: Box<[AtomicU64]>,
    /// By slot: twice the last request that was paused or resumed, plus one if paused.
    pauses: Box<[AtomicU64]>,
    /// Updates that wait for the engine thread, which takes the lock only when the count is not 0.
    updates: Mutex<VecDeque<(RequestId, RequestUpdate)>>,
    updates_waiting: AtomicUsize,
    thread: OnceLock<Thread>,
    /// Whether a relay to engines of other processes takes the requests, instead of an engine thread.
    pub(crate) is_remote: bool,
    /// Why the relay cannot have a request computed, by the request's record; such a relay takes no updates.
    pub(crate) refusal: OnceLock<RecordRefusal>,
    relay: OnceLock<Waker>,
}

/// Why a request with this record cannot be computed; `None`: it can.
pub type RecordRefusal = Box<dyn Fn(&[u8]) -> Option<String> + Send + Sync>;

/// The part of the inbox behind the mutex.
struct InboxQueue {
    requests: VecDeque<Box<SubmittedRequest>>,
    /// Slots without a request.
    vacant_slots: Vec<usize>,
    accepted: u64,
    /// Number of requests ever queued.
    queued: u64,
    closed: bool,
    /// Whether the engine was dropped: later requests are dropped too.
    is_abandoned: bool,
    drain_deadline: Option<Instant>,
}

/// A constructor of a rejection.
type Reject = fn(Box<Request>) -> Rejected;

/// Whether the inbox is open, as read at the head of a step.
#[derive(Clone, Copy)]
pub(crate) struct InboxState {
    pub(crate) closed: bool,
    pub(crate) drain_deadline: Option<Instant>,
}

/// The waker of token logs: a reader that returns credit or leaves wakes the engine thread.
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
            stats: Arc::default(),
            dims,
            hidden_dim: 0,
            is_causal: true,
            states: 0,
            adapters: 0,
            media: MediaAbilities::default(),
            media_ids: Mutex::new(MediaIds::new()),
            draft,
            config,
            tuning: LiveTuning::new(Tuning::from(&config)),
            epoch,
            queue: Mutex::new(InboxQueue {
                requests: VecDeque::with_capacity(config.inbox_max),
                vacant_slots: (0..slots).rev().collect(),
                accepted: 0,
                queued: 0,
                closed: false,
                is_abandoned: false,
                drain_deadline: None,
            }),
            queued: AtomicUsize::new(0),
            queued_tokens: AtomicUsize::new(0),
            cancels: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            pauses: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            updates: Mutex::default(),
            updates_waiting: AtomicUsize::new(0),
            thread: OnceLock::new(),
            is_remote: false,
            refusal: OnceLock::new(),
            relay: OnceLock::new(),
        }
    }

    pub(crate) fn submit(&self, mut request: Request) -> Result<RequestId, Rejected> {
        if let Some(message) = self.refusal_of(&request) {
            return Err(Rejected::Invalid(Box::new(request), message));
        }
        let mut ids = (!request.media.is_empty()).then(|| {
            let ids = self.media_ids.lock();
            ids.unwrap_or_else(PoisonError::into_inner)
        });
        if let Some(ids) = &ids
            && !ids.has_numbers(request.media.len())
        {
            let message = "media: all numbers of inputs were given; restart the engine".to_owned();
            return Err(Rejected::Invalid(Box::new(request), message));
        }
        let max_new_tokens = validate::max_new_tokens(&request, &self.dims);
        let tokens = request.choices.len() * (request.prompt.len() + max_new_tokens);
        let (id, slot) = match self.reserve_slot(tokens) {
            Ok(reserved) => reserved,
            Err(reject) => return Err(reject(Box::new(request))),
        };
        let limits = SequenceLimits {
            max_new_tokens,
            pages_max: validate::pages_needed(&request, &self.dims),
            draft_tokens_max: self.config.draft_tokens_max(),
            draft_pages_max: self.draft.map_or(0, |draft| {
                (request.prompt.len() + max_new_tokens).div_ceil(draft.page_tokens)
            }),
        };
        if request.paused {
            self.set_paused(id, true);
        }
        let inputs = std::mem::take(&mut request.media);
        let media = ids.as_mut().map(|ids| {
            let shared = (request.terms.salt, &self.media);
            SequenceMedia::number(inputs, shared, &mut request.prompt, ids)
        });
        drop(ids);
        let media = media.unwrap_or_default();
        let mut submitted = Box::new(SubmittedRequest::new(request, &media, id, slot, limits));
        let mut queue = self.lock_queue();
        if !queue.is_abandoned {
            // Ages follow the order of the queue; ids were given before, in perhaps another order.
            queue.queued += 1;
            submitted.set_queue_number(queue.queued);
            queue.requests.push_back(submitted);
        }
        drop(queue);
        self.unpark();
        Ok(id)
    }

    /// Why a request is not accepted, whatever is queued; `None`: it is valid.
    fn refusal_of(&self, request: &Request) -> Option<String> {
        if self.is_remote && request.remote.is_none() {
            return Some("engine: is another process, which runs only text generation".to_owned());
        }
        if self.is_remote && !request.media.is_empty() {
            return Some(
                "media: the engine is another process, which gets files instead".to_owned(),
            );
        }
        let bounds = validate::RequestBounds {
            dims: &self.dims,
            config: &self.config,
            is_causal: self.is_causal,
            adapters: self.adapters,
            media: self.media,
        };
        let errors = validate::request_errors(request, &bounds);
        let refusal = || self.refusal.get()?(&request.remote.as_ref()?.bytes);
        errors.or_else(refusal)
    }

    pub(crate) fn cancel(&self, id: RequestId) {
        if self.was_given(id) {
            self.cancels[self.slot(id)].fetch_max(id.0, Ordering::Relaxed);
            self.unpark();
        }
    }

    /// Pauses or resumes. The last call counts; calls for an earlier request of the slot are ignored.
    pub(crate) fn set_paused(&self, id: RequestId, pause: bool) {
        if !self.was_given(id) {
            return;
        }
        let newer = |old: u64| (old >> 1 <= id.0).then_some(id.0 << 1 | u64::from(pause));
        let slot = &self.pauses[self.slot(id)];
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, newer);
        self.unpark();
    }

    /// Queues an update. At most [`UPDATES_MAX`] wait here, and as many at the scheduler.
    pub(crate) fn update(
        &self,
        id: RequestId,
        update: RequestUpdate,
    ) -> Result<(), UpdateRejected> {
        if let Some(message) = validate::update_errors(&update, &self.dims) {
            return Err(UpdateRejected::Invalid(message));
        }
        if self.refusal.get().is_some() {
            let message = "updates: the tokens are computed by a server that takes no updates";
            return Err(UpdateRejected::Invalid(message.to_owned()));
        }
        if !self.was_given(id) {
            return Ok(());
        }
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        if updates.len() >= UPDATES_MAX {
            return Err(UpdateRejected::Full);
        }
        updates.push_back((id, update));
        self.updates_waiting.store(updates.len(), Ordering::Release);
        drop(updates);
        self.unpark();
        Ok(())
    }

    /// Moves updates out until `into` has [`UPDATES_MAX`]; called by the engine thread.
    pub(crate) fn take_updates(&self, into: &mut Vec<(RequestId, RequestUpdate)>) {
        if self.updates_waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        let count = UPDATES_MAX.saturating_sub(into.len()).min(updates.len());
        into.extend(updates.drain(..count));
        self.updates_waiting.store(updates.len(), Ordering::Release);
    }

    /// Wakes the engine thread or the relay.
    pub(crate) fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        if let Some(relay) = self.relay.get() {
            relay.wake_by_ref();
        }
    }

    /// Rejects new requests from now on; live ones may go on until the deadline, if there is one.
    pub(crate) fn close(&self, drain_deadline: Option<Instant>) {
        let mut queue = self.lock_queue();
        queue.closed = true;
        queue.drain_deadline = match (queue.drain_deadline, drain_deadline) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
        drop(queue);
        self.unpark();
    }

    // The methods below are called by the engine thread.

    /// Sets the thread to wake. Only the first call counts.
    pub(crate) fn set_thread(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    /// The thread to wake, if there is one by now.
    #[cfg(test)]
    pub(crate) fn woken_thread(&self) -> Option<std::thread::ThreadId> {
        self.thread.get().map(Thread::id)
    }

    /// Sets the waker of the relay. Only the first call counts.
    pub(crate) fn set_relay(&self, waker: Waker) {
        let _ = self.relay.set(waker);
    }

    /// Gives the slot of an ended request back.
    pub(crate) fn vacate_slot(&self, slot: usize) {
        self.lock_queue().vacant_slots.push(slot);
    }

    /// Moves new requests into `requests` and gives slots back.
    pub(crate) fn take_requests(
        &self,
        requests: &mut VecDeque<Box<SubmittedRequest>>,
        vacated_slots: &mut Vec<usize>,
    ) -> InboxState {
        let mut queue = self.lock_queue();
        requests.extend(queue.requests.drain(..));
        queue.vacant_slots.append(vacated_slots);
        InboxState {
            closed: queue.closed,
            drain_deadline: queue.drain_deadline,
        }
    }

    /// The drain deadline, once [`crate::Handle::shutdown`] was called.
    pub(crate) fn drain_deadline(&self) -> Option<Instant> {
        self.lock_queue().drain_deadline
    }

    pub(crate) fn is_cancelled(&self, id: RequestId, slot: usize) -> bool {
        self.cancels[slot].load(Ordering::Relaxed) == id.0
    }

    pub(crate) fn is_paused(&self, id: RequestId, slot: usize) -> bool {
        self.pauses[slot].load(Ordering::Relaxed) == (id.0 << 1 | 1)
    }

    /// Counts a queued request out: started, or ended before the start.
    pub(crate) fn leave_queue(&self, request: &RequestState) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
        self.queued_tokens
            .fetch_sub(request.tokens_max, Ordering::Relaxed);
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Closes the inbox of a dropped engine: queued requests are dropped (`End::Lost`), later ones rejected.
    pub(crate) fn abandon(&self) {
        let mut queue = self.lock_queue();
        queue.closed = true;
        queue.is_abandoned = true;
        let orphans = std::mem::take(&mut queue.requests);
        drop(queue);
        drop(orphans);
    }

    /// Reserves queue space for a request of at most `tokens` tokens. Returns the request's id and slot.
    fn reserve_slot(&self, tokens: usize) -> Result<(RequestId, usize), Reject> {
        let mut queue = self.lock_queue();
        if queue.closed {
            return Err(Rejected::Closed);
        }
        let queued = self.queued();
        let queued_tokens = self.queued_tokens.load(Ordering::Relaxed) + tokens;
        if queued >= self.config.inbox_max
            || (queued > 0 && queued_tokens > self.config.queued_tokens_max)
        {
            return Err(Rejected::Full);
        }
        let slot = queue.vacant_slots.pop();
        let slot = slot.ok_or(Rejected::Full as Reject)?;
        queue.accepted += 1;
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.queued_tokens.fetch_add(tokens, Ordering::Relaxed);
        let id = queue.accepted * self.cancels.len() as u64 + slot as u64;
        Ok((RequestId(id), slot))
    }

    /// Whether the id was assigned. A store for a future id would hide later stores for the request that has
    /// the slot now, because that request's id is smaller.
    fn was_given(&self, id: RequestId) -> bool {
        id.0 / self.cancels.len() as u64 <= self.lock_queue().accepted
    }

    /// The slot is the remainder of the id; the quotient counts requests, so ids never repeat.
    pub(crate) fn slot(&self, id: RequestId) -> usize {
        (id.0 % self.cancels.len() as u64) as usize
    }

    fn lock_queue(&self) -> MutexGuard<'_, InboxQueue> {
        // Holders only move values, so a poisoned queue is intact.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request on its way to the scheduler. All memory that the engine thread needs for the request is
/// allocated here, on the caller's thread.
pub(crate) struct SubmittedRequest {
    pub(crate) state: RequestState,
    /// In choice order.
    pub(crate) sequences: Vec<Sequence>,
    /// The record for an engine of another process.
    pub(crate) remote: Option<RemoteRecord>,
}

impl SubmittedRequest {
    pub(crate) fn new(
        request: Request,
        media: &SequenceMedia,
        id: RequestId,
        slot: usize,
        limits: SequenceLimits,
    ) -> Self {
        let prompt = request.prompt;
        let open_choices = request.choices.len();
        let root = PrefixRoot {
            salt: request.terms.salt,
            adapters: request.adapters,
        };
        let first_choice = request.first_choice;
        let mut sequences: Vec<_> = request
            .choices
            .into_iter()
            .enumerate()
            .map(|(i, choice)| {
                let mut sequence = Sequence::new(choice, i, slot, &prompt, limits);
                (sequence.root, sequence.chain) = (root, PrefixChain::Start(root));
                sequence.choice = first_choice.saturating_add(i as u32);
                sequence.media = media.clone();
                sequence
            })
            .collect();
        if request.permits.is_none() {
            sequences
                .iter_mut()
                .for_each(|s| s.permit = PermitState::Held);
        }
        if let Some(sequence) = sequences.first_mut() {
            let embedding = request.embedding;
            sequence.pool = embedding.map(|embedding| Box::new(EmbeddingPool::new(embedding)));
        }
        let state = RequestState {
            id,
            slot,
            sampling: request.sampling,
            eos: request.eos,
            deadline: request.deadline,
            credit_window: request.credit_window,
            progress: request.progress,
            permits: request.permits,
            held: request.held,
            prompt_tokens: prompt.len(),
            open_choices,
            has_token: false,
            tokens_max: open_choices * (prompt.len() + limits.max_new_tokens),
            account: request.terms.account,
            clocks: request.terms.clocks,
            policy: request.terms.policy,
            since: request.terms.since,
            fair_share: FairShareKey::unassigned(request.terms.priority),
            arrived_ns: 0,
            clock_start_ns: 0,
            update_waits: false,
            paused: false,
            paused_ns: 0,
            observed: ObservedState::Running,
        };
        Self {
            state,
            sequences,
            remote: request.remote,
        }
    }

    /// Position in arrival order.
    pub(crate) fn age(&self) -> crate::terms::Age {
        self.sequences[0].age
    }

    /// Whether the request may be started: neither paused nor without a permit.
    pub(crate) fn can_start(&self) -> bool {
        !self.state.paused && self.sequences[0].permit == PermitState::Held
    }

    /// Sets the queue number of all choices.
    pub(crate) fn set_queue_number(&mut self, number: u64) {
        for sequence in &mut self.sequences {
            sequence.age.0 = number;
        }
    }
}
