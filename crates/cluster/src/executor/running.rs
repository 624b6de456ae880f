//! One attempt of a request: its generation, what was sent of it, and the orders that were applied.

use super::attempt_parts::{AttemptRequest, AttemptUpdates, SentChoice};
use super::outgoing::{CopyBuffers, LogItems, Outgoing, bytes_of, bytes_of_vector};
use super::shared_generation::SharedGeneration;
use crate::messages::{
    Attempt, ChoiceEnd, Order, OrderKind, RequestProgress, RunChoice, RunKey, TokenBatch,
};
use engine::{Phase, Progress, RequestUpdate};
use generate::output::choice_reader::LogReaders;
use generate::stream_source::StartedGeneration;
use std::sync::Arc;
use stream::End;

/// A submitted attempt. The drop ends its choices.
pub struct RunningAttempt {
    pub(super) attempt: Attempt,
    pub(super) work: Arc<SharedGeneration>,
    /// Requests of the engine that compute the choices.
    pub(super) requests: Vec<usize>,
    /// By choice. Without readers the engine ends a choice.
    pub(super) readers: Vec<Option<LogReaders>>,
    pub(super) choices: Vec<SentChoice>,
    pub(super) request: AttemptRequest,
    pub(super) updates: AttemptUpdates,
    pub(super) orders_applied: u32,
    /// Whether the gateway has paused the attempt.
    pub(super) is_paused: bool,
    /// Whether the attempt waits for another gateway.
    pub(super) is_orphaned: bool,
    /// Progress that was sent last.
    pub(super) sent: RequestProgress,
}

impl RunningAttempt {
    pub(super) fn new(
        attempt: Attempt,
        (generation, readers): (StartedGeneration, Vec<LogReaders>),
        given: &[RunChoice],
        request: AttemptRequest,
        (merged, is_paused): (RequestUpdate, bool),
    ) -> Self {
        let choices = given.iter().enumerate().map(|(log, choice)| {
            let given = u32::try_from(choice.ids.len()).unwrap_or(u32::MAX);
            SentChoice {
                log,
                is_given_end: choice.has_ended,
                ..SentChoice::from_index(given)
            }
        });
        let choices = choices.map(|choice| SentChoice {
            is_end_sent: choice.is_given_end,
            ..choice
        });
        let work = Arc::new(SharedGeneration::new(generation));
        Self {
            attempt,
            requests: work.requests_of(|_| true),
            work,
            readers: readers.into_iter().map(Some).collect(),
            choices: choices.collect(),
            request,
            updates: AttemptUpdates {
                merged,
                ..AttemptUpdates::default()
            },
            orders_applied: 0,
            is_paused,
            is_orphaned: false,
            sent: queued(attempt),
        }
    }

    /// Whether every choice's end was sent.
    pub(super) fn is_sent(&self) -> bool {
        self.choices.iter().all(|choice| choice.is_end_sent)
    }

    /// Whether orders were applied since progress was sent last.
    pub(super) fn has_unreported_orders(&self) -> bool {
        self.orders_applied != self.sent.orders_applied
    }

    /// Adds what is new to the message: tokens, ends and progress together, where a message has room for them. Returns
    /// whether there was something, or progress was to be repeated.
    pub(super) fn send_news(&mut self, outgoing: &mut Outgoing<'_>, repeats: bool) -> bool {
        let progress = self.find_news();
        let unsent = |choice: &SentChoice| (choice.ready - choice.sent) as usize;
        let tokens: usize = self.choices.iter().map(unsent).sum();
        let has_end = self.choices.iter().any(|c| c.ready_end.is_some());
        if tokens == 0 && !has_end && progress == self.sent && !repeats {
            return false;
        }
        let entries = 1 + self.choices.len() * 2 + tokens.div_ceil(64);
        let vector = self.request.vector().filter(|_| has_end);
        let bytes = bytes_of(entries, tokens, self.request.top_n);
        outgoing.make_room(bytes + vector.map_or(0, bytes_of_vector));
        if let Some(vector) = vector {
            outgoing.push_vector(self.attempt, vector);
        }
        for number in 0..self.choices.len() {
            let choice = self.choices[number];
            outgoing.push_items(self.items(number, choice.sent, choice.ready));
            self.choices[number].sent = choice.ready;
            if let Some(end) = choice.ready_end {
                outgoing.push_end(self.end_entry(number, choice.ready, end));
                self.choices[number].is_end_sent = true;
            }
        }
        outgoing.push_progress(progress);
        self.sent = progress;
        true
    }

