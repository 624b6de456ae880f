//! States of a model with recurrent layers: their references, and the checkpoints of the prefix cache.
//!
//! A state ([`model::SpanStates`]) is never changed after the pass that wrote it. It is in exactly one of three states of
//! bookkeeping, as pages are:
//!
//! - *free*: no reference, content void, on the free stack;
//! - *used*: one or more references from sequences;
//! - *cached*: no reference, checkpoint of an indexed page, on the list of idle states.
//!
//! A checkpoint is the state after the last token of an indexed page: a sequence that begins with the page's tokens can go
//! on from there. A page has at most one, and loses it when the page is evicted.

use crate::idle_list::IdleList;
use model::{PageId, StateId};

/// The reference counts of all states, the free stack and the checkpoints.
pub(crate) struct States {
    refs: Vec<u32>,
    free: Vec<StateId>,
    /// By state: the page whose checkpoint it is.
    page_of: Vec<Option<PageId>>,
    /// By page; empty in a model without states.
    checkpoints: Vec<Option<StateId>>,
    /// Checkpoints without references, least recently used first.
    idle: IdleList,
    /// References found in sequences; scratch of [`States::check`].
    held: Vec<u32>,
}

impl States {
    /// Of a model with `states` states, or without any.
    pub(crate) fn new(states: usize, pages: usize) -> Self {
        Self {
            refs: vec![0; states],
            free: (0..states as StateId).rev().collect(),
            page_of: vec![None; states],
            checkpoints: vec![None; if states > 0 { pages } else { 0 }],
            idle: IdleList::new(states),
            held: vec![0; states],
        }
    }

    /// Whether the model has states.
    pub(crate) fn exist(&self) -> bool {
        !self.refs.is_empty()
    }

    /// Takes a state with one reference: a free one, otherwise the least recently used checkpoint.
    pub(crate) fn take(&mut self) -> Option<StateId> {
        if self.free.is_empty() {
            let page = self.page_of[self.idle.oldest()? as usize];
            self.forget(page.expect("an idle state is a checkpoint"));
        }
        let state = self.free.pop()?;
        self.refs[state as usize] = 1;
        Some(state)
    }

    /// Adds a reference.
    pub(crate) fn share(&mut self, state: StateId) {
        let refs = &mut self.refs[state as usize];
        if *refs == 0 {
            self.idle.remove(state);
        }
        *refs += 1;
    }

    /// Gives one reference back.
    pub(crate) fn release(&mut self, state: StateId) {
        let refs = &mut self.refs[state as usize];
        debug_assert!(*refs > 0, "state {state} released twice");
        *refs -= 1;
        if *refs == 0 {
            match self.page_of[state as usize] {
                Some(_) => self.idle.push_newest(state),
                None => self.free.push(state),
            }
        }
    }

    /// Makes a used state the checkpoint of an indexed page, unless the page has one.
    pub(crate) fn keep(&mut self, page: PageId, state: StateId) {
        let (checkpoint, page_of) = (
            &mut self.checkpoints[page as usize],
            &mut self.page_of[state as usize],
        );
        if checkpoint.is_none() && page_of.is_none() {
            (*checkpoint, *page_of) = (Some(state), Some(page));
        }
    }

    /// The checkpoint of a page.
    pub(crate) fn checkpoint(&self, page: PageId) -> Option<StateId> {
        self.checkpoints.get(page as usize).copied().flatten()
    }

    /// Drops the checkpoint of a page, if there is one.
    pub(crate) fn forget(&mut self, page: PageId) {
        let checkpoint = self.checkpoints.get_mut(page as usize);
        let Some(state) = checkpoint.and_then(Option::take) else {
            return;
        };
        self.page_of[state as usize] = None;
        if self.refs[state as usize] == 0 {
            self.idle.remove(state);
            self.free.push(state);
        }
    }

