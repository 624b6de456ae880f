//! The search for engines that still compute requests of an earlier process, before these are submitted again.
//!
//! Every engine that is alive is asked, each with an attempt of its own: the first that has the choice keeps it, and the
//! others are ordered to forget their attempts as any that is not current. Asking is repeated, since an answer may be
//! lost, and an engine that has the choice answers as before. An engine that does not have it is asked once more after
//! [`RelayConfig::adopt_repeat`], since the earlier process may have sent it the request just before it died. Where no
//! engine has the choice, or what it has differs, the request is submitted as after an engine's death.

use super::RelayConfig;
use super::assignment::{Assignment, Place};
use super::core::{Action, Relay};
use super::order_queue::OrderQueue;
use crate::messages::{
    ADOPTIONS_MAX, AdoptAnswer, AdoptEntry, AdoptRequest, Adoption, Attempt, OrderKind,
};
use crate::names::InstanceId;
use engine::Transition;
use engine::remote::ContinuedRequest;
use std::collections::BTreeSet;
use std::time::Instant;

/// A search that is not over.
#[derive(Debug)]
pub(super) struct AdoptionSearch {
    request: ContinuedRequest,
    /// When the first engine was asked.
    since: Option<Instant>,
    asked: Vec<AskedEngine>,
}

#[derive(Debug)]
struct AskedEngine {
    engine: InstanceId,
    attempt: u32,
    at: Instant,
    has_answered: bool,
}

impl AdoptionSearch {
    pub(super) fn new(request: ContinuedRequest) -> Self {
        Self {
            request,
            since: None,
            asked: Vec::new(),
        }
    }

    /// Whether this engine was asked with this attempt.
    pub(super) fn has_asked(&self, engine: InstanceId, attempt: u32) -> bool {
        let mut asked = self.asked.iter();
        asked.any(|asked| (asked.engine, asked.attempt) == (engine, attempt))
    }

    fn answered(&mut self, engine: InstanceId) {
        let asked = self.asked.iter_mut().filter(|a| a.engine == engine);
        asked.for_each(|asked| asked.has_answered = true);
    }

    /// Engines to be asked now, each with its attempt; `None`: the search is over. `attempt` is the last one in use.
    fn advance(
        &mut self,
        alive: &BTreeSet<InstanceId>,
        attempt: &mut u32,
        (config, connected_at, now): (&RelayConfig, Instant, Instant),
    ) -> Option<Vec<(InstanceId, u32)>> {
        let since = |at: Instant| now.saturating_duration_since(at);
        let begun = *self.since.get_or_insert(now);
        self.asked.retain(|asked| alive.contains(&asked.engine));
        let mut due = Vec::new();
        let is_early = |asked: &AskedEngine| asked.at < begun + config.adopt_repeat;
        for asked in &mut self.asked {
            let is_open = !asked.has_answered || is_early(asked);
            if is_open && since(asked.at) >= config.adopt_repeat {
                (asked.at, asked.has_answered) = (now, false);
                due.push((asked.engine, asked.attempt));
            }
        }
        for &engine in alive {
            if !self.asked.iter().any(|asked| asked.engine == engine) {
                *attempt += 1;
                due.push((engine, *attempt));
                self.asked.push(AskedEngine {
                    engine,
                    attempt: *attempt,
                    at: now,
                    has_answered: false,
                });
            }
        }
        let is_settled = |asked: &AskedEngine| asked.has_answered && !is_early(asked);
        let all_answered = self.asked.iter().all(is_settled);
        let all_found = since(connected_at) >= config.discovery;
        let is_over = all_found && all_answered || since(begun) >= config.adopt_wait;
        (!is_over).then_some(due)
    }
}

impl Relay {
    /// Asks engines for a request of an earlier process. Returns whether the search goes on.
    pub(super) fn search(&mut self, handle: u64, now: Instant) -> bool {
        let Some((placed, connected_at)) = self.requests.get_mut(&handle).zip(self.connected_at)
        else {
            return false;
        };
        let Some(search) = &mut placed.adoption else {
            return false;
        };
        let terms = (&self.config, connected_at, now);
        let due = search.advance(&self.engines.alive, &mut placed.last_attempt, terms);
        let Some(due) = due else {
            placed.adoption = None;
            return false;
        };
        let ids = placed.relayed.log_ids(0).unwrap_or_default();
        let request = &search.request;
        for (engine, attempt) in due {
            let entry = AdoptEntry {
                handle,
                attempt,
                choice: request.choice,
                generation: request.generation,
                in_effect: request.in_effect.clone(),
                ids: ids.to_vec(),
            };
            self.adoptions.entry(engine).or_default().push(entry);
        }
        true
    }

    /// Turns the questions into messages within their bound.
    pub(super) fn pack_adoptions(&mut self) {
        for (engine, entries) in std::mem::take(&mut self.adoptions) {
            for entries in entries.chunks(ADOPTIONS_MAX) {
                let request = AdoptRequest {
                    gateway: self.gateway,
                    entries: entries.to_vec(),
                };
                self.actions.push(Action::Adopt { engine, request });
            }
        }
    }

    /// An engine answered which requests it computes.
    pub fn on_adopted(&mut self, engine: InstanceId, answers: &[AdoptAnswer], now: Instant) {
        for answer in answers {
            let is_paused = answer.adoption == Adoption::AdoptedPaused;
            let has = is_paused || answer.adoption == Adoption::Adopted;
            let placed = self.requests.get_mut(&answer.handle);
            let searching = placed.and_then(|placed| {
                let search = placed.adoption.as_mut()?;
                search.has_asked(engine, answer.attempt).then_some(())?;
                search.answered(engine);
                Some(placed)
            });
            match searching {
                Some(placed) if has => {
                    placed.adopt(engine, answer.attempt, is_paused, now);
                    self.counters.adopted += 1;
                }
                None if has => {
                    let (handle, attempt) = (answer.handle, answer.attempt);
                    if self.current(engine, handle, attempt).is_none() {
                        self.farewells
                            .push(engine, Attempt { handle, attempt }, now);
                    }
                }
                Some(_) | None => {}
            }
        }
    }

    /// Whether a message is about an attempt that an engine may have adopted: the answer is on its way.
    pub(super) fn is_asked(&self, engine: InstanceId, (handle, attempt): (u64, u32)) -> bool {
        let search = self.requests.get(&handle).and_then(|p| p.adoption.as_ref());
        search.is_some_and(|search| search.has_asked(engine, attempt))
    }
}

impl Assignment {
    /// The engine goes on with the request as this attempt.
    fn adopt(&mut self, engine: InstanceId, attempt: u32, is_paused: bool, now: Instant) {
        self.adoption = None;
        self.attempt = attempt;
        self.orders = OrderQueue::default();
        for update in &self.pending {
            let update = Box::new(update.clone());
            self.orders.push(OrderKind::Update(update));
        }
        (self.updates_begun, self.updates_applied) = (0, 0);
        self.paused_there = is_paused;
        // Credit for what was accepted before is sent, since the engine knows another reader's.
        self.credited.fill(0);
        self.has_gap = true;
        self.read_at = None;
        self.heard_at = now;
        self.place = Place::Running { engine };
        self.relayed.notify(Transition::Adopted, now);
    }
}