    /// Adds what was sent after the items that arrived, as far as there is room, but for `reserve` bytes.
    pub(super) fn send_again(
        &self,
        have: &[u32],
        batch: &mut TokenBatch,
        buffers: &mut CopyBuffers,
        reserve: usize,
    ) {
        for (number, choice) in self.choices.iter().enumerate() {
            if choice.is_given_end {
                continue;
            }
            let have = have.get(number).map_or(0, |&have| have);
            let items = self.items(number, have.max(choice.given), choice.sent);
            let reached = buffers.push_items(batch, &items, reserve);
            let end = self.work.log(choice.log).tokens.end();
            let end = end.filter(|_| choice.is_end_sent && reached >= choice.sent);
            let vector = self.request.vector().filter(|_| end.is_some());
            let has_room = vector.is_none_or(|vector| {
                let is_free = batch.bytes_left() >= bytes_of_vector(vector) + reserve;
                is_free && batch.push_vector(self.attempt, vector).is_ok()
            });
            if let Some(end) = end.filter(|_| has_room) {
                // Without room the gateway reads again.
                let _ = batch.push_end(self.end_entry(number, choice.sent, end));
            }
        }
        let _ = batch.push_progress(self.sent);
    }

    /// Applies an order; a repeated one, or one after a gap, has no effect.
    pub(super) fn apply(&mut self, order: &Order) {
        if let OrderKind::Credit { choice, accepted } = order.kind {
            if let Some(choice) = self.choices.get_mut(choice as usize) {
                choice.credit = choice.credit.max(accepted.into());
            }
            return self.grant_credit();
        }
        if Some(order.sequence) != self.orders_applied.checked_add(1) {
            return;
        }
        match &order.kind {
            OrderKind::Cancel => self.cancel(),
            OrderKind::Pause => self.is_paused = true,
            OrderKind::Resume => self.is_paused = false,
            OrderKind::Update(update) if !self.update(update) => return,
            OrderKind::Update(_) | OrderKind::Credit { .. } | OrderKind::Forget => {}
        }
        self.pause_as_ordered();
        self.orders_applied = order.sequence;
    }

    fn cancel(&mut self) {
        match self.is_shared() {
            false => self.requests.iter().for_each(|&at| self.work.cancel(at)),
            true => self.readers.iter_mut().for_each(|reader| *reader = None),
        }
    }

