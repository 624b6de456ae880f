//! Messages of engines, and published batches that show whether tokens of a request were lost before them.
//!
//! Injected tokens of a control update are in the logs of all open choices or of none: the next attempt gets an update
//! that is not in effect once more, and injects its tokens into each open choice.

use super::assignment::{Assignment, Place};
use super::core::Relay;
use crate::messages::{
    Attempt, ChoiceEnd, Rejection, RequestProgress, RunKey, RunReply, TokenBatch, TokenRun,
};
use crate::names::InstanceId;
use engine::remote::RelayedProgress;
use std::collections::BTreeSet;
use std::time::Instant;
use stream::{End, FailCode};

/// Outcome of a request that was sent to an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// The engine answered the last part.
    Answered(RunReply),
    /// No process listens, no answer came in time, or the connection broke.
    Unanswered,
    /// The request is longer than a message may be, in all its parts.
    TooLong,
}

/// Relation of tokens to a choice's log.
pub(super) enum RunCheck {
    /// The tokens from this one on are new.
    Continues(usize),
    /// Tokens before these are missing.
    Gap,
    /// Tokens that are there already are other ones.
    Diverged,
}

impl Relay {
    /// An engine answered a request, or did not.
    pub fn on_submitted(
        &mut self,
        engine: InstanceId,
        (handle, attempt): (u64, u32),
        outcome: &SubmitOutcome,
        now: Instant,
    ) {
        let name = Attempt { handle, attempt };
        let placed = self.requests.get_mut(&handle);
        let Some(placed) = placed.filter(|placed| placed.is_current(engine, attempt)) else {
            if *outcome == SubmitOutcome::Answered(RunReply::Accepted) {
                self.forget(engine, name);
            }
            return;
        };
        match outcome {
            SubmitOutcome::Answered(RunReply::Accepted) => {
                placed.excluded.clear();
                placed.hear(engine, now);
            }
            SubmitOutcome::TooLong => self.end(handle, End::Failed(FailCode::Inference), now),
            SubmitOutcome::Answered(RunReply::Rejected {
                code: Rejection::Invalid,
                ..
            }) => self.end(handle, End::Failed(FailCode::Inference), now),
            // Tokens arrived already: the answer was lost, not the request.
            _ if matches!(placed.place, Place::Running { .. }) => {}
            SubmitOutcome::Answered(_) | SubmitOutcome::Unanswered => {
                self.take_back(handle, false, now);
            }
        }
    }

    /// No process listens for an engine that was alive: the process has ended, as NATS knows before heartbeats are missing.
    /// After a reconnection, the engine may not be back yet.
    pub fn on_no_engine(&mut self, engine: InstanceId, now: Instant) {
        let connected = self
            .connected_at
            .map(|at| now.saturating_duration_since(at));
        if connected.is_none_or(|time| time < self.config.reconnect_grace) {
            return;
        }
        let runs_there = |placed: &Assignment| {
            let silence = now.saturating_duration_since(placed.heard_at);
            placed.engine() == Some(engine) && silence >= self.config.silence
        };
        let taken = self
            .requests
            .iter()
            .filter(|(_, placed)| runs_there(placed));
        let taken: Vec<u64> = taken.map(|(handle, _)| *handle).collect();
        for handle in taken {
            self.take_back(handle, true, now);
        }
    }

    /// Tokens of an engine arrived: published ones, or the answer to a read.
    pub fn on_tokens(&mut self, batch: &TokenBatch, is_answer: bool, now: Instant) {
        let engine = batch.engine();
        self.forget_stale(batch, now);
        for progress in batch.progress() {
            self.begin_updates(engine, progress, is_answer);
        }
        let mut broken = BTreeSet::new();
        if !is_answer {
            broken = self.without_all_of_an_update(batch);
        }
        for run in batch.runs() {
            let handle = run.key.handle;
            if !broken.contains(&handle) && !self.append_run(engine, &run, now) {
                broken.insert(handle);
            }
        }
        let runs = batch.runs().map(|run| (run.key.handle, run.key.choice));
        let with_tokens: BTreeSet<_> = runs.collect();
        for progress in batch.progress() {
            let handle = progress.handle;
            let is_whole = is_answer
                || !broken.contains(&handle) && self.are_all_open_in(handle, &with_tokens);
            self.apply_progress(engine, progress, is_whole, now);
        }
        for (name, vector) in batch.vectors() {
            self.apply_vector(engine, name, vector, is_answer, now);
        }
        for end in batch.ends() {
            self.apply_end(engine, end, now);
        }
        for unknown in batch.unknown() {
            if self
                .current(engine, unknown.handle, unknown.attempt)
                .is_some()
            {
                self.take_back(unknown.handle, false, now);
            }
        }
    }

