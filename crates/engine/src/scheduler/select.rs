//! Who gets rows in a step.

use super::Scheduler;
use super::standing::Standing;
use crate::accounts::{DECODE_COST, Share};
use crate::plan::{PageCopy, Plan, Planned};
use crate::sequence::State;

/// Part of the rows that decodes leave to prefill when there are more of them than rows.
const PREFILL_PART: usize = 8;

/// A sequence that generates, when rows are given.
pub(super) struct Turn {
    standing: Standing,
    share: Share,
    /// The number of its last turn: no two are alike, so that turns keep their order.
    last: u64,
    key: usize,
}

impl Scheduler {
    /// A row for each sequence that generates, as far as rows go, and the page it is written to.
    /// Returns how many.
    pub(super) fn select_decodes(&mut self, copies: &mut Vec<PageCopy>) -> usize {
        self.take_turns();
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        keys.extend(self.live().filter(|(_, s)| s.rows > 0).map(|(key, _)| key));
        if self.pages.available() < keys.len() {
            // Who is preempted for want of a page comes later than who takes it.
            keys.sort_unstable_by_key(|&key| {
                self.sequences[key].as_ref().map(|s| self.page_claim(s))
            });
        }
        for &key in &keys {
            if self.sequences[key].as_ref().is_some_and(|s| s.rows > 0) {
                self.extend(key, copies);
            }
        }
        self.keys = keys;
        self.live().filter(|(_, s)| s.rows > 0).count()
    }

    /// Marks the sequences whose turn it is: all, or by standing as many as there are rows.
    fn take_turns(&mut self) {
        let most = self.decodes_max();
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        keys.extend(self.live().filter(|(_, s)| s.decodes()).map(|(key, _)| key));
        if keys.len() > most {
            self.rank(&mut keys);
            keys.truncate(most);
        }
        for &key in &keys {
            if let Some(sequence) = &mut self.sequences[key] {
                self.rows_given += 1;
                sequence.turn = self.rows_given;
                sequence.rows = 1;
            }
        }
        self.keys = keys;
    }

    /// Orders those who generate by standing.
    fn rank(&mut self, keys: &mut Vec<usize>) {
        let mut turns = std::mem::take(&mut self.turns);
        turns.clear();
        turns.extend(keys.drain(..).filter_map(|key| {
            let sequence = self.sequences[key].as_ref()?;
            Some(Turn {
                standing: self.row_claim(sequence),
                share: self.share(sequence.slot),
                last: sequence.turn,
                key,
            })
        }));
        self.rank_turns(&mut turns);
        keys.extend(turns.iter().map(|turn| turn.key));
        self.turns = turns;
    }

    /// As if rows were given one by one, each to the account with the lowest counter and there to
    /// the sequence whose last turn is longest ago: the n-th row of an account in this step is
    /// n times its price further up.
    fn rank_turns(&self, turns: &mut [Turn]) {
        turns.sort_unstable_by_key(|turn| {
            let share = (turn.share.place, turn.share.class);
            (share, turn.last, turn.standing.age)
        });
        let mut before = 0;
        for at in 1..turns.len() {
            before = match turns[at].share == turns[at - 1].share {
                true => before + 1,
                false => 0,
            };
            let price = self.accounts.price(turns[at].share, DECODE_COST);
            turns[at].standing.put_off(before * price);
        }
        turns.sort_unstable_by_key(|turn| turn.standing);
    }

    /// Rows that decodes may have.
    fn decodes_max(&self) -> usize {
        let prefill = self.queue.iter().any(|s| s.may_start())
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
            let victim = self.last_with_pages(State::Parked);
            let victim = victim.or_else(|| self.last_with_pages(State::Active));
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

    /// Chunks for those who compute their prompt, from the rows that `decodes` leave and the time
    /// that is left beside them.
    pub(super) fn select_prefill(&mut self, decodes: usize) {
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        keys.extend(
            self.live()
                .filter(|(_, s)| s.prefills())
                .map(|(key, _)| key),
        );
        let mut left = Rows {
            rows: (self.rows_max - decodes).min(self.pace.rows(decodes)),
            logit_rows: self.logit_rows_max - decodes,
        };
        let claim = |key: usize| self.sequences[key].as_ref().map(|s| self.row_claim(s));
        let first = (0..keys.len()).min_by_key(|&at| claim(keys[at]));
        if let Some(first) = first {
            keys.swap(0, first);
            let (first, others) = (keys[0], &mut keys[1..]);
            others.sort_unstable_by_key(|&key| {
                let sequence = self.sequences[key].as_ref();
                sequence.map(|s| (self.row_claim(s).but_for_age(), s.pending(), s.age))
            });
            let half = left.rows.div_ceil(2);
            self.chunk(first, half, &mut left);
            for &key in others.iter() {
                self.chunk(key, usize::MAX, &mut left);
            }
            self.chunk(first, usize::MAX, &mut left);
        }
        self.keys = keys;
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

    /// Writes down who has rows, decodes first, and on whose account.
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
            if decodes {
                plan.decodes = plan.spans.len();
            }
        }
        for (at, span) in plan.spans.iter().enumerate() {
            let Some(sequence) = &mut self.sequences[span.key] else {
                continue;
            };
            let paid = span.positions.len().min(sequence.owed);
            sequence.owed -= paid;
            let slot = sequence.slot;
            let share = self.share(slot);
            self.accounts.pay(share, paid);
            self.accounts.had_rows(share, self.now_ns);
            if at < plan.decodes {
                self.accounts.charge(share, DECODE_COST);
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
