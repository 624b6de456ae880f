//! A request whose tokens an engine of another process computes, and the reports of that engine: progress, the vectors
//! of embeddings, and why its tokens are rejected.

use super::{RemoteFiles, RemoteRecord};
use crate::inbox::{Inbox, SubmittedRequest};
use crate::request_state::RequestState;
use crate::sequence::Sequence;
use crate::step_time::StepClock;
use crate::{
    AdapterSet, CacheSalt, Embedding, ParkReason, Phase, RequestId, Token, TopLogprob, Transition,
    stats,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use stream::{Clock, End, FailCode};

/// A request between its submission and its end. The drop ends the open choices with [`End::Lost`].
pub struct RelayedRequest {
    pub(super) inbox: Arc<Inbox>,
    pub(super) state: RequestState,
    /// In choice order; `None`: the choice has ended.
    pub(super) choices: Vec<Option<Sequence>>,
    /// By choice: items that the engine counts as accepted because it was given them.
    pub(super) given: Vec<u64>,
    record: RemoteRecord,
    /// Whether the request counts as queued.
    pub(super) is_queued: bool,
    /// Phase that the follower was notified of.
    pub(super) notified: Phase,
    /// Whether the request is shown as parked for want of a permit.
    pub(super) is_shown_waiting: bool,
    has_ended: bool,
}

impl RelayedRequest {
    pub(super) fn new(submitted: SubmittedRequest, inbox: &Arc<Inbox>, now: Instant) -> Self {
        let SubmittedRequest {
            mut state,
            sequences,
            remote,
        } = submitted;
        if let Some(permits) = &mut state.permits {
            permits.wake_by(Waker::from(Arc::clone(inbox)));
        }
        let mut request = Self {
            inbox: Arc::clone(inbox),
            state,
            given: vec![0; sequences.len()],
            choices: sequences.into_iter().map(Some).collect(),
            record: remote.unwrap_or_default(),
            is_queued: true,
            notified: Phase::Queued,
            is_shown_waiting: false,
            has_ended: false,
        };
        let clock = request.clock(now);
        let state = &mut request.state;
        let since = state
            .since
            .map_or(clock.now_ns(), |at| clock.since_epoch_ns(at));
        state.arrived_ns = since.min(clock.now_ns());
        state.clock_start_ns = state.arrived_ns;
        // Caller's objects: a panic in their drop must not reach the relay.
        let choices = request.choices.iter_mut().flatten();
        let _ = catch_unwind(AssertUnwindSafe(|| choices.for_each(Sequence::drop_rules)));
        request.notify(Transition::Queued, now);
        request
    }

    /// Id at the handle.
    pub fn id(&self) -> RequestId {
        self.state.id
    }

    /// The record for the engine.
    pub fn record(&self) -> &Arc<[u8]> {
        &self.record.bytes
    }

    /// Files that the record names; `None`: there are none.
    pub fn files(&self) -> Option<&Arc<RemoteFiles>> {
        self.record.files.as_ref()
    }

    /// Ids of the prompt; of a resumed answer with the tokens before the submission.
    pub fn prompt(&self) -> &[u32] {
        let sequence = self.choices.iter().flatten().next();
        sequence.map_or(&[], |s| &s.tokens[..s.prompt_tokens])
    }

    /// Requests share cached pages under equal salts only.
    pub fn salt(&self) -> CacheSalt {
        let sequence = self.choices.iter().flatten().next();
        sequence.map_or(CacheSalt::NONE, |s| s.root.salt)
    }

    /// Requests share cached pages only with equal adapters.
    pub fn adapters(&self) -> AdapterSet {
        let sequence = self.choices.iter().flatten().next();
        sequence.map_or(AdapterSet::NONE, |s| s.root.adapters)
    }

    /// Tokens that a choice may be ahead of the reader; 0 = no limit.
    pub fn credit_window(&self) -> u64 {
        self.state.credit_window
    }

    /// Most tokens that prompt and answer of a choice may have.
    pub fn tokens_max(&self) -> usize {
        self.state.tokens_max / self.choices.len().max(1)
    }

    /// Phase, as the caller sees it.
    pub fn phase(&self) -> Phase {
        self.state.progress.phase()
    }

    /// Number of choices, ended ones included.
    pub fn choices(&self) -> usize {
        self.choices.len()
    }

    /// Whether all choices have ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Ids of all items of a choice's log; `None`: the choice has ended.
    pub fn log_ids(&self, choice: usize) -> Option<&[u32]> {
        Some(self.choices.get(choice)?.as_ref()?.log_ids())
    }

    /// Items of a choice's log that the reader accepted; `None`: the choice has ended.
    pub fn accepted(&self, choice: usize) -> Option<u64> {
        Some(self.choices.get(choice)?.as_ref()?.accepted())
    }

    /// Whether the caller cancelled the request, or dropped all readers of open choices.
    pub fn is_cancelled(&self) -> bool {
        let mut open = self.choices.iter().flatten();
        self.inbox.is_cancelled(self.state.id, self.state.slot)
            || open.all(|sequence| sequence.writer.is_abandoned())
    }

    /// Whether the caller paused the request.
    pub fn is_paused(&self) -> bool {
        self.inbox.is_paused(self.state.id, self.state.slot)
    }

    /// When the request has to be done.
    pub fn deadline(&self) -> Option<Instant> {
        self.state.deadline
    }

    /// Time since the arrival.
    pub fn age(&self, now: Instant) -> Duration {
        Duration::from_nanos(self.clock(now).elapsed_ns(self.state.arrived_ns))
    }

    /// The end of a request whose time is over, whether an engine has it or not. The other clocks are the engine's.
    pub fn expired(&self, now: Instant) -> Option<End> {
        let (clock, state) = (self.clock(now), &self.state);
        if state.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(End::Deadline);
        }
        if clock.has_passed(state.arrived_ns, state.clocks.total) {
            return Some(End::TimedOut(Clock::Total));
        }
        let waits = self.is_queued && self.has_permit();
        let is_late = waits && clock.has_passed(state.clock_start_ns, state.clocks.queue);
        if is_late {
            return Some(End::TimedOut(Clock::Queue));
        }
        let drained = self.inbox.drain_deadline().is_some_and(|at| now >= at);
        drained.then_some(End::Failed(FailCode::Shutdown))
    }

    /// Appends a token with its alternatives to a choice's log.
    ///
    /// # Errors
    /// The token cannot belong to the choice; the log is unchanged.
    pub fn append(
        &mut self,
        choice: usize,
        token: Token,
        alternatives: &[TopLogprob],
        now: Instant,
    ) -> Result<(), AppendError> {
        let sequence = self.choices.get(choice).and_then(Option::as_ref);
        let sequence = sequence.ok_or(AppendError::NoChoice)?;
        if sequence.pool.is_some() {
            return Err(AppendError::Embedding);
        }
        if !sequence.has_room() {
            return Err(AppendError::Full);
        }
        if token.id as usize >= self.inbox.dims.vocab {
            return Err(AppendError::UnknownToken);
        }
        if alternatives.len() != self.state.sampling.top_logprobs as usize {
            return Err(AppendError::Alternatives);
        }
        let now_ns = self.clock(now).now_ns();
        let is_first = !self.state.has_token;
        self.start(now);
        self.state.note_token(now_ns);
        self.append_timed(choice, token, alternatives, now_ns);
        if is_first {
            let waited = now_ns.saturating_sub(self.state.arrived_ns);
            self.inbox.stats.first_token.record(waited);
            self.notify(Transition::FirstToken, now);
        }
        Ok(())
    }

    fn append_timed(
        &mut self,
        choice: usize,
        token: Token,
        alternatives: &[TopLogprob],
        now_ns: u64,
    ) {
        let Some(sequence) = self.choices[choice].as_mut() else {
            return;
        };
        if sequence.generated() > 0 {
            let waited = now_ns.saturating_sub(sequence.waiting_since_ns);
            self.inbox.stats.inter_token.record(waited);
            self.state.progress.add_gap(waited, now_ns);
        }
        sequence.waiting_since_ns = now_ns;
        stats::count(&self.inbox.stats.tokens_generated, 1);
        sequence.append_relayed(token, alternatives);
    }

    /// Applies what an engine reports.
    pub fn apply_progress(&mut self, report: RelayedProgress, now: Instant) {
        let progress = &self.state.progress;
        let done = usize::try_from(report.prompt_done).unwrap_or(usize::MAX);
        progress.set_prompt_done(done.min(self.state.prompt_tokens));
        if !self.state.has_token {
            let cached = usize::try_from(report.cached_tokens).unwrap_or(usize::MAX);
            progress.set_cached_tokens(cached.min(self.state.prompt_tokens));
        }
        match report.phase {
            Phase::Queued | Phase::Ended => {}
            // The engine does not know that the request waits for a permit.
            Phase::Parked | Phase::Paused if self.is_shown_waiting => {}
            phase => {
                self.start(now);
                self.set_phase(phase, now);
            }
        }
    }

    /// A control update is about to take effect: its tokens follow.
    pub fn begin_update(&mut self) {
        self.state.progress.begin_update();
    }

    /// A control update is in effect.
    pub fn finish_update(&mut self) {
        self.state.progress.finish_update();
    }

    /// Ends a choice. Before the last log ends, the caller's permits and resources are released.
    pub fn finish(&mut self, choice: usize, end: End, now: Instant) {
        let Some(mut sequence) = self.choices.get_mut(choice).and_then(Option::take) else {
            return;
        };
        self.state.release_permit(&mut sequence);
        if self.choices.iter().all(Option::is_none) {
            self.end_request(end, now);
        }
        self.inbox.stats.count_end(end);
        sequence.end_logs(end);
    }

    /// Ends all open choices.
    pub fn finish_all(&mut self, end: End, now: Instant) {
        for choice in 0..self.choices.len() {
            self.finish(choice, end, now);
        }
    }

    /// Ends choices whose readers were dropped, while other choices are read.
    pub fn finish_abandoned(&mut self, now: Instant) {
        for choice in 0..self.choices.len() {
            let sequence = self.choices[choice].as_ref();
            if sequence.is_some_and(|sequence| sequence.writer.is_abandoned()) {
                self.finish(choice, End::Cancelled, now);
            }
        }
    }

    fn end_request(&mut self, end: End, now: Instant) {
        self.has_ended = true;
        self.leave_queue();
        self.state.progress.set_ended(self.clock(now).now_ns());
        self.state.progress.set_phase(Phase::Ended);
        self.notify(Transition::Ended(end), now);
        self.inbox.vacate_slot(self.state.slot);
        self.state.drop_guards();
    }

    /// The engine has begun to compute.
    fn start(&mut self, now: Instant) {
        if !self.is_queued {
            return;
        }
        self.leave_queue();
        let now_ns = self.clock(now).now_ns();
        let waited = now_ns.saturating_sub(self.state.clock_start_ns);
        self.inbox.stats.queue_wait.record(waited);
        self.state.progress.set_started(now_ns);
        self.set_phase(Phase::Prefilling, now);
        self.notify(Transition::Started, now);
    }

    fn leave_queue(&mut self) {
        if std::mem::take(&mut self.is_queued) {
            self.inbox.leave_queue(&self.state);
        }
    }

    /// Sets the phase, and notifies the follower of stops and of their ends.
    pub(super) fn set_phase(&mut self, phase: Phase, now: Instant) {
        self.state.progress.set_phase(phase);
        let before = std::mem::replace(&mut self.notified, phase);
        let is_stopped = |phase| matches!(phase, Phase::Parked | Phase::Paused);
        match phase {
            phase if phase == before => {}
            Phase::Paused => self.notify(
                Transition::Parked {
                    reason: ParkReason::Paused,
                },
                now,
            ),
            Phase::Parked => self.notify(Transition::Backpressure, now),
            _ if is_stopped(before) => self.notify(Transition::Resumed, now),
            _ => {}
        }
    }

    /// Tells the follower of a transition; a panic of the follower is counted.
    pub fn notify(&self, what: Transition, now: Instant) {
        let notify = AssertUnwindSafe(|| self.state.progress.notify(what, now));
        if catch_unwind(notify).is_err() {
            stats::count(&self.inbox.stats.observer_panics, 1);
        }
    }

    pub(super) fn clock(&self, now: Instant) -> StepClock {
        let mut clock = StepClock::new(self.inbox.epoch);
        clock.advance_to(now);
        clock
    }
}

