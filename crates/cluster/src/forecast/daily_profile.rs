//! Mean rate by time of day (UTC).

/// Slots of a day.
pub(super) const SLOTS: usize = 288;
/// Length of a slot, seconds.
const SLOT_S: f64 = 86_400.0 / SLOTS as f64;
/// Weight of the last day in a slot that was seen on several days.
const DAY_WEIGHT: f32 = 0.3;
/// Neighbors that differ by more have something between them that begins or ends.
const EDGE_SHARE: f64 = 0.15;
/// Days from which on the last day has this weight.
const DAYS_KEPT: u8 = 7;
/// Part of a slot that must have been observed.
const COVERED_MIN: f64 = 0.5;
/// A day changes a slot at most as if it had differed by this share of the slot, and ...
const CHANGE_SHARE: f32 = 0.5;
/// ... this share of the mean of all slots: an outage is not the time of day.
const CHANGE_MEAN_SHARE: f32 = 0.1;

/// Rates by slot of the day, of slots that were seen on one day or more.
#[derive(Debug)]
pub(super) struct DailyProfile {
    slots: Box<[Slot; SLOTS]>,
    current: Option<CurrentSlot>,
    /// Mean of the slots that were seen.
    mean: f32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    rate: f32,
    days: u8,
}

/// The slot in which observations fall now.
#[derive(Clone, Copy, Debug)]
struct CurrentSlot {
    /// Counted from the Unix epoch.
    number: i64,
    seconds: f64,
    /// Sum of rate * seconds.
    sum: f64,
}

impl Default for DailyProfile {
    fn default() -> Self {
        Self {
            slots: Box::new([Slot::default(); SLOTS]),
            current: None,
            mean: 0.0,
        }
    }
}

impl DailyProfile {
    /// The rate was observed for this long around `at_s`.
    pub(super) fn observe(&mut self, at_s: f64, seconds: f64, rate: f64) {
        let number = (at_s / SLOT_S).floor() as i64;
        let current = match self.current {
            Some(current) if current.number == number => current,
            earlier => {
                if let Some(earlier) = earlier {
                    self.complete(earlier);
                }
                CurrentSlot {
                    number,
                    seconds: 0.0,
                    sum: 0.0,
                }
            }
        };
        self.current = Some(CurrentSlot {
            number,
            seconds: current.seconds + seconds,
            sum: current.sum + rate * seconds,
        });
    }

    /// The usual rate at a time, between the centers of the two slots around it; `None` where one of them is unknown.
    pub(super) fn rate_at(&self, at_s: f64) -> Option<f64> {
        let (before, after, part) = self.around(at_s)?;
        Some(before * (1.0 - part) + after * part)
    }

    /// The higher one of the usual rates in the two slots around a time: what begins in a slot each day may begin at any
    /// time of the slot.
    pub(super) fn highest_at(&self, at_s: f64) -> Option<f64> {
        let (before, after, part) = self.around(at_s)?;
        let begins = (before - after).abs() > EDGE_SHARE * before.max(after);
        Some(if begins {
            before.max(after)
        } else {
            before * (1.0 - part) + after * part
        })
    }

    /// Rates of the two slots whose centers are around a time, and the part of the way between the centers.
    fn around(&self, at_s: f64) -> Option<(f64, f64, f64)> {
        let place = at_s / SLOT_S - 0.5;
        let before = place.floor();
        let slot = |number: f64| {
            let slot = self.slots[(number as i64).rem_euclid(SLOTS as i64) as usize];
            (slot.days > 0).then_some(f64::from(slot.rate))
        };
        Some((slot(before)?, slot(before + 1.0)?, place - before))
    }

    /// Mean of the whole day, as far as known.
    pub(super) fn mean(&self) -> f64 {
        f64::from(self.mean)
    }

    fn complete(&mut self, current: CurrentSlot) {
        if current.seconds < COVERED_MIN * SLOT_S {
            return;
        }
        let rate = (current.sum / current.seconds) as f32;
        let most = CHANGE_MEAN_SHARE * self.mean;
        let slot = &mut self.slots[current.number.rem_euclid(SLOTS as i64) as usize];
        if slot.days == 0 {
            slot.rate = rate;
        } else {
            let weight = (1.0 / (f32::from(slot.days) + 1.0)).max(DAY_WEIGHT);
            let most = CHANGE_SHARE * slot.rate + most;
            slot.rate += weight * (rate - slot.rate).clamp(-most, most);
        }
        slot.days = (slot.days + 1).min(DAYS_KEPT);
        let seen = || self.slots.iter().filter(|slot| slot.days > 0);
        self.mean = seen().map(|slot| slot.rate).sum::<f32>() / seen().count().max(1) as f32;
    }
}
