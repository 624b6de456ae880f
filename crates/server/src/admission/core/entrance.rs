//! Whether a newcomer may come in at all, and what those are told who may not.

use super::{Asking, Class, Core, Rank, Refusal};
use crate::admission::refusal::{RETRY_AFTER_MAX, RETRY_AFTER_MIN};
use std::time::{Duration, Instant};

/// A class of which fewer than this part of `max_depth` wait finds room in a full queue: a flood of one
/// class leaves the door open for the others. So at most `max_depth * (1 + 5/16)` wait.
const CLASS_SHARE: usize = 16;

impl Core {
    /// Whether a newcomer may have a ticket of this rank.
    pub(super) fn may_enter(
        &mut self,
        rank: Rank,
        asking: &Asking,
        at_once: bool,
        now: Instant,
    ) -> Result<(), Refusal> {
        if self.closed {
            return Err(self.closed_refusal());
        }
        let wait = match at_once {
            true => Some(Duration::ZERO),
            false => self.wait_for(self.queue.ahead(rank) + 1),
        };
        self.in_time(wait, asking, now)?;
        let open = self.open + self.queue.len();
        if open >= self.bounds.open_max || !at_once && !self.has_room(asking.class) {
            self.refusing = true;
            let retry_after = self.send_away(Duration::ZERO);
            return Err(Refusal::QueueFull { retry_after });
        }
        Ok(())
    }

    /// Whether the first token can come before the caller's deadline, and the permit before the queue's
    /// clock. What is not known yet is taken to be quick: nobody is refused for want of data.
    fn in_time(
        &mut self,
        wait: Option<Duration>,
        asking: &Asking,
        now: Instant,
    ) -> Result<(), Refusal> {
        let wait = wait.unwrap_or_default();
        let prefill = self.prefill_pending + asking.need.prompt_tokens;
        let predicted =
            wait.saturating_add(self.prefill.time_for(prefill as f64).unwrap_or_default());
        if let Some(deadline) = asking.deadline {
            let patience = deadline.saturating_duration_since(now);
            if predicted > patience || patience.is_zero() {
                return Err(Refusal::Unattainable {
                    predicted,
                    patience,
                    retry_after: self.after(predicted - patience),
                });
            }
        }
        let timeout = self.bounds.queue.timeout;
        if wait > timeout {
            return Err(Refusal::WaitTooLong {
                predicted,
                retry_after: self.send_away(wait - timeout),
            });
        }
        Ok(())
    }

    /// Whether the wait queue takes one more of this class.
    fn has_room(&self, class: Class) -> bool {
        let max_depth = self.bounds.queue.max_depth;
        self.queue.len() < max_depth || self.queue.of_class(class) < max_depth / CLASS_SHARE
    }

    /// How long until so many places became free.
    pub(super) fn wait_for(&self, places: usize) -> Option<Duration> {
        self.drain.time_for(places as f64)
    }

    /// When to come back: after `backlog`, and not at the same time as others. As many places as callers
    /// were sent away lately become free before one does for this caller.
    pub(super) fn send_away(&mut self, backlog: Duration) -> Duration {
        self.away += 1.0;
        let places = self.drain.time_for(self.away);
        self.bounded(backlog, places)
    }

    /// When to come back where it is not a place that is missing but `excess` of others' work.
    fn after(&self, excess: Duration) -> Duration {
        self.bounded(excess, self.drain.time_for(0.0))
    }

    fn bounded(&self, backlog: Duration, places: Option<Duration>) -> Duration {
        let wait = match places {
            Some(places) => backlog.saturating_add(places),
            None => backlog.max(self.bounds.retry_after),
        };
        wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }
}
