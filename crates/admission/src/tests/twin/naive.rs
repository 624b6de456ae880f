//! Admission's rules, followed by looking at everything for every question.

use super::super::*;
use std::collections::HashMap;

pub(crate) const STREAMS: usize = 6;
pub(crate) const DEPTH: usize = 16;
pub(crate) const OPEN: usize = 24;
pub(crate) const PAGES: usize = 12;
pub(crate) const SEATS: usize = 20;
/// By account. Six times a place divided by any of them is whole.
pub(crate) const WEIGHTS: [usize; 3] = [1, 2, 3];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Is {
    Waiting,
    Running,
    Rejected,
}

#[derive(Clone, Debug)]
pub(crate) struct Twin {
    pub(crate) id: u64,
    pub(crate) class: usize,
    pub(crate) account: usize,
    pub(crate) due: Instant,
    pub(crate) until: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) streams: usize,
    pub(crate) pages: usize,
    pub(crate) more: usize,
    pub(crate) is: Is,
    pub(crate) aside: Option<Instant>,
    pub(crate) held: usize,
    pub(crate) free: usize,
    pub(crate) claims: usize,
    pub(crate) recalled: usize,
    pub(crate) is_recallable: bool,
}

impl Twin {
    pub(crate) fn pages_for(&self, slots: usize) -> usize {
        match slots {
            0 => 0,
            n => self.pages + (n - 1) * self.more,
        }
    }

    pub(crate) fn give(&mut self, slots: usize) {
        self.held -= slots;
        let recalled = self.recalled.saturating_sub(slots);
        self.recalled = recalled.min(self.held.saturating_sub(1));
    }

    fn stands_in_line(&self) -> bool {
        let back = self.is == Is::Running && self.held == 0 && self.claims > 0;
        self.is == Is::Waiting || back
    }
}

/// Every question is answered by looking at everything.
#[derive(Default)]
pub(crate) struct Naive {
    pub(crate) all: Vec<Twin>,
    granted: HashMap<usize, Instant>,
    blocker: Option<Twin>,
}

type QueuePriority = (usize, usize, Instant, u64);

impl Naive {
    pub(crate) fn count(&self, is: Is) -> usize {
        self.all.iter().filter(|t| t.is == is).count()
    }

    pub(crate) fn pages(&self) -> usize {
        self.all.iter().map(|t| t.pages_for(t.held)).sum()
    }

    pub(crate) fn slots(&self) -> usize {
        self.all.iter().map(|t| t.held).sum()
    }

    fn slots_of(&self, account: usize) -> usize {
        let own = self.all.iter().filter(|t| t.account == account);
        own.map(|t| t.held).sum()
    }

    /// Forgets the accounts that have no ticket.
    pub(crate) fn forget(&mut self) {
        let all = &self.all;
        self.granted
            .retain(|account, _| all.iter().any(|t| t.account == *account));
    }

    fn seats(&self, of: impl Fn(&Twin) -> bool) -> usize {
        let running = self.all.iter().filter(|t| t.is == Is::Running);
        running.filter(|t| of(t)).map(|t| t.streams).sum()
    }

    pub(crate) fn fits(&self, t: &Twin) -> bool {
        let all = self.seats(|_| true);
        let own = self.seats(|other| other.account == t.account);
        let still = own.saturating_sub(self.slots_of(t.account));
        let most = if still >= SEATS / 4 {
            SEATS - SEATS / 4
        } else {
            SEATS
        };
        let seated = t.is == Is::Running || all == 0 || all + t.streams <= most;
        seated && self.slots() < STREAMS && self.pages() + t.pages <= PAGES
    }

    fn queue_priority(&self, t: &Twin, behind: usize, now: Instant) -> QueuePriority {
        let granted = self.granted.get(&t.account).copied();
        let since = granted.map_or(t.due, |at| at.max(t.due));
        if behind == 0 && since + S <= now {
            return (0, 0, t.due, t.id);
        }
        let mut level = 1;
        while t.due > now + (level as u32 - 1) * S {
            level += 1;
        }
        let share = 6 * (self.slots_of(t.account) + behind + 1) / WEIGHTS[t.account];
        (level, share, t.due, t.id)
    }