    pub(super) fn current(
        &mut self,
        engine: InstanceId,
        handle: u64,
        attempt: u32,
    ) -> Option<&mut Assignment> {
        let placed = self.requests.get_mut(&handle)?;
        placed.is_current(engine, attempt).then_some(placed)
    }

    /// Orders the engine to forget attempts that are not current.
    fn forget_stale(&mut self, batch: &TokenBatch, now: Instant) {
        let engine = batch.engine();
        let runs = batch.runs().map(|run| (run.key.handle, run.key.attempt));
        let progress = batch.progress().iter().map(|p| (p.handle, p.attempt));
        let ends = batch.ends().iter().map(|end| (end.handle, end.attempt));
        let vectors = batch.vectors().map(|(name, _)| (name.handle, name.attempt));
        let names: BTreeSet<_> = runs.chain(progress).chain(ends).chain(vectors).collect();
        for (handle, attempt) in names {
            match self.current(engine, handle, attempt) {
                Some(placed) => placed.hear(engine, now),
                None => {
                    self.counters.stale += 1;
                    self.forget(engine, Attempt { handle, attempt });
                }
            }
        }
    }

    /// Appends tokens. Returns whether none is missing before them.
    fn append_run(&mut self, engine: InstanceId, run: &TokenRun<'_>, now: Instant) -> bool {
        let RunKey {
            handle, attempt, ..
        } = run.key;
        let Some(placed) = self.current(engine, handle, attempt) else {
            return false;
        };
        let Ok(choice) = usize::try_from(run.key.choice) else {
            return false;
        };
        let Some(ids) = placed.relayed.log_ids(choice) else {
            // The choice has ended here.
            return true;
        };
        let new = match RunCheck::of(ids, run) {
            RunCheck::Continues(new) => new,
            RunCheck::Gap => {
                placed.has_gap = true;
                return false;
            }
            RunCheck::Diverged => {
                self.counters.diverged += 1;
                self.end(handle, End::Lost, now);
                return false;
            }
        };
        let top_n = run.top.len() / run.tokens.len();
        for (i, token) in run.tokens.iter().enumerate().skip(new) {
            let top = &run.top[i * top_n..][..top_n];
            if placed.relayed.append(choice, *token, top, now).is_err() {
                self.counters.diverged += 1;
                self.end(handle, End::Lost, now);
                return false;
            }
        }
        if new < run.tokens.len() {
            placed.crashes = 0;
            if !std::mem::replace(&mut placed.has_token, true) {
                let cached = placed.cached_tokens;
                self.placement.first_token(handle, cached, now);
            }
        }
        true
    }

    /// Marks updates whose tokens follow.
    fn begin_updates(&mut self, engine: InstanceId, progress: &RequestProgress, is_answer: bool) {
        let RequestProgress {
            handle, attempt, ..
        } = *progress;
        let Some(placed) = self.current(engine, handle, attempt) else {
            return;
        };
        placed.cached_tokens = progress.cached_tokens;
        // Tokens of an update that arrives without them are missing.
        placed.has_gap |= placed.begin_updates(progress.updates_applied) && !is_answer;
    }

    fn apply_progress(
        &mut self,
        engine: InstanceId,
        progress: &RequestProgress,
        is_whole: bool,
        now: Instant,
    ) {
        let RequestProgress {
            handle, attempt, ..
        } = *progress;
        let Some(placed) = self.current(engine, handle, attempt) else {
            return;
        };
        placed.orders.acknowledge(progress.orders_applied);
        let report = RelayedProgress {
            phase: progress.phase,
            prompt_done: progress.prompt_done,
            cached_tokens: progress.cached_tokens,
        };
        placed.relayed.apply_progress(report, now);
        if is_whole {
            (placed.has_gap, placed.read_at) = (false, None);
            placed.finish_updates(progress.updates_applied);
        }
    }

