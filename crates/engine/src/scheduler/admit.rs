//! Who gets a place: pages for all its tokens.

use super::standing::{Claim, Standing};
use super::{Scheduler, count};
use crate::accounts::Share;
use crate::age::Age;
use crate::sequence::{Sequence, State};
use crate::{Phase, Transition};
use std::sync::Arc;

/// Places given in one step at most, so that a burst of requests does not hold up those who run.
const ADMITTED_MAX: usize = 64;

/// Somebody who waits for a place.
pub(super) struct Candidate {
    /// A sequence that had one; `None`: a queued request.
    key: Option<usize>,
    share: Share,
    waits_ns: u64,
    age: Age,
}

impl Scheduler {
    /// Gives places by standing; the first who finds none ends it, so that nobody overtakes.
    pub(super) fn admit(&mut self) {
        let mut candidates = std::mem::take(&mut self.candidates);
        self.line_up(&mut candidates);
        for _ in 0..ADMITTED_MAX {
            // Each place given changes what its account has had.
            let all = candidates.iter().enumerate();
            let Some((at, _)) = all.min_by_key(|(_, c)| self.place_claim(c)) else {
                break;
            };
            let candidate = candidates.swap_remove(at);
            let placed = match candidate.key {
                Some(key) => self.admit_again(key),
                None => self.admit_new(candidate.age),
            };
            if !placed {
                break;
            }
            self.accounts.started(candidate.share, self.now_ns);
        }
        self.candidates = candidates;
    }

    /// All who wait for a place.
    fn line_up(&self, candidates: &mut Vec<Candidate>) {
        candidates.clear();
        let lost = self.live().filter(|(_, s)| s.state == State::Waiting);
        candidates.extend(lost.map(|(key, s)| Candidate {
            key: Some(key),
            share: self.share(s.slot),
            waits_ns: s.waits_ns,
            age: s.age,
        }));
        let queued = self.queue.iter().filter(|s| s.may_start());
        candidates.extend(queued.map(|s| Candidate {
            key: None,
            share: s.common.share,
            waits_ns: s.sequences[0].waits_ns,
            age: s.sequences[0].age,
        }));
    }

    fn place_claim(&self, candidate: &Candidate) -> Standing {
        let served_ns = self.accounts.started_ns(candidate.share);
        self.standing(&Claim {
            share: candidate.share,
            since_ns: candidate.waits_ns.max(served_ns),
            new: candidate.key.is_none(),
            place: true,
            age: candidate.age,
        })
    }

    /// A preempted sequence, or one that was parked without pages and may go on.
    fn admit_again(&mut self, key: usize) -> bool {
        let Some(mut sequence) = self.sequences[key].take() else {
            return true;
        };
        let placed = self.place(&mut sequence);
        self.sequences[key] = Some(sequence);
        placed
    }

    /// The queued request of this age. The queue is in order of age.
    fn admit_new(&mut self, age: Age) -> bool {
        let at = self.queue.partition_point(|s| s.sequences[0].age < age);
        let Some(mut submitted) = self.queue.remove(at) else {
            return false;
        };
        let fits = submitted.sequences.len() <= self.vacant.len();
        if !fits || !self.place(&mut submitted.sequences[0]) {
            // It was just taken out: there is room.
            self.queue.insert(at, submitted);
            return false;
        }
        self.inbox.unqueued(&submitted.common);
        let (mut common, leader) = (submitted.common, &mut submitted.sequences[0]);
        let owed = leader.pending();
        leader.owed = owed;
        common.from_ns = self.now_ns;
        let (id, share) = (common.id, common.share);
        let waited = self.now_ns.saturating_sub(common.since_ns);
        self.inbox.stats.queue_wait.record(waited);
        self.accounts.owe(share, owed);
        common.progress.set_phase(Phase::Prefilling);
        common.progress.set_started(self.now_ns);
        common.progress.set_cached_tokens(leader.computed);
        common.progress.set_prompt_done(leader.computed);
        let (slot, progress) = (common.slot, Arc::clone(&common.progress));
        self.requests[slot] = Some(common);
        for sequence in submitted.sequences {
            self.accounts.want(share);
            self.seat(sequence);
        }
        self.accounts.want_not(share);
        self.tell(id, &progress, Transition::Started);
        true
    }

    /// Puts a sequence into the table, and its key in order of age.
    fn seat(&mut self, sequence: Sequence) {
        let sequences = &self.sequences;
        let older = |key: &usize| {
            let other = sequences[*key].as_ref();
            other.is_some_and(|other| other.age < sequence.age)
        };
        let at = self.order.partition_point(older);
        let key = self.vacant.pop().expect("there are vacant keys for all");
        self.order.insert(at, key);
        self.sequences[key] = Some(sequence);
    }

    /// Takes pages for all tokens of a sequence: shared ones for its beginning where they are
    /// known, its own for the rest. The last token is always computed, for its logits; for an embedding
    /// all are.
    fn place(&mut self, sequence: &mut Sequence) -> bool {
        let known = match sequence.pool {
            None => &sequence.tokens[..sequence.tokens.len() - 1],
            Some(_) => &[],
        };
        let (age, salt) = (sequence.age, sequence.salt);
        let chain = self.pages.reuse(age, salt, known, &mut sequence.pages);
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
            let Some(key) = self.last_with_pages(State::Parked) else {
                return false;
            };
            self.preempt(key);
        }
        true
    }

    /// Who has to give up pages first among those in this state.
    pub(super) fn last_with_pages(&self, state: State) -> Option<usize> {
        let holders = self.live().filter(|(_, s)| !s.pages.is_empty());
        holders
            .filter(|(_, s)| s.state == state)
            .max_by_key(|(_, s)| self.page_claim(s))
            .map(|(key, _)| key)
    }
}
