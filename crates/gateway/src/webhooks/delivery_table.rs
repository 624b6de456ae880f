//! All deliveries and their bounds: which is due, and what an attempt changes. Wall times are arguments.

use super::delivery::{DeliveryState, DeliveryStatus};
use super::settings::share;
use super::{AttemptOutcome, WebhookSettings};
use crate::ended::EventRecord;
use crate::streams::StoredBlob;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use stream::{Owner, StreamId};

/// HTTP status of a receiver that wants no further events.
const GONE: u16 = 410;

/// A delivery with its copy in the journal.
pub(super) struct Delivery {
    pub(super) record: Arc<EventRecord>,
    pub(super) state: DeliveryState,
    pub(super) is_in_flight: bool,
    /// The drop ends the retention in the journal.
    pub(super) blob: Option<Arc<StoredBlob>>,
}

/// Change by an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The event has arrived.
    Delivered,
    /// The delivery was deleted meanwhile.
    Deleted,
    /// A further attempt follows.
    Retried,
    /// There is no further attempt.
    Died,
}

/// All deliveries.
#[derive(Default)]
pub(super) struct DeliveryTable {
    /// At most `waiting_max` pending and `dead_letters_max` dead ones, beside those that an earlier process has left.
    deliveries: BTreeMap<StreamId, Delivery>,
    /// Running streams with a webhook, by owner.
    reserved: HashMap<Owner, usize>,
}

impl DeliveryTable {
    /// Takes a place for a stream that is about to begin. False: there is none for this owner.
    pub(super) fn reserve(&mut self, owner: Owner, settings: &WebhookSettings) -> bool {
        let own = self.waiting_of(owner);
        let all = self.waiting();
        let has_room = all < settings.waiting_max && own < share(settings.waiting_max);
        if has_room {
            self.reserve_always(owner);
        }
        has_room
    }

    /// Takes a place beyond the bounds, for a stream of an earlier process.
    pub(super) fn reserve_always(&mut self, owner: Owner) {
        *self.reserved.entry(owner).or_default() += 1;
    }

    pub(super) fn release(&mut self, owner: Owner) {
        if let Some(places) = self.reserved.get_mut(&owner) {
            *places -= 1;
            if *places == 0 {
                self.reserved.remove(&owner);
            }
        }
    }

    /// Reserved places and pending deliveries.
    pub(super) fn waiting(&self) -> usize {
        let pending = self.pending().count();
        self.reserved.values().sum::<usize>() + pending
    }

    fn waiting_of(&self, owner: Owner) -> usize {
        let pending = self.pending();
        let pending = pending.filter(|delivery| delivery.record.owner() == owner);
        self.reserved.get(&owner).copied().unwrap_or(0) + pending.count()
    }

    fn pending(&self) -> impl Iterator<Item = &Delivery> {
        self.with_status(DeliveryStatus::Pending)
    }

    fn with_status(&self, status: DeliveryStatus) -> impl Iterator<Item = &Delivery> {
        let all = self.deliveries.values();
        all.filter(move |delivery| delivery.state.status == status)
    }