    pub(crate) fn in_line(&self) -> usize {
        self.all.iter().filter(|t| t.stands_in_line()).count()
    }

    pub(crate) fn grant(&mut self, now: Instant) {
        loop {
            self.grant_first(now);
            if self.blocker.is_some() || !self.grow() {
                break;
            }
        }
        while self.all.iter().map(|t| t.recalled).sum::<usize>() < self.in_line() {
            let could = |t: &Twin| t.is_recallable && t.held > 1 + t.recalled;
            let could = (0..self.all.len()).filter(|&i| could(&self.all[i]));
            let Some(i) = could.max_by_key(|&i| {
                let t = &self.all[i];
                let share = 6 * (self.slots_of(t.account) + 1) / WEIGHTS[t.account];
                (share, t.held - t.recalled, t.due, t.id)
            }) else {
                return;
            };
            self.all[i].recalled += 1;
        }
    }

    fn grant_first(&mut self, now: Instant) {
        self.blocker = None;
        let mut passed = Vec::new();
        while self.slots() < STREAMS {
            let in_line = (0..self.all.len()).filter(|&i| self.all[i].stands_in_line());
            let in_line = in_line.filter(|i| !passed.contains(i));
            let Some(i) = in_line.min_by_key(|&i| self.queue_priority(&self.all[i], 0, now)) else {
                break;
            };
            let fits = self.fits(&self.all[i]);
            let t = &mut self.all[i];
            if t.is == Is::Waiting && t.until <= now {
                t.is = Is::Rejected;
            } else if fits {
                (t.is, t.aside, t.held, t.free) = (Is::Running, None, 1, 1);
                self.granted.insert(t.account, now);
                passed.clear();
            } else if *t.aside.get_or_insert(now) + S <= now {
                self.blocker = Some(t.clone());
                return;
            } else {
                passed.push(i);
            }
        }
    }

    fn grow(&mut self) -> bool {
        if self.slots() >= STREAMS - STREAMS / 4 {
            return false;
        }
        let room = |t: &Twin| self.pages() + t.more <= PAGES - PAGES / 4;
        let wants = (0..self.all.len()).filter(|&i| {
            let t = &self.all[i];
            t.held > 0 && t.claims > t.free && room(t)
        });
        let Some(i) = wants.min_by_key(|&i| {
            let t = &self.all[i];
            let share = 6 * (self.slots_of(t.account) + 1) / WEIGHTS[t.account];
            (share, t.held, t.due, t.id)
        }) else {
            return false;
        };
        self.all[i].held += 1;
        self.all[i].free += 1;
        true
    }

    pub(crate) fn position(&self, t: &Twin, now: Instant) -> usize {
        let queue_priority = |t: &Twin| {
            let own = |o: &&Twin| o.account == t.account && o.stands_in_line();
            let before = self.all.iter().filter(own);
            let before = before.filter(|o| (o.due, o.id) < (t.due, t.id)).count();
            self.queue_priority(t, before, now)
        };
        let in_line = self.all.iter().filter(|o| o.stands_in_line());
        1 + in_line
            .filter(|o| queue_priority(o) < queue_priority(t))
            .count()
    }

    fn has_room(&self, class: usize) -> bool {
        let of_class = |t: &&Twin| t.is == Is::Waiting && t.class == class;
        self.count(Is::Waiting) < DEPTH || self.all.iter().filter(of_class).count() < DEPTH / 16
    }

    /// Whether places may be kept for those who were told to come back.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let waiting = self.count(Is::Waiting);
        waiting >= DEPTH - DEPTH / 4 || self.count(Is::Running) + waiting >= OPEN - OPEN / 4
    }

    /// Whether it would be let in at once, and whether there is a place for it at all.
    pub(crate) fn room_for(&self, new: &Twin, now: Instant) -> (bool, bool) {
        let first =
            |blocker| self.queue_priority(new, 0, now) < self.queue_priority(blocker, 0, now);
        let at_once = self.fits(new) && self.blocker.as_ref().is_none_or(first);
        let open = self.count(Is::Running) + self.count(Is::Waiting);
        (
            at_once,
            open < OPEN && (at_once || self.has_room(new.class)),
        )
    }
}
