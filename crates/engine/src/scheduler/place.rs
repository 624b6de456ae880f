//! Which sequences have a place; see [`crate::places`].

use super::Scheduler;
use crate::places::{PLACE_KEPT, Place, Places};
use crate::sequence::{Common, Sequence, Still};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Scheduler {
    /// Queued requests take places, or give up waiting for one while they are paused. One that got its place
    /// only now has not waited for the engine before.
    pub(super) fn settle_queued_places(&mut self) {
        for submitted in &mut self.queue {
            let common = &mut submitted.common;
            let leader = &mut submitted.sequences[0];
            let before = leader.place;
            match common.paused {
                true => common.release(leader),
                false => common.claim(leader),
            }
            if before == Place::Wanted && leader.place == Place::Held {
                common.from_ns = self.now_ns;
            }
        }
    }

    /// Gives back places that are asked for, of each request the youngest choice's first.
    pub(super) fn settle_recalls(&mut self) {
        for &key in self.order.iter().rev() {
            let Some(sequence) = &mut self.sequences[key] else {
                continue;
            };
            let common = self.requests[sequence.slot].as_mut();
            let common = common.filter(|common| common.open > 1 && sequence.place == Place::Held);
            if let Some(common) = common
                && common.with_places(|places| places.is_recalled()) == Some(true)
            {
                common.release(sequence);
            }
        }
    }

    /// Takes or gives back this sequence's place. Returns why it stands still, with or without a place.
    pub(super) fn settle_place(&mut self, key: usize) -> Option<Still> {
        let sequence = self.sequences[key].as_mut()?;
        let common = self.requests[sequence.slot].as_mut()?;
        let still = common.still(sequence);
        let kept = super::nanos(PLACE_KEPT);
        match still {
            None => common.claim(sequence),
            Some(Still::Credit) if sequence.place == Place::Held => {
                let parked_ns = self.now_ns.saturating_sub(sequence.parked_ns);
                if sequence.stalls() && parked_ns >= kept {
                    common.release(sequence);
                }
            }
            Some(_) => common.release(sequence),
        }
        let placeless = sequence.place != Place::Held;
        still.or_else(|| placeless.then_some(Still::Place))
    }
}

impl Common {
    /// Takes a place for this sequence of it, or asks for one.
    fn claim(&mut self, sequence: &mut Sequence) {
        let place = sequence.place;
        if place == Place::Held {
            return;
        }
        let taken = self.with_places(|places| {
            if place == Place::None {
                places.want();
            }
            places.take()
        });
        sequence.place = match taken {
            None | Some(true) => Place::Held,
            Some(false) => Place::Wanted,
        };
    }

    /// Gives back the place of this sequence of it, or what it waits for.
    pub(super) fn release(&mut self, sequence: &mut Sequence) {
        let place = sequence.place;
        let released = self.with_places(|places| match place {
            Place::None => {}
            Place::Wanted => places.want_not(),
            Place::Held => places.give_back(),
        });
        if released.is_some() {
            sequence.place = Place::None;
        }
    }

    /// `None`: its sequences need no places. They are the caller's: after a panic in them they are needed no more.
    fn with_places<T>(&mut self, act: impl FnOnce(&mut dyn Places) -> T) -> Option<T> {
        let places = &mut **self.places.as_mut()?;
        match catch_unwind(AssertUnwindSafe(|| act(places))) {
            Ok(done) => Some(done),
            Err(_) => {
                let places = AssertUnwindSafe(self.places.take());
                let _ = catch_unwind(move || drop(places));
                None
            }
        }
    }
}
