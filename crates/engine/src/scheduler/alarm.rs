//! When something will happen by itself, where nobody has anything to compute.

use super::{Scheduler, nanos};
use crate::LOOK_EACH;
use crate::places::{PLACE_KEPT, Place};
use crate::sequence::{Common, Sequence};
use std::time::{Duration, Instant};

impl Scheduler {
    /// The first moment from now on at which a clock of anybody's, or the engine's own, runs out, as far as
    /// it may matter; at the latest [`LOOK_EACH`] from now. A clock that does not run at present may ring
    /// for nothing; one that has rung does not ring again.
    pub(crate) fn alarm(&self, drain_deadline: Option<Instant>) -> Instant {
        let mut alarm = Alarm {
            now: self.now,
            now_ns: self.now_ns,
            epoch: self.inbox.epoch,
            first: self.now + LOOK_EACH,
        };
        alarm.at(drain_deadline);
        if !self.queue.is_empty() {
            // Who is next in the queue may be another one then.
            alarm.after(self.now_ns, Some(Duration::from_nanos(self.ageing_ns)));
        }
        for submitted in &self.queue {
            let common = &submitted.common;
            alarm.request(common);
            alarm.after(common.from_ns, common.clocks.queue);
        }
        for common in self.requests.iter().flatten() {
            alarm.request(common);
            alarm.after(common.from_ns, common.clocks.first_token);
        }
        for (_, sequence) in self.live() {
            if let Some(common) = &self.requests[sequence.slot] {
                alarm.sequence(common, sequence, self.slow_consumer);
            }
        }
        alarm.first
    }
}

struct Alarm {
    now: Instant,
    now_ns: u64,
    epoch: Instant,
    first: Instant,
}

impl Alarm {
    fn request(&mut self, common: &Common) {
        self.at(common.deadline);
        self.after(common.since_ns, common.clocks.total);
    }

    fn sequence(&mut self, common: &Common, sequence: &Sequence, slow: Duration) {
        if sequence.stalls() {
            self.after(sequence.parked_ns, Some(slow));
            self.after(sequence.parked_ns, common.clocks.reader);
            if common.places.is_some() && sequence.place == Place::Held {
                self.after(sequence.parked_ns, Some(PLACE_KEPT));
            }
        } else {
            self.after(sequence.waits_ns, common.clocks.idle);
        }
    }

    fn after(&mut self, since_ns: u64, clock: Option<Duration>) {
        let Some(clock) = clock else { return };
        let ring_ns = since_ns.saturating_add(nanos(clock));
        if ring_ns > self.now_ns {
            self.at(self.epoch.checked_add(Duration::from_nanos(ring_ns)));
        }
    }

    fn at(&mut self, ring: Option<Instant>) {
        if let Some(ring) = ring.filter(|&ring| ring > self.now) {
            self.first = self.first.min(ring);
        }
    }
}