    /// Takes the vector of an embedding. A wrong one is dropped, and read again; an engine that answers with a wrong one
    /// loses the request.
    fn apply_vector(
        &mut self,
        engine: InstanceId,
        name: Attempt,
        vector: &[f32],
        is_answer: bool,
        now: Instant,
    ) {
        let Some(placed) = self.current(engine, name.handle, name.attempt) else {
            return;
        };
        let Err(why) = placed.relayed.set_vector(vector) else {
            return;
        };
        if self.counters.wrong_vectors == 0 {
            tracing::warn!(%engine, "a vector of an engine is dropped, as all further ones: {why:?}");
        }
        self.counters.wrong_vectors += 1;
        if is_answer {
            self.take_back(name.handle, true, now);
        }
    }

    fn apply_end(&mut self, engine: InstanceId, end: &ChoiceEnd, now: Instant) {
        let &ChoiceEnd {
            handle, attempt, ..
        } = end;
        let Some(placed) = self.current(engine, handle, attempt) else {
            return;
        };
        let Ok(choice) = usize::try_from(end.choice) else {
            return;
        };
        let Some(have) = placed.have(choice) else {
            return;
        };
        match have.cmp(&(end.len as usize)) {
            std::cmp::Ordering::Less => placed.has_gap = true,
            std::cmp::Ordering::Greater => {
                self.counters.diverged += 1;
                self.end(handle, End::Lost, now);
            }
            // Nobody here cancelled: the engine gave the request up.
            std::cmp::Ordering::Equal if is_given_up(end.end) => self.take_back(handle, false, now),
            // The vector is missing.
            std::cmp::Ordering::Equal
                if placed.relayed.lacks_vector() && matches!(end.end, End::Stop(_)) =>
            {
                placed.has_gap = true;
            }
            std::cmp::Ordering::Equal => {
                placed.relayed.finish(choice, end.end, now);
                if placed.relayed.has_ended() {
                    self.end(handle, end.end, now);
                }
            }
        }
    }
}

/// Whether another engine continues a request with this end.
fn is_given_up(end: End) -> bool {
    matches!(
        end,
        End::Lost | End::Cancelled | End::Failed(FailCode::Shutdown)
    )
}

impl RunCheck {
    /// Compares tokens with a choice's log.
    pub(super) fn of(ids: &[u32], run: &TokenRun<'_>) -> Self {
        let first = run.key.first as usize;
        let Some(known) = ids.len().checked_sub(first) else {
            return Self::Gap;
        };
        let known = known.min(run.tokens.len());
        let mut pairs = ids[first..].iter().zip(run.tokens);
        if pairs.all(|(id, token)| *id == token.id) {
            Self::Continues(known)
        } else {
            Self::Diverged
        }
    }
}

impl Relay {
    /// Requests with an update that is not in effect here and whose tokens the batch does not have for each open choice.
    /// These tokens are read instead.
    pub(super) fn without_all_of_an_update(&mut self, batch: &TokenBatch) -> BTreeSet<u64> {
        let engine = batch.engine();
        let mut lacking = BTreeSet::new();
        let mut continued = None;
        for progress in batch.progress() {
            let handle = progress.handle;
            let placed = self.current(engine, handle, progress.attempt);
            if placed.is_none_or(|placed| placed.updates_applied >= progress.updates_applied) {
                continue;
            }
            let continued = continued.get_or_insert_with(|| self.continued_choices(batch));
            if !self.are_all_open_in(handle, continued) {
                lacking.insert(handle);
            }
        }
        for handle in &lacking {
            if let Some(placed) = self.requests.get_mut(handle) {
                placed.has_gap = true;
            }
        }
        lacking
    }

    /// Choices of requests with tokens in the batch that continue their logs.
    fn continued_choices(&self, batch: &TokenBatch) -> BTreeSet<(u64, u32)> {
        let continues = batch.runs().filter(|run| {
            let placed = self.requests.get(&run.key.handle);
            let ids = placed.and_then(|placed| placed.relayed.log_ids(run.key.choice as usize));
            ids.is_some_and(|ids| matches!(RunCheck::of(ids, run), RunCheck::Continues(_)))
        });
        continues
            .map(|run| (run.key.handle, run.key.choice))
            .collect()
    }

    /// Whether each open choice of a request is among these. A choice without new tokens, whose reader rests, does not show
    /// whether earlier ones were lost.
    pub(super) fn are_all_open_in(&self, handle: u64, choices: &BTreeSet<(u64, u32)>) -> bool {
        let Some(placed) = self.requests.get(&handle) else {
            return false;
        };
        let mut all = 0..placed.relayed.choices();
        all.all(|choice| {
            placed.have(choice).is_none() || choices.contains(&(handle, choice as u32))
        })
    }
}
