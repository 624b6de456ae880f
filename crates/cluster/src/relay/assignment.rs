//! A request of a relay, where it runs, attempts that are given up, and its end.

use super::RelayConfig;
use super::core::Relay;
use super::outgoing::OrderQueue;
use crate::messages::{Attempt, Order, OrderKind, ReadEntry, Run, RunChoice};
use crate::names::InstanceId;
use engine::remote::RelayedRequest;
use engine::{RequestUpdate, Transition};
use std::collections::VecDeque;
use std::time::Instant;
use stream::{End, FailCode};

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At no engine.
    Waiting {
        /// The next offer to an engine is not before this time.
        retry_at: Instant,
    },
    /// Sent to an engine that has not answered.
    Sent { engine: InstanceId, at: Instant },
    /// On an engine.
    Running { engine: InstanceId },
}

/// A request with all that is needed to place it again.
pub(super) struct Assignment {
    /// Index among the relay's models.
    pub(super) model: usize,
    pub(super) relayed: RelayedRequest,
    pub(super) place: Place,
    /// Number of the current attempt; 0: none.
    pub(super) attempt: u32,
    /// Engines that died with the request since the last token.
    pub(super) crashes: u32,
    /// Engines that rejected the request since it was last placed.
    pub(super) excluded: Vec<InstanceId>,
    /// Since when no engine has the request; `None`: one has it, or there is nothing to compute.
    pub(super) unplaced_since: Option<Instant>,
    /// Updates in effect, merged, without their injected tokens.
    pub(super) in_effect: RequestUpdate,
    /// Updates that are not in effect.
    pub(super) pending: VecDeque<RequestUpdate>,
    /// Updates of those that this attempt got whose tokens may be in the logs, and updates in effect.
    pub(super) updates_begun: u32,
    pub(super) updates_applied: u32,
    /// Updates that the caller sees as begun and not as in effect.
    pub(super) updates_open: u32,
    /// Prompt tokens that the engine took from its prefix cache.
    pub(super) cached_tokens: u64,
    pub(super) orders: OrderQueue,
    /// Whether the engine has the request paused, as far as it was told.
    pub(super) paused_there: bool,
    /// By choice: accepted items that the engine has heard of.
    pub(super) credited: Vec<u64>,
    /// Whether this attempt gave a token.
    pub(super) has_token: bool,
    /// The engine that had the request last.
    pub(super) ran_on: Option<InstanceId>,
    pub(super) heard_at: Instant,
    pub(super) read_at: Option<Instant>,
    /// Whether tokens are known to be missing.
    pub(super) has_gap: bool,
}

impl Assignment {
    pub(super) fn new(model: usize, relayed: RelayedRequest, now: Instant) -> Self {
        Self {
            credited: vec![0; relayed.choices()],
            model,
            relayed,
            place: Place::Waiting { retry_at: now },
            unplaced_since: None,
            attempt: 0,
            crashes: 0,
            excluded: Vec::new(),
            in_effect: RequestUpdate::default(),
            pending: VecDeque::new(),
            updates_begun: 0,
            updates_applied: 0,
            updates_open: 0,
            cached_tokens: 0,
            orders: OrderQueue::default(),
            paused_there: false,
            has_token: false,
            ran_on: None,
            heard_at: now,
            read_at: None,
            has_gap: false,
        }
    }

    /// The engine that has the request, or may have it.
    pub(super) fn engine(&self) -> Option<InstanceId> {
        match self.place {
            Place::Waiting { .. } => None,
            Place::Sent { engine, .. } | Place::Running { engine } => Some(engine),
        }
    }

    /// Whether this engine's message about this attempt is about the current attempt.
    pub(super) fn is_current(&self, engine: InstanceId, attempt: u32) -> bool {
        self.attempt == attempt && self.engine() == Some(engine)
    }