    /// Whether the engine's requests may compute choices of other attempts.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.work) > 1
    }

    /// Pauses the engine's requests while the gateway has them paused, or is gone.
    pub(super) fn pause_as_ordered(&self) {
        let is_paused = self.is_paused || self.is_orphaned;
        let requests = self.requests.iter();
        requests.for_each(|&at| self.work.set_paused(at, is_paused));
    }

    /// Returns false if the engine has no room for the update: the gateway repeats the order.
    fn update(&mut self, update: &RequestUpdate) -> bool {
        let updates = &mut self.updates;
        let number = updates.before + updates.ordered + 1;
        let mut requests = self.requests.iter();
        if !requests.all(|&at| self.work.update(at, number, update)) {
            return false;
        }
        updates.ordered += 1;
        updates.merged.override_with(update);
        updates.has_injected |= !update.inject.is_empty();
        true
    }

    fn grant_credit(&self) {
        for choice in self.choices.iter().filter(|choice| !choice.is_given_end) {
            let log = &self.work.log(choice.log).tokens;
            if choice.credit > log.accepted() {
                log.accept(choice.credit);
            }
        }
    }

    /// Finds what can be sent of each choice, and the progress that belongs to it.
    ///
    /// The injected tokens of an update are sent together with the progress that counts it: the count is read first, then
    /// the length, then the number of updates that had begun.
    fn find_news(&mut self) -> RequestProgress {
        self.grant_credit();
        let before = u64::from(self.updates.before);
        let in_effect = self.updates_in_effect().max(before);
        for number in 0..self.choices.len() {
            let choice = &mut self.choices[number];
            let log = &self.work.log(choice.log).tokens;
            let (end, len) = (log.end(), log.len());
            let begun = self.work.progress_of(choice.log);
            let begun = begun.map_or(0, Progress::updates_begun);
            choice.ready = choice.sent;
            choice.ready_end = None;
            if begun <= in_effect && !choice.is_end_sent {
                choice.ready = u32::try_from(len).unwrap_or(u32::MAX).max(choice.sent);
                choice.ready_end = end;
            }
        }
        RequestProgress {
            phase: self.phase(),
            prompt_done: self.most(Progress::prompt_done),
            cached_tokens: self.most(Progress::cached_tokens),
            updates_applied: u32::try_from(in_effect - before).unwrap_or(u32::MAX),
            orders_applied: self.orders_applied,
            ..self.sent
        }
    }

    /// Updates that are in effect for all open choices, those before the attempt included.
    pub(super) fn updates_in_effect(&self) -> u64 {
        let applied = |at: usize| self.work.request(at).progress.updates_applied();
        let is_open = |at: &usize| {
            let mut choices = self.work.request(*at).choices.clone();
            choices.any(|number| self.work.log(number).tokens.end().is_none())
        };
        let requests = || self.requests.iter().copied();
        let least = requests().filter(is_open).map(applied).min();
        least.unwrap_or_else(|| requests().map(applied).max().unwrap_or(0))
    }

    /// The phase of all engine requests together.
    fn phase(&self) -> Phase {
        const ORDER: [Phase; 5] = [
            Phase::Running,
            Phase::Prefilling,
            Phase::Parked,
            Phase::Paused,
            Phase::Queued,
        ];
        let phase_of = |at: usize| self.work.request(at).progress.phase();
        let has = |phase| self.requests.iter().any(|&at| phase_of(at) == phase);
        let first = ORDER.into_iter().find(|&phase| has(phase));
        first.unwrap_or(Phase::Ended)
    }

    fn most(&self, count: impl Fn(&Progress) -> u64) -> u64 {
        let requests = self.requests.iter();
        let counts = requests.map(|&at| count(&self.work.request(at).progress));
        counts.max().unwrap_or(0)
    }

    fn items(&self, number: usize, from: u32, to: u32) -> LogItems<'_> {
        LogItems {
            log: self.work.log(self.choices[number].log),
            top_n: self.request.top_n,
            key: RunKey {
                handle: self.attempt.handle,
                attempt: self.attempt.attempt,
                choice: u32::try_from(number).unwrap_or(u32::MAX),
                first: from,
            },
            to,
        }
    }

    fn end_entry(&self, number: usize, len: u32, end: End) -> ChoiceEnd {
        ChoiceEnd {
            handle: self.attempt.handle,
            attempt: self.attempt.attempt,
            choice: u32::try_from(number).unwrap_or(u32::MAX),
            len,
            end,
        }
    }
}

/// Progress of an attempt that is not submitted yet.
pub(super) fn queued(attempt: Attempt) -> RequestProgress {
    RequestProgress {
        handle: attempt.handle,
        attempt: attempt.attempt,
        phase: Phase::Queued,
        prompt_done: 0,
        cached_tokens: 0,
        updates_applied: 0,
        orders_applied: 0,
    }
}
