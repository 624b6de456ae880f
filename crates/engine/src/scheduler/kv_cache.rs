//! Pages of keys and values as sequences hold them: taken at the start, extended while decoding, given back; and the
//! states of a model with recurrent layers.

use crate::disk_cache::KnownPages;
use crate::pages::{PageCounts, Pages};
use crate::plan::PageCopy;
use crate::prefix_index::PrefixChain;
use crate::sequence::{Sequence, SequenceState};
use crate::states::STATES_EACH;
use model::Dims;

/// One in `DRAFTED_PART` of the states that passes do not need may be between draft tokens: others are for checkpoints.
const DRAFTED_PART: usize = 2;

/// The model's pages and states.
pub(super) struct KvCache {
    pub(super) pages: Pages,
    /// States that sequences may hold for checkpoints and between draft tokens: those that cannot be needed for passes.
    pub(super) spare_max: usize,
    /// States that sequences keep for checkpoints.
    pub(super) kept: usize,
    /// States between draft tokens.
    pub(super) drafted: usize,
}

impl KvCache {
    /// Pages and states of a model, for at most `sequences_max` sequences.
    pub(super) fn new(
        dims: &Dims,
        prefix_cache: bool,
        states: usize,
        sequences_max: usize,
    ) -> Self {
        Self {
            pages: Pages::new(dims, prefix_cache).with_states(states),
            spare_max: states.saturating_sub(STATES_EACH * sequences_max),
            kept: 0,
            drafted: 0,
        }
    }

    /// Whether sequences have states, and can go on only from a checkpoint.
    pub(super) fn is_recurrent(&self) -> bool {
        self.pages.states.exist()
    }

    /// Whether one more state may be held beside those that passes need.
    pub(super) fn has_spare_state(&self) -> bool {
        self.kept + self.drafted < self.spare_max
    }

    /// States that may be between draft tokens at a time.
    pub(super) fn drafted_max(&self) -> usize {
        self.spare_max.div_ceil(DRAFTED_PART)
    }

    /// Pages that can be taken without preempting a sequence.
    pub(super) fn available(&self) -> usize {
        self.pages.available()
    }

    pub(super) fn counts(&self) -> PageCounts {
        self.pages.counts()
    }

    /// Takes references to the indexed pages of a sequence's beginning. Returns how many more pages the
    /// sequence's tokens need.
    ///
    /// The last token is always computed, because the logits are needed; for an embedding all tokens are
    /// computed.
    pub(super) fn reuse_prefix(&mut self, sequence: &mut Sequence) -> usize {
        let known = match sequence.pool {
            None => &sequence.tokens[..sequence.tokens.len() - 1],
            Some(_) => &[],
        };
        let (age, root) = (sequence.age, sequence.root);
        sequence.chain = self.pages.reuse(age, root, known, &mut sequence.pages);
        self.reuse_state(sequence);
        self.pages.pages_for(sequence.tokens.len()) - sequence.pages.len()
    }

    /// Finds the indexed pages of a queued sequence's beginning, and makes them the most recently used ones.
    pub(super) fn touch_prefix(&mut self, sequence: &mut Sequence) -> KnownPages {
        let known = &sequence.tokens[..sequence.tokens.len() - 1];
        let (age, root) = (sequence.age, sequence.root);
        let chain = self.pages.reuse(age, root, known, &mut sequence.pages);
        let pages = sequence.pages.len();
        self.pages.release_all(&mut sequence.pages);
        KnownPages { pages, chain }
    }

    /// Adds the pages that [`KvCache::reuse_prefix`] found missing and activates the sequence. Returns the
    /// positions that need not be computed.
    pub(super) fn activate(&mut self, sequence: &mut Sequence, missing: usize) -> usize {
        let reused = sequence.pages.len();
        let own = std::iter::repeat_with(|| self.pages.take())
            .take(missing)
            .flatten();
        sequence.pages.extend(own);
        sequence.state = SequenceState::Active;
        sequence.indexed = reused;
        sequence.computed = reused * self.pages.page_tokens();
        sequence.computed
    }