    /// Items of a choice's log; `None`: the choice has ended.
    pub(super) fn have(&self, choice: usize) -> Option<usize> {
        self.relayed.log_ids(choice).map(<[u32]>::len)
    }

    /// A message of the current attempt arrived.
    pub(super) fn hear(&mut self, engine: InstanceId, now: Instant) {
        self.heard_at = now;
        self.place = Place::Running { engine };
        let before = self.ran_on.replace(engine);
        if before.is_some_and(|before| before != engine) {
            self.relayed.notify(Transition::Moved, now);
        }
    }

    /// Begins the next attempt and returns the message for the engine.
    pub(super) fn begin_attempt(&mut self, engine: InstanceId, handle: u64, now: Instant) -> Run {
        self.attempt += 1;
        self.place = Place::Sent { engine, at: now };
        self.orders = OrderQueue::default();
        for update in &self.pending {
            self.orders
                .push(OrderKind::Update(Box::new(update.clone())));
        }
        (self.updates_begun, self.updates_applied) = (0, 0);
        self.paused_there = false;
        self.has_token = false;
        self.heard_at = now;
        self.read_at = None;
        self.has_gap = false;
        let choices =
            (0..self.relayed.choices()).map(|choice| match self.relayed.log_ids(choice) {
                Some(ids) => RunChoice {
                    ids: ids.to_vec(),
                    has_ended: false,
                },
                None => RunChoice {
                    ids: Vec::new(),
                    has_ended: true,
                },
            });
        let choices: Vec<_> = choices.collect();
        for (credited, choice) in self.credited.iter_mut().zip(&choices) {
            // The tokens so far count as accepted.
            *credited = choice.ids.len() as u64;
        }
        self.relayed.note_placed();
        let updates = if self.in_effect == RequestUpdate::default() {
            Vec::new()
        } else {
            vec![self.in_effect.clone()]
        };
        let millis =
            |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let deadline = self.relayed.deadline();
        Run {
            handle,
            attempt: self.attempt,
            request: self.relayed.record().to_vec(),
            choices,
            updates,
            deadline_ms: deadline.map(|at| millis(at.saturating_duration_since(now))),
            age_ms: millis(self.relayed.age(now)),
            is_paused: false,
            ..Run::default()
        }
    }

    /// Takes the request back from its engine. Returns false when too many engines died with it.
    pub(super) fn take_back(&mut self, is_crash: bool, config: &RelayConfig, now: Instant) -> bool {
        if is_crash {
            self.crashes += 1;
        }
        if let Some(engine) = self.engine() {
            self.excluded.push(engine);
        }
        match self.place {
            Place::Running { .. } => self.unplaced_since = None,
            // An engine that does not answer takes up to `reply_wait`, and others are to be asked after it.
            Place::Sent { at, .. } => {
                let asked = now.saturating_duration_since(at);
                self.unplaced_since = self.unplaced_since.map(|since| since + asked);
            }
            Place::Waiting { .. } => {}
        }
        self.place = Place::Waiting { retry_at: now };
        self.relayed.note_unplaced();
        self.crashes < config.crashes_max
    }

    /// The tokens of the attempt's updates up to this number follow. Returns whether there is a new one.
    pub(super) fn begin_updates(&mut self, count: u32) -> bool {
        let pending = u32::try_from(self.pending.len()).unwrap_or(u32::MAX);
        let count = count.min(self.updates_applied.saturating_add(pending));
        let is_new = count > self.updates_begun;
        self.updates_begun = self.updates_begun.max(count);
        while self.updates_open < self.updates_begun - self.updates_applied {
            self.updates_open += 1;
            self.relayed.begin_update();
        }
        is_new
    }

    /// The attempt's updates up to this number are in effect: their tokens are in the logs.
    pub(super) fn finish_updates(&mut self, count: u32) {
        while self.updates_applied < self.updates_begun.min(count) {
            self.finish_update();
        }
    }

