//! Who gets a place: pages for all its tokens.

use super::{Scheduler, count};
use crate::Phase;
use crate::sequence::{Sequence, State};

impl Scheduler {
    /// Gives places in order of age; the first who finds none ends it, so that nobody overtakes.
    pub(super) fn admit(&mut self) {
        for at in 0..self.order.len() {
            let key = self.order[at];
            if self.sequences[key]
                .as_ref()
                .is_some_and(|s| s.state == State::Waiting)
                && !self.admit_again(key)
            {
                return;
            }
        }
        while self.admit_new() {}
    }

    /// A preempted sequence, or one that was parked without pages and has credit again.
    fn admit_again(&mut self, key: usize) -> bool {
        let Some(mut sequence) = self.sequences[key].take() else {
            return true;
        };
        let placed = self.place(&mut sequence);
        self.sequences[key] = Some(sequence);
        placed
    }

    /// The oldest request of the queue.
    fn admit_new(&mut self) -> bool {
        let fits = |wanted: usize| wanted <= self.vacant.len();
        if !self.queue.front().is_some_and(|s| fits(s.sequences.len())) {
            return false;
        }
        let Some(mut submitted) = self.queue.pop_front() else {
            return false;
        };
        if !self.place(&mut submitted.sequences[0]) {
            // It was just taken out: there is room.
            self.queue.push_front(submitted);
            return false;
        }
        self.inbox.unqueued(&submitted.common);
        let (common, leader) = (submitted.common, &submitted.sequences[0]);
        common.progress.set_phase(Phase::Prefilling);
        common.progress.set_started(self.now_ns);
        common.progress.set_cached_tokens(leader.computed);
        common.progress.set_prompt_done(leader.computed);
        let slot = common.slot;
        self.requests[slot] = Some(common);
        for sequence in submitted.sequences {
            let key = self.vacant.pop().expect("counted above");
            self.sequences[key] = Some(sequence);
            self.order.push(key);
        }
        true
    }

    /// Takes pages for all tokens of a sequence: shared ones for its beginning where they are
    /// known, its own for the rest. The last token is always computed, for its logits.
    fn place(&mut self, sequence: &mut Sequence) -> bool {
        let known = &sequence.tokens[..sequence.tokens.len() - 1];
        let chain = self.pages.reuse(known, &mut sequence.pages);
        let reused = sequence.pages.len();
        let need = self.pages.pages_for(sequence.tokens.len()) - reused;
        if !self.make_room(need) {
            self.pages.release_all(&mut sequence.pages);
            return false;
        }
        let own = std::iter::repeat_with(|| self.pages.take())
            .take(need)
            .flatten();
        sequence.pages.extend(own);
        sequence.state = State::Active;
        sequence.indexed = reused;
        sequence.chain = chain;
        sequence.computed = reused * self.pages.page_tokens();
        count(&self.inbox.stats.prefix_hit_tokens, sequence.computed);
        true
    }

    /// Whether there are `need` pages beside the headroom, after parked sequences gave up theirs
    /// if that helps.
    fn make_room(&mut self, need: usize) -> bool {
        let running = self
            .live()
            .filter(|(_, s)| s.state == State::Active)
            .count();
        let wanted = need + running.min(self.inbox.dims.pages / 8);
        let parked = self.live().filter(|(_, s)| s.state == State::Parked);
        let could: usize = parked.map(|(_, s)| s.pages.len()).sum();
        if self.pages.available() + could < wanted {
            return false;
        }
        while self.pages.available() < wanted {
            let Some(key) = self.youngest_with_pages(State::Parked) else {
                return false;
            };
            self.preempt(key);
        }
        true
    }

    /// Who has to give up pages first among those in this state.
    pub(super) fn youngest_with_pages(&self, state: State) -> Option<usize> {
        let mut holders = self.live().rev().filter(|(_, s)| !s.pages.is_empty());
        holders.find(|(_, s)| s.state == state).map(|(key, _)| key)
    }
}
