//! Who gets rows in a step.

use super::{Scheduler, count};
use crate::plan::{PageCopy, Plan, Planned};
use crate::sequence::State;

/// Part of the rows that decodes leave to prefill when there are more of them than rows.
const PREFILL_PART: usize = 8;

impl Scheduler {
    /// Parks who is too far ahead of its reader, and brings back whose reader caught up.
    pub(super) fn settle_credit(&mut self) {
        for &key in &self.order {
            let Some(sequence) = &mut self.sequences[key] else {
                continue;
            };
            let window = self.requests[sequence.slot]
                .as_ref()
                .map_or(0, |c| c.credit_window);
            sequence.rows = 0;
            match (sequence.state, sequence.out_of_credit(window)) {
                (State::Active | State::Waiting, true) => {
                    sequence.state = State::Parked;
                    count(&self.inbox.stats.parks, 1);
                }
                (State::Parked, false) if sequence.pages.is_empty() => {
                    sequence.state = State::Waiting;
                }
                (State::Parked, false) => sequence.state = State::Active,
                _ => {}
            }
        }
    }

    /// A row for each sequence that generates, as far as rows go, and the page it is written to.
    /// Returns how many.
    pub(super) fn select_decodes(&mut self, copies: &mut Vec<PageCopy>) -> usize {
        self.take_turns();
        // Oldest first: who is preempted for want of a page is younger and comes later.
        for at in 0..self.order.len() {
            let key = self.order[at];
            if self.sequences[key].as_ref().is_some_and(|s| s.rows > 0) {
                self.extend(key, copies);
            }
        }
        self.live().filter(|(_, s)| s.rows > 0).count()
    }

    /// Marks the sequences whose turn it is.
    fn take_turns(&mut self) {
        let most = self.decodes_max();
        let after = self
            .live()
            .take_while(|(_, s)| s.age <= self.last_turn)
            .count();
        let all = self.live().filter(|(_, s)| s.decodes()).count();
        let first = if all <= most { 0 } else { after };
        let (keys, mut left) = (self.order.len(), most);
        for turn in 0..keys {
            let key = self.order[(first + turn) % keys];
            if let Some(sequence) = self.sequences[key].as_mut().filter(|s| s.decodes())
                && left > 0
            {
                sequence.rows = 1;
                self.last_turn = sequence.age;
                left -= 1;
            }
        }
    }

    /// Rows that decodes may have.
    fn decodes_max(&self) -> usize {
        let prefill = !self.queue.is_empty()
            || self
                .live()
                .any(|(_, s)| s.prefills() || s.state == State::Waiting);
        match prefill {
            false => self.rows_max.min(self.logit_rows_max),
            true => {
                let rows = self.rows_max - (self.rows_max / PREFILL_PART).max(1);
                // At least one: with room for one sequence only, the queue waits for its end.
                rows.min(self.logit_rows_max - 1).max(1)
            }
        }
    }

    /// Makes the page of a sequence's next position its own, or takes its place away.
    fn extend(&mut self, key: usize, copies: &mut Vec<PageCopy>) {
        while !self.extend_if_room(key, copies) {
            let victim = self.youngest_with_pages(State::Parked);
            let victim = victim.or_else(|| self.youngest_with_pages(State::Active));
            let victim = victim.expect("a sequence that extends holds pages");
            self.preempt(victim);
            if victim == key {
                return;
            }
        }
    }

    /// Returns false when there is no page.
    fn extend_if_room(&mut self, key: usize, copies: &mut Vec<PageCopy>) -> bool {
        let sequence = self.sequences[key].as_mut().expect("selected, so alive");
        let at = sequence.computed / self.pages.page_tokens();
        let old = sequence.pages.get(at).copied();
        if old.is_some_and(|page| !self.pages.is_shared(page)) {
            return true;
        }
        let Some(to) = self.pages.take() else {
            return false;
        };
        match old {
            None => sequence.pages.push(to),
            Some(from) => {
                sequence.pages[at] = to;
                self.pages.release(from);
                copies.push(PageCopy { key, from, to });
            }
        }
        true
    }

    /// Chunks for those who compute their prompt, from the rows that `decodes` leave.
    pub(super) fn select_prefill(&mut self, decodes: usize) {
        let mut prefills = std::mem::take(&mut self.prefills);
        prefills.clear();
        prefills.extend(
            self.live()
                .filter(|(_, s)| s.prefills())
                .map(|(key, _)| key),
        );
        let mut left = Rows {
            rows: self.rows_max - decodes,
            logit_rows: self.logit_rows_max - decodes,
        };
        if let Some((&mut oldest, others)) = prefills.split_first_mut() {
            let half = left.rows.div_ceil(2);
            self.chunk(oldest, half, &mut left);
            others.sort_unstable_by_key(|&key| {
                self.sequences[key].as_ref().map(|s| (s.pending(), s.age))
            });
            for &key in others.iter() {
                self.chunk(key, usize::MAX, &mut left);
            }
            self.chunk(oldest, usize::MAX, &mut left);
        }
        self.prefills = prefills;
    }

    /// Adds to a sequence's chunk. The last position is left for later when its logits would be
    /// one row too many.
    fn chunk(&mut self, key: usize, most: usize, left: &mut Rows) {
        let Some(sequence) = &mut self.sequences[key] else {
            return;
        };
        let wanted = sequence.pending() - sequence.rows;
        let mut rows = wanted.min(most).min(left.rows);
        if rows == wanted && rows > 0 {
            match left.logit_rows {
                0 => rows -= 1,
                _ => left.logit_rows -= 1,
            }
        }
        sequence.rows += rows;
        left.rows -= rows;
    }

    /// Writes down who has rows: decodes first.
    pub(super) fn write(&mut self, plan: &mut Plan) {
        for decodes in [true, false] {
            for (key, sequence) in self
                .live()
                .filter(|(_, s)| s.rows > 0 && s.decodes() == decodes)
            {
                let positions = sequence.computed..sequence.computed + sequence.rows;
                let draws = positions.end == sequence.tokens.len();
                plan.spans.push(Planned {
                    key,
                    positions,
                    draws,
                });
            }
        }
        // A copy whose owner lost its place since is for nobody.
        plan.copies.retain(|copy| {
            self.sequences[copy.key]
                .as_ref()
                .is_some_and(|s| s.pages.contains(&copy.to))
        });
    }
}

/// What a step has left to give.
struct Rows {
    rows: usize,
    logit_rows: usize,
}