    /// Gives all pages of a sequence back.
    pub(super) fn release(&mut self, sequence: &mut Sequence) {
        self.pages.release_all(&mut sequence.pages);
        self.release_states(sequence);
    }

    /// Releases all pages of a sequence. The tokens are computed again when the sequence gets new pages.
    pub(super) fn preempt(&mut self, sequence: &mut Sequence) {
        self.release(sequence);
        (sequence.computed, sequence.indexed) = (0, 0);
        sequence.chain = PrefixChain::Start(sequence.root);
        sequence.rows = 0;
        sequence.in_flight = None;
        if sequence.state == SequenceState::Active {
            sequence.state = SequenceState::Waiting;
        }
    }

    /// Makes the page of a sequence's next position writable: present and not shared. Returns false when
    /// there is no free page.
    pub(super) fn extend(
        &mut self,
        key: usize,
        sequence: &mut Sequence,
        copies: &mut Vec<PageCopy>,
    ) -> bool {
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

    /// Takes states for `drafts` draft tokens, and free pages for their positions. Returns for how many there are both.
    pub(super) fn reserve_drafts(&mut self, sequence: &mut Sequence, drafts: usize) -> usize {
        let drafts = self.reserve_draft_states(sequence, drafts);
        let positions = sequence.computed + 1;
        let need = self.pages.pages_for(positions + drafts);
        while sequence.pages.len() < need {
            let Some(page) = self.pages.take_free() else {
                break;
            };
            sequence.pages.push(page);
        }
        let held = sequence.pages.len() * self.pages.page_tokens();
        drafts.min(held - positions)
    }

    /// Gives back the pages after the computed positions.
    pub(super) fn trim(&mut self, sequence: &mut Sequence) {
        let keep = self.pages.pages_for(sequence.computed);
        while sequence.pages.len() > keep
            && let Some(page) = sequence.pages.pop()
        {
            self.pages.release(page);
        }
    }

    /// Shares the pages of the choice that computed the prompt with another choice.
    pub(super) fn fork(&mut self, leader: &Sequence, choice: &mut Sequence) {
        choice.share_prompt_of(leader);
        leader.pages.iter().for_each(|&page| self.pages.share(page));
        if let Some(state) = choice.states.current {
            self.pages.states.share(state);
        }
    }

    /// Indexes the full pages of a sequence. Called only after the logits of the pass are known to be
    /// finite: pages of a broken pass are never reused.
    pub(super) fn index(&mut self, sequence: &mut Sequence) {
        let page_tokens = self.pages.page_tokens();
        while (sequence.indexed + 1) * page_tokens <= sequence.computed {
            let at = sequence.indexed;
            let content = &sequence.tokens[at * page_tokens..][..page_tokens];
            let (page, chain) = self
                .pages
                .index(sequence.pages[at], sequence.chain, content);
            sequence.pages[at] = page;
            sequence.chain = chain;
            sequence.indexed += 1;
        }
        self.keep_checkpoints(sequence);
    }

    /// Panics unless all pages are conserved and every sequence agrees with the page table.
    pub(super) fn check<'a>(&mut self, sequences: impl Iterator<Item = &'a Sequence> + Clone) {
        let page_tokens = self.pages.page_tokens();
        sequences.clone().for_each(|s| s.check(page_tokens));
        self.pages.check(sequences.clone().map(|s| &s.pages[..]));
        let is_recurrent = self.is_recurrent();
        for sequence in sequences.clone() {
            let next = sequence.pages.get(sequence.computed / page_tokens);
            let is_indexed = next.is_some_and(|&page| self.pages.chain_of(page).is_some());
            assert!(!is_indexed, "an indexed page is written next");
            let has_state = sequence.states.current.is_some();
            let wanted = is_recurrent && sequence.computed > 0;
            assert_eq!(has_state, wanted, "a state and computed positions");
        }
        let kept: usize = sequences.clone().map(|s| s.states.kept()).sum();
        assert_eq!(self.kept, kept, "states kept for checkpoints");
        let drafted: usize = sequences.clone().map(|s| s.states.drafted()).sum();
        assert_eq!(self.drafted, drafted, "states between draft tokens");
        let held = sequences.flat_map(|s| s.states.held());
        self.pages.states.check(held);
    }
}
