//! Polls, orders and reads of requests, with the relay's times, bounds and counts.

use super::assignment::{Assignment, Place};
use super::driver::{ModelSlots, RelayedModel};
use super::placing::{Engines, ModelEngines, unfit_engines};
use crate::messages::{Attempt, Order, OrderKind, ReadEntry, ReadRequest, Run};
use crate::names::InstanceId;
use crate::placement::{Placement, PlacementConfig, PlacementPolicy};
use engine::remote::{RelayedRequest, RemoteFiles};
use engine::{Phase, RequestId, RequestUpdate};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{Clock, End, FailCode};

/// Messages that the driver is to send.
#[derive(Debug)]
pub enum Action {
    /// Send a request to an engine, and pass the answer to [`Relay::on_submitted`].
    Submit {
        /// The engine.
        engine: InstanceId,
        /// The request.
        run: Box<Run>,
        /// Files that the engine has to have before the request.
        files: Option<Arc<RemoteFiles>>,
    },
    /// Send orders.
    Order {
        /// The engine.
        engine: InstanceId,
        /// At most [`crate::messages::ORDERS_MAX`].
        orders: Vec<Order>,
    },
    /// Ask for missing tokens, and pass the answer to [`Relay::on_tokens`].
    Read {
        /// The engine.
        engine: InstanceId,
        /// At most [`crate::messages::READS_MAX`] requests.
        request: ReadRequest,
    },
}

/// Requests of one gateway on engines of other processes.
pub struct Relay {
    pub(super) gateway: InstanceId,
    pub(super) config: RelayConfig,
    pub(super) placement: Placement,
    pub(super) models: ModelSlots,
    pub(super) requests: BTreeMap<u64, Assignment>,
    pub(super) handles: HashMap<(usize, RequestId), u64>,
    last_handle: u64,
    pub(super) engines: Engines,
    /// `None`: disconnected.
    pub(super) connected_at: Option<Instant>,
    /// Attempts that engines are to forget, at most [`super::assignment::FORGOTTEN_MAX`].
    pub(super) forgotten: BTreeSet<(InstanceId, Attempt)>,
    credit_at: Option<Instant>,
    pub(super) counters: RelayCounters,
    pub(super) actions: Vec<Action>,
    /// Scratch.
    pub(super) orders: BTreeMap<InstanceId, Vec<Order>>,
    pub(super) reads: BTreeMap<InstanceId, Vec<ReadEntry>>,
    taken: Vec<RelayedRequest>,
    updates: Vec<(RequestId, RequestUpdate)>,
}

impl Relay {
    /// A relay without requests and without a connection.
    pub fn new(gateway: InstanceId, config: RelayConfig, models: Vec<RelayedModel>) -> Self {
        let placement = PlacementConfig {
            policy: config.placement,
            ..PlacementConfig::default()
        };
        let mut relay = Self {
            gateway,
            config,
            placement: Placement::new(placement),
            models: ModelSlots::default(),
            requests: BTreeMap::new(),
            handles: HashMap::new(),
            last_handle: 0,
            engines: Engines::default(),
            connected_at: None,
            forgotten: BTreeSet::new(),
            credit_at: None,
            counters: RelayCounters::default(),
            actions: Vec::new(),
            orders: BTreeMap::new(),
            reads: BTreeMap::new(),
            taken: Vec::new(),
            updates: Vec::new(),
        };
        models.into_iter().for_each(|model| relay.add_model(model));
        relay
    }

    /// Takes requests of a further model. Its engines are those of the next [`Relay::set_engines`].
    pub fn add_model(&mut self, model: RelayedModel) {
        let requests = &self.requests;
        let is_used = |index| requests.values().any(|placed| placed.model == index);
        let index = self.models.add(model, is_used);
        let engines = index.and_then(|index| self.engines.models.get_mut(index));
        if let Some(engines) = engines {
            *engines = ModelEngines::default();
        }
    }

    /// The models, in the order of [`Engines::models`].
    pub fn models(&self) -> impl Iterator<Item = &RelayedModel> {
        self.models.models()
    }