impl Drop for RelayedRequest {
    fn drop(&mut self) {
        if !self.has_ended {
            let ended_ns = self.state.progress.last_token_ns();
            let at = self.inbox.epoch + Duration::from_nanos(ended_ns);
            self.finish_all(End::Lost, at);
        }
    }
}

/// What an engine of another process reports of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayedProgress {
    /// Phase.
    pub phase: Phase,
    /// Prompt tokens whose keys and values exist.
    pub prompt_done: u64,
    /// Prompt tokens that were taken from the prefix cache.
    pub cached_tokens: u64,
}

/// Why a token, or a vector, cannot belong to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// There is no such choice, or the choice has ended.
    NoChoice,
    /// The choice has all its tokens.
    Full,
    /// The id is not in the vocabulary.
    UnknownToken,
    /// Not as many alternatives as the request has per token.
    Alternatives,
    /// The request is for an embedding, and has no tokens.
    Embedding,
    /// A vector of another length than the model's, or with an entry that is not finite.
    Vector,
}

impl RelayedRequest {
    /// Entries of the vector that the request is for; `None`: the request is for tokens.
    pub fn vector_len(&self) -> Option<usize> {
        self.embedding().map(|_| self.inbox.hidden_dim)
    }

    /// Whether the vector of an open request for an embedding is missing.
    pub fn lacks_vector(&self) -> bool {
        let embedding = self.embedding();
        embedding.is_some_and(|embedding| embedding.vector.get().is_none())
    }

    /// Gives the caller the vector. A repeated one has no effect.
    ///
    /// # Errors
    /// The request is open for no embedding, or the vector has another length than the model's, or an entry that is not
    /// finite.
    pub fn set_vector(&mut self, vector: &[f32]) -> Result<(), AppendError> {
        let embedding = self.embedding().ok_or(AppendError::NoChoice)?;
        let is_sound = vector.iter().all(|entry| entry.is_finite());
        if !is_sound || vector.len() != self.inbox.hidden_dim {
            return Err(AppendError::Vector);
        }
        // The first counts.
        let _ = embedding.vector.set(vector.into());
        Ok(())
    }

    fn embedding(&self) -> Option<&Embedding> {
        let pool = self.choices.first()?.as_ref()?.pool.as_ref()?;
        Some(pool.embedding())
    }
}
