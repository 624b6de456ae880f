//! One attempt of a request: its generation, what was sent of it, and the orders that were applied.

use super::given_images::ImageShare;
use super::outgoing::{CopyBuffers, LogItems, Outgoing, bytes_of, bytes_of_vector};
use crate::messages::{
    Attempt, ChoiceEnd, Order, OrderKind, RequestProgress, RunChoice, RunKey, TokenBatch,
};
use engine::{Handle, Phase, Progress, RequestId, RequestUpdate, UpdateRejected};
use generate::embedding::EmbeddingVector;
use generate::output::choice_reader::LogReaders;
use generate::stream_source::{StartedGeneration, Submitted};
use stream::End;

/// A submitted attempt. The drop cancels its requests.
pub struct RunningAttempt {
    attempt: Attempt,
    work: StartedGeneration,
    /// Without readers the engine would end the choices.
    _readers: Vec<LogReaders>,
    choices: Vec<SentChoice>,
    outputs: AttemptOutputs,
    /// Updates that all requests of the engine got.
    updates: u32,
    /// By request of the engine: updates that the request got.
    updates_given: Vec<u32>,
    orders_applied: u32,
    /// Progress that was sent last.
    sent: RequestProgress,
    /// The share of memory of the request's images.
    share: Option<ImageShare>,
}

/// Parts of an attempt's messages besides tokens.
pub(super) struct AttemptOutputs {
    /// Alternatives of each token.
    pub(super) top_n: usize,
    /// Where the vector of an embedding is before the log ends; `None`: the request is for tokens.
    pub(super) vector: Option<EmbeddingVector>,
}

impl AttemptOutputs {
    /// The vector that is sent with the end; `None`: there is none.
    fn vector(&self) -> Option<&[f32]> {
        self.vector.as_ref()?.get().map(|vector| &**vector)
    }
}

/// Part of one choice that the gateway has, and what it gets next.
#[derive(Clone, Copy, Default)]
struct SentChoice {
    /// Items of the log that the gateway gave.
    given: u32,
    /// Whether the gateway gave the end: nothing is sent.
    is_given_end: bool,
    /// Items of the log that the gateway gave or that were sent.
    sent: u32,
    /// Whether the gateway gave the end, or it was sent.
    is_end_sent: bool,
    /// Items of the log that the gateway accepted; may be more than there are.
    credit: u64,
    /// Items of the log that can be sent.
    ready: u32,
    /// The end, if it can be sent.
    ready_end: Option<End>,
}

impl RunningAttempt {
    pub(super) fn new(
        attempt: Attempt,
        (generation, readers): (StartedGeneration, Vec<LogReaders>),
        given: &[RunChoice],
        outputs: AttemptOutputs,
    ) -> Self {
        let choices = given.iter().map(|choice| {
            let given = u32::try_from(choice.ids.len()).unwrap_or(u32::MAX);
            SentChoice {
                given,
                is_given_end: choice.has_ended,
                sent: given,
                is_end_sent: choice.has_ended,
                ..SentChoice::default()
            }
        });
        Self {
            attempt,
            _readers: readers,
            choices: choices.collect(),
            outputs,
            updates: 0,
            updates_given: vec![0; generation.requests.len()],
            orders_applied: 0,
            sent: queued(attempt),
            work: generation,
            share: None,
        }
    }

    /// The attempt with the share of memory of its images.
    pub(super) fn holding(mut self, share: Option<ImageShare>) -> Self {
        self.share = share;
        self
    }

    /// Returns the share of memory of the images: the attempt has ended.
    pub(super) fn release_images(&mut self) {
        self.share = None;
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
        let vector = self.outputs.vector().filter(|_| has_end);
        let bytes = bytes_of(entries, tokens, self.outputs.top_n);
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
            let end = self.work.choices[number].tokens.end();
            let end = end.filter(|_| choice.is_end_sent && reached >= choice.sent);
            let vector = self.outputs.vector().filter(|_| end.is_some());
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
            OrderKind::Pause => self.each_request(Handle::pause),
            OrderKind::Resume => self.each_request(Handle::resume),
            OrderKind::Update(update) if !self.update(update) => return,
            OrderKind::Update(_) | OrderKind::Credit { .. } | OrderKind::Forget => {}
        }
        self.orders_applied = order.sequence;
    }

    fn cancel(&self) {
        self.each_request(Handle::cancel);
    }

    fn each_request(&self, change: impl Fn(&Handle, RequestId)) {
        let requests = self.work.requests.iter();
        requests.for_each(|request| change(&self.work.engine, request.id));
    }

    /// Returns false if the engine has no room for the update: the gateway repeats the order, and requests that have the
    /// update get it no second time.
    fn update(&mut self, update: &RequestUpdate) -> bool {
        let requests = self.work.requests.iter().zip(&mut self.updates_given);
        for (request, given) in requests.filter(|(_, given)| **given == self.updates) {
            match self.work.engine.update(request.id, update.clone()) {
                Err(UpdateRejected::Full) => return false,
                Err(why) => tracing::warn!("a control update of a gateway is not applied: {why:?}"),
                Ok(()) => {}
            }
            *given += 1;
        }
        self.updates += 1;
        true
    }

    fn grant_credit(&self) {
        for (choice, log) in self.choices.iter().zip(&self.work.choices) {
            if !choice.is_given_end && choice.credit > log.tokens.accepted() {
                log.tokens.accept(choice.credit);
            }
        }
    }

    /// Finds what can be sent of each choice, and the progress that belongs to it.
    ///
    /// The injected tokens of an update are sent together with the progress that counts it: the count is read first, then
    /// the length, then the number of updates that had begun.
    fn find_news(&mut self) -> RequestProgress {
        self.grant_credit();
        let in_effect = self.updates_in_effect();
        for number in 0..self.choices.len() {
            let choice = &mut self.choices[number];
            let log = &self.work.choices[number].tokens;
            let (end, len) = (log.end(), log.len());
            // A choice that had ended has no request.
            let mut requests = self.work.requests.iter();
            let request = requests.find(|request| request.choices.contains(&number));
            let begun = request.map_or(0, |request| request.progress.updates_begun());
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
            updates_applied: u32::try_from(in_effect).unwrap_or(u32::MAX),
            orders_applied: self.orders_applied,
            ..self.sent
        }
    }

    /// Updates that are in effect for all open choices.
    fn updates_in_effect(&self) -> u64 {
        let applied = |request: &Submitted| request.progress.updates_applied();
        let is_open = |request: &&Submitted| {
            let mut choices = request.choices.clone();
            choices.any(|number| self.work.choices[number].tokens.end().is_none())
        };
        let requests = || self.work.requests.iter();
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
        let requests = &self.work.requests;
        let has = |phase| requests.iter().any(|r| r.progress.phase() == phase);
        let first = ORDER.into_iter().find(|&phase| has(phase));
        first.unwrap_or(Phase::Ended)
    }

    fn most(&self, count: impl Fn(&Progress) -> u64) -> u64 {
        let requests = self.work.requests.iter();
        let counts = requests.map(|request| count(&request.progress));
        counts.max().unwrap_or(0)
    }

    fn items(&self, number: usize, from: u32, to: u32) -> LogItems<'_> {
        LogItems {
            log: &self.work.choices[number],
            top_n: self.outputs.top_n,
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

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        self.cancel();
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