    /// Requests that have not ended.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether there is nothing more to do: no requests, and no handle that could submit one.
    pub fn is_closed(&self) -> bool {
        self.requests.is_empty() && self.forgotten.is_empty() && self.models.are_closed()
    }

    /// Counts since the start.
    pub fn counters(&self) -> RelayCounters {
        self.counters
    }

    /// Whether [`Relay::poll`] has to be called again soon even if nothing happens.
    pub fn needs_ticks(&self) -> bool {
        !self.requests.is_empty() || !self.forgotten.is_empty()
    }

    /// The connection to other instances was made or lost.
    pub fn set_connected(&mut self, is_connected: bool, now: Instant) {
        match (is_connected, self.connected_at) {
            (true, None) => self.connected_at = Some(now),
            (false, Some(_)) => self.connected_at = None,
            _ => return,
        }
        for placed in self.requests.values_mut() {
            // What was published in between is missing, and a read in between has no answer.
            (placed.has_gap, placed.read_at, placed.heard_at) = (true, None, now);
        }
    }

    /// Replaces what is known of the engines.
    pub fn set_engines(&mut self, engines: Engines) {
        for &id in self.engines.alive.difference(&engines.alive) {
            self.placement.engine_gone(id);
        }
        self.engines = engines;
    }

    /// Takes new requests and changes from the handles, and decides what is to be sent. Returns the actions.
    pub fn poll(&mut self, now: Instant) -> Vec<Action> {
        self.take_new(now);
        self.take_updates();
        let credit_due = self.is_credit_due(now);
        let handles: Vec<u64> = self.requests.keys().copied().collect();
        for handle in handles {
            self.end_or_take_back(handle, now);
            self.place(handle, now);
            self.collect_messages(handle, credit_due, now);
        }
        self.publish_counts();
        self.collect_forgotten();
        self.pack_messages();
        std::mem::take(&mut self.actions)
    }

    fn take_new(&mut self, now: Instant) {
        for (index, slot) in self.models.0.iter_mut().enumerate() {
            let is_open = slot.model.inbox.take_requests(&mut self.taken, now);
            slot.is_closed = !is_open;
            for relayed in self.taken.drain(..) {
                self.last_handle += 1;
                let key = (index, relayed.id());
                self.handles.insert(key, self.last_handle);
                let placed = Assignment::new(index, relayed, now);
                self.requests.insert(self.last_handle, placed);
            }
        }
    }

    fn take_updates(&mut self) {
        for (index, model) in self.models.models().enumerate() {
            model.inbox.take_updates(&mut self.updates);
            for (id, update) in self.updates.drain(..) {
                let handle = self.handles.get(&(index, id));
                if let Some(placed) = handle.and_then(|handle| self.requests.get_mut(handle)) {
                    let order = OrderKind::Update(Box::new(update.clone()));
                    placed.pending.push_back(update);
                    placed.orders.push(order);
                }
            }
        }
    }

    fn is_credit_due(&mut self, now: Instant) -> bool {
        let due = |at: Instant| now.saturating_duration_since(at) >= self.config.credit_every;
        let is_due = self.credit_at.is_none_or(due);
        if is_due {
            self.credit_at = Some(now);
        }
        is_due
    }