    /// Number of dead letters.
    pub(super) fn dead_letters(&self) -> usize {
        self.with_status(DeliveryStatus::Dead).count()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Delivery> {
        self.deliveries.values()
    }

    pub(super) fn get(&self, stream: StreamId) -> Option<&Delivery> {
        self.deliveries.get(&stream)
    }

    pub(super) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Delivery> {
        self.deliveries.get_mut(&stream)
    }

    pub(super) fn insert(&mut self, delivery: Delivery) {
        self.deliveries.insert(delivery.record.stream, delivery);
    }

    pub(super) fn remove(&mut self, stream: StreamId) -> Option<Delivery> {
        self.deliveries.remove(&stream)
    }

    /// Marks the delivery whose attempt is due and whose owner has the fewest attempts in flight, and returns its id.
    pub(super) fn begin_attempt(
        &mut self,
        now_unix_us: u64,
        settings: &WebhookSettings,
    ) -> Option<StreamId> {
        let in_flight = self.in_flight();
        if in_flight.values().sum::<usize>() >= settings.in_flight_max {
            return None;
        }
        let own = |delivery: &Delivery| {
            let owner = delivery.record.owner();
            in_flight.get(&owner).copied().unwrap_or(0)
        };
        let due = self.pending().filter(|delivery| {
            let is_due = delivery.state.next_unix_us <= now_unix_us && !delivery.is_in_flight;
            is_due && own(delivery) < share(settings.in_flight_max)
        });
        let next = due.min_by_key(|delivery| (own(delivery), delivery.state.next_unix_us))?;
        let stream = next.record.stream;
        self.get_mut(stream)?.is_in_flight = true;
        Some(stream)
    }

    /// Wall time of the next attempt of a delivery that waits for it.
    pub(super) fn next_due(&self, now_unix_us: u64) -> Option<u64> {
        let waiting = self.pending().filter(|delivery| !delivery.is_in_flight);
        let times = waiting.map(|delivery| delivery.state.next_unix_us);
        // What is due now waits for the end of another attempt.
        times.filter(|at| *at > now_unix_us).min()
    }

    fn in_flight(&self) -> HashMap<Owner, usize> {
        let mut counts = HashMap::new();
        for delivery in self.deliveries.values().filter(|one| one.is_in_flight) {
            *counts.entry(delivery.record.owner()).or_default() += 1;
        }
        counts
    }

    /// Records the outcome of an attempt.
    pub(super) fn finish_attempt(
        &mut self,
        stream: StreamId,
        outcome: &AttemptOutcome,
        (now_unix_us, random): (u64, u64),
        settings: &WebhookSettings,
    ) -> Change {
        let Some(delivery) = self.deliveries.get_mut(&stream) else {
            return Change::Deleted;
        };
        delivery.is_in_flight = false;
        let state = &mut delivery.state;
        state.attempts += 1;
        state.last_unix_us = Some(now_unix_us);
        let (status, retry_after) = match outcome {
            AttemptOutcome::Answered {
                status,
                retry_after,
            } => (Some(*status), *retry_after),
            AttemptOutcome::Failed(_) => (None, None),
        };
        state.last_status = status;
        if status.is_some_and(|status| (200..300).contains(&status)) {
            self.deliveries.remove(&stream);
            return Change::Delivered;
        }
        match outcome {
            AttemptOutcome::Answered { status, .. } => {
                state.set_failure(&format!("the receiver answered {status}"));
            }
            AttemptOutcome::Failed(why) => state.set_failure(why),
        }
        let delay = settings.delay(state.attempts, random);
        let delay = delay.max(retry_after.unwrap_or_default());
        let next_unix_us = now_unix_us.saturating_add(microseconds(delay));
        let last_unix_us = state
            .since_unix_us
            .saturating_add(microseconds(settings.age_max));
        let is_over = status == Some(GONE)
            || state.attempts >= settings.attempts_max
            || next_unix_us > last_unix_us;
        if is_over {
            return self.kill(stream, settings);
        }
        state.next_unix_us = next_unix_us;
        Change::Retried
    }

    /// Ends the attempts of a delivery that cannot be sent.
    pub(super) fn give_up(
        &mut self,
        stream: StreamId,
        why: &str,
        settings: &WebhookSettings,
    ) -> Change {
        let Some(delivery) = self.deliveries.get_mut(&stream) else {
            return Change::Deleted;
        };
        delivery.is_in_flight = false;
        delivery.state.set_failure(why);
        self.kill(stream, settings)
    }

    fn kill(&mut self, stream: StreamId, settings: &WebhookSettings) -> Change {
        if let Some(delivery) = self.deliveries.get_mut(&stream) {
            delivery.state.status = DeliveryStatus::Dead;
        }
        self.evict_dead_letters(settings);
        Change::Died
    }

    /// Removes the oldest dead letters of the owner with the most, down to the bound.
    pub(super) fn evict_dead_letters(&mut self, settings: &WebhookSettings) {
        while self.dead_letters() > settings.dead_letters_max {
            let mut counts: HashMap<Owner, usize> = HashMap::new();
            for dead in self.with_status(DeliveryStatus::Dead) {
                *counts.entry(dead.record.owner()).or_default() += 1;
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count);
            let dead = self.with_status(DeliveryStatus::Dead);
            let of_most =
                dead.filter(|dead| most.is_some_and(|(owner, _)| dead.record.owner() == owner));
            let oldest = of_most.min_by_key(|dead| dead.record.created_unix_us);
            let Some(oldest) = oldest.map(|dead| dead.record.stream) else {
                return;
            };
            self.deliveries.remove(&oldest);
        }
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "delivery_table_tests.rs"]
mod tests;