    /// Panics unless the reference counts are those of the `held` states, the complete list, and each state is in
    /// exactly one state of bookkeeping.
    pub(crate) fn check(&mut self, held: impl Iterator<Item = StateId>) {
        self.held.fill(0);
        held.for_each(|state| self.held[state as usize] += 1);
        assert_eq!(self.refs, self.held, "references to states");
        for state in self.idle.iter() {
            let page = self.page_of[state as usize];
            assert_eq!(self.refs[state as usize], 0, "idle state {state} is held");
            assert!(page.is_some(), "idle state {state} is no checkpoint");
        }
        for &state in &self.free {
            assert_eq!(self.refs[state as usize], 0, "free state {state} is held");
            assert!(self.page_of[state as usize].is_none(), "free checkpoint");
        }
        let unheld = self.refs.iter().filter(|refs| **refs == 0).count();
        assert_eq!(self.free.len() + self.idle.len(), unheld, "states in all");
        for (state, page) in self.page_of.iter().enumerate() {
            let same = page.is_none_or(|page| self.checkpoint(page) == Some(state as StateId));
            assert!(same, "state {state} and its page differ");
        }
    }
}

/// States that a sequence needs: the one before a pass, and the one after.
pub(crate) const STATES_EACH: usize = 2;

/// One state in `CHECKPOINTS_PART` is left to checkpoints.
const CHECKPOINTS_PART: usize = 4;

/// The least number of states of a model with recurrent layers.
pub(crate) const STATES_MIN: usize = STATES_EACH;

/// Sequences that a model with `states` states may have in the engine, parked and preempted ones included.
pub(crate) fn sequences_of(states: usize) -> usize {
    (states - states / CHECKPOINTS_PART) / STATES_EACH
}

/// The states with which a model may have so many sequences in the engine.
pub(crate) fn states_of(sequences: usize) -> usize {
    let each = STATES_EACH * CHECKPOINTS_PART;
    sequences
        .saturating_mul(each)
        .div_ceil(CHECKPOINTS_PART - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_checkpoint_is_evicted() {
        let mut states = States::new(3, 8);
        let taken: Vec<_> = (0..3).map(|_| states.take().unwrap()).collect();
        assert_eq!(states.take(), None);
        for (page, &state) in taken.iter().enumerate() {
            states.keep(page as PageId, state);
            states.release(state);
        }
        states.share(taken[0]); // used last from now on
        states.release(taken[0]);
        states.check([].into_iter());
        assert_eq!(states.take(), Some(taken[1]));
        assert_eq!(states.checkpoint(1), None);
        assert_eq!(states.checkpoint(0), Some(taken[0]));
        states.check([taken[1]].into_iter());
    }

    #[test]
    fn checkpoint_of_an_evicted_page_is_free_when_no_sequence_holds_it() {
        let mut states = States::new(2, 4);
        let [held, idle] = [states.take().unwrap(), states.take().unwrap()];
        states.keep(0, held);
        states.keep(1, idle);
        states.release(idle);
        states.forget(0);
        states.forget(1);
        states.forget(2);
        states.check([held].into_iter());
        assert_eq!(states.take(), Some(idle));
        states.release(held);
        assert_eq!(states.take(), Some(held));
    }

    #[test]
    fn page_keeps_its_first_checkpoint() {
        let mut states = States::new(2, 4);
        let [first, second] = [states.take().unwrap(), states.take().unwrap()];
        states.keep(3, first);
        states.keep(3, second);
        states.release(second);
        assert_eq!(states.checkpoint(3), Some(first));
        assert_eq!(states.take(), Some(second));
    }

    #[test]
    fn model_without_states_has_no_checkpoints() {
        let mut states = States::new(0, 4);
        assert!(!states.exist());
        assert_eq!((states.checkpoint(2), states.take()), (None, None));
        states.forget(2);
        states.check([].into_iter());
    }

    #[test]
    fn sequences_have_the_states_that_they_need() {
        for sequences in 1..300 {
            let states = states_of(sequences);
            assert!(sequences_of(states) >= sequences);
            assert!(
                sequences_of(states - 2) < sequences,
                "{sequences}: not too many"
            );
        }
        assert_eq!((states_of(0), states_of(1), states_of(256)), (0, 3, 683));
        assert_eq!(sequences_of(STATES_MIN), 1);
    }
}