    /// Ends a request that was cancelled or is late; takes one back from an engine that is gone.
    fn end_or_take_back(&mut self, handle: u64, now: Instant) {
        let Some(placed) = self.requests.get_mut(&handle) else {
            return;
        };
        let end = if placed.relayed.is_cancelled() {
            Some(End::Cancelled)
        } else {
            placed.relayed.expired(now)
        };
        if let Some(end) = end {
            self.end(handle, end, now);
            return;
        }
        placed.relayed.finish_abandoned(now);
        placed.relayed.finish_stalled(now);
        if placed.relayed.has_ended() {
            self.end(handle, End::TimedOut(Clock::Reader), now);
            return;
        }
        let since = |at: Instant| now.saturating_duration_since(at);
        let Some(connected_at) = self.connected_at else {
            return;
        };
        let config = &self.config;
        match placed.place {
            Place::Waiting { .. }
                if placed
                    .unplaced_since
                    .is_some_and(|at| since(at) >= config.unplaced_max) =>
            {
                let model = &self.models.0[placed.model].model;
                let engines = self.engines.models.get(placed.model);
                let has_engines = engines.is_some_and(|engines| {
                    engines.loads.len() > unfit_engines(placed, model, engines).len()
                });
                let end = match placed.relayed.phase() {
                    Phase::Queued if has_engines => End::TimedOut(Clock::Queue),
                    _ => End::Failed(FailCode::NoEngine),
                };
                self.end(handle, end, now);
            }
            Place::Waiting { .. } => {}
            Place::Sent { engine, at } => {
                let wait = match placed.relayed.files() {
                    Some(_) => config.files_wait,
                    None => config.reply_wait,
                };
                let is_dead = self.is_dead(engine, connected_at, now);
                if is_dead || since(at) >= wait {
                    self.take_back(handle, false, now);
                }
            }
            Place::Running { engine } => {
                let is_silent = since(placed.heard_at) >= config.silence_max;
                let is_dead = self.is_dead(engine, connected_at, now);
                if is_dead || is_silent {
                    self.take_back(handle, is_dead, now);
                }
            }
        }
    }

    fn is_dead(&self, engine: InstanceId, connected_at: Instant, now: Instant) -> bool {
        let connected = now.saturating_duration_since(connected_at);
        connected >= self.config.reconnect_grace && !self.engines.alive.contains(&engine)
    }
}

/// Times and bounds of a relay.
#[derive(Clone, Copy, Debug)]
pub struct RelayConfig {
    /// Which engine gets a request.
    pub placement: PlacementPolicy,
    /// Time between two credit orders of a gateway.
    pub credit_every: Duration,
    /// Time after which an order that was not acknowledged is sent again.
    pub order_repeat: Duration,
    /// A request of which nothing was heard for this time is read.
    pub silence: Duration,
    /// Time after which an unanswered read is sent again.
    pub read_repeat: Duration,
    /// An engine that answered no read of a request for this time has lost the request.
    pub silence_max: Duration,
    /// Time for the answer to a request that was sent.
    pub reply_wait: Duration,
    /// Time for that of a request with files, which are sent before it, and decoded.
    pub files_wait: Duration,
    /// Pause before a request that all engines rejected is offered again.
    pub retry: Duration,
    /// Time that a request waits for an engine before the first token, or after an engine's death.
    pub unplaced_max: Duration,
    /// Time after a reconnection in which no engine counts as dead.
    pub reconnect_grace: Duration,
    /// Engines that may die with a request, without a token in between, before the request fails.
    pub crashes_max: u32,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            placement: PlacementPolicy::default(),
            credit_every: Duration::from_millis(20),
            order_repeat: Duration::from_millis(200),
            silence: Duration::from_millis(500),
            read_repeat: Duration::from_secs(1),
            silence_max: Duration::from_secs(6),
            reply_wait: Duration::from_secs(10),
            files_wait: Duration::from_secs(90),
            retry: Duration::from_millis(100),
            unplaced_max: Duration::from_secs(60),
            reconnect_grace: Duration::from_secs(2),
            crashes_max: 3,
        }
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounters {
    /// Requests sent to engines, repeated ones included.
    pub attempts: u64,
    /// Requests sent again after an engine died or lost them.
    pub resubmitted: u64,
    /// Reads of missing tokens.
    pub gap_reads: u64,
    /// Messages of earlier attempts.
    pub stale: u64,
    /// Requests that ended because an engine sent other tokens than before.
    pub diverged: u64,
    /// Vectors of another length than the model's, with an entry that is not finite, or of requests for tokens.
    pub wrong_vectors: u64,
}

#[cfg(test)]
impl RelayCounters {
    pub(super) fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.resubmitted += other.resubmitted;
        self.gap_reads += other.gap_reads;
        self.stale += other.stale;
        self.diverged += other.diverged;
        self.wrong_vectors += other.wrong_vectors;
    }
}