    fn finish_update(&mut self) {
        self.updates_applied += 1;
        self.updates_open -= 1;
        self.relayed.finish_update();
        if let Some(update) = self.pending.pop_front() {
            self.in_effect.override_with(&update);
        }
    }

    /// Queues what the caller changed since the last time.
    pub(super) fn queue_orders(&mut self) {
        // A request goes on when there is a permit again.
        let waits = self.relayed.waits_for_permit();
        let paused = self.relayed.is_paused() || self.paused_there && waits;
        if self.paused_there != paused {
            self.paused_there = paused;
            let kind = if paused {
                OrderKind::Pause
            } else {
                OrderKind::Resume
            };
            self.orders.push(kind);
        }
    }

    /// The entry of a read request, where tokens are missing or nothing was heard for a while.
    pub(super) fn due_read(
        &mut self,
        handle: u64,
        config: &RelayConfig,
        now: Instant,
    ) -> Option<ReadEntry> {
        let Place::Running { .. } = self.place else {
            return None;
        };
        let since = |at: Instant| now.saturating_duration_since(at);
        let is_silent = since(self.heard_at) >= config.silence;
        let may_read = self
            .read_at
            .is_none_or(|at| since(at) >= config.read_repeat);
        if !(self.has_gap || is_silent) || !may_read {
            return None;
        }
        self.read_at = Some(now);
        // The engine may be waiting for credit that was lost.
        self.credited.fill(0);
        let have = (0..self.relayed.choices()).map(|choice| match self.have(choice) {
            Some(have) => u32::try_from(have).unwrap_or(u32::MAX),
            None => u32::MAX,
        });
        Some(ReadEntry {
            handle,
            attempt: self.attempt,
            have: have.collect(),
        })
    }

    /// Names the current attempt.
    pub(super) fn name(&self, handle: u64) -> Attempt {
        Attempt {
            handle,
            attempt: self.attempt,
        }
    }
}

/// Attempts to forget between two polls. An engine is not ordered to forget further ones before it reports them again.
pub(super) const FORGOTTEN_MAX: usize = 1 << 14;

impl Relay {
    /// Takes a request back from its engine, for the next attempt.
    pub(super) fn take_back(&mut self, handle: u64, is_crash: bool, now: Instant) {
        let Some(placed) = self.requests.get_mut(&handle) else {
            return;
        };
        let given_up = placed.engine().map(|engine| (engine, placed.name(handle)));
        let may_retry = placed.take_back(is_crash, &self.config, now);
        if let Some((engine, name)) = given_up {
            self.forget(engine, name);
        }
        self.counters.resubmitted += 1;
        self.placement.ended(handle, &[], now);
        if !may_retry {
            self.end(handle, End::Failed(FailCode::CrashedEngines), now);
        }
    }

    /// Ends all open choices of a request, and the request on its engine.
    pub(super) fn end(&mut self, handle: u64, end: End, now: Instant) {
        let Some(mut placed) = self.requests.remove(&handle) else {
            return;
        };
        self.handles.remove(&(placed.model, placed.relayed.id()));
        self.placement.ended(handle, &[], now);
        if let Some(engine) = placed.engine() {
            self.forget(engine, placed.name(handle));
        }
        placed.relayed.finish_all(end, now);
    }

    /// Orders an engine to forget an attempt, once: an engine that does not get the order reports the attempt again
    /// ([`crate::executor::REPORT_AFTER`]), and is ordered again.
    pub(super) fn forget(&mut self, engine: InstanceId, attempt: Attempt) {
        if self.forgotten.len() < FORGOTTEN_MAX {
            self.forgotten.insert((engine, attempt));
        }
    }

    pub(super) fn collect_forgotten(&mut self) {
        for (engine, attempt) in std::mem::take(&mut self.forgotten) {
            let order = Order {
                handle: attempt.handle,
                attempt: attempt.attempt,
                sequence: 0,
                kind: OrderKind::Forget,
            };
            self.orders.entry(engine).or_default().push(order);
        }
    }
}
