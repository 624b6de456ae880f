//! A sequence's states, in a model with recurrent layers.

use model::{KEPT_MAX, KeptState, SpanStates, StateId};
use std::ops::Range;

/// Pages between the checkpoints of a long prompt or answer: 1024 tokens with pages of 32.
const CHECKPOINT_PAGES: usize = 32;

/// The states that a sequence holds references to. All are absent in a model without recurrent layers.
#[derive(Default)]
pub(crate) struct SequenceStates {
    /// The state after all computed positions.
    pub(crate) current: Option<StateId>,
    /// Receives the state after the span that is planned.
    pub(crate) next: Option<StateId>,
    /// Positions whose states are to become checkpoints, ascending; 0 for none.
    cuts: [usize; KEPT_MAX],
    /// The states at these positions, from their pass until the pages before them are indexed.
    kept: [Option<StateId>; KEPT_MAX],
    /// Receive the states after the first rows of a verification: after each but the last.
    drafted: [Option<StateId>; KEPT_MAX],
}

impl SequenceStates {
    /// Chooses the positions for checkpoints, of a sequence of `tokens` tokens whose first `computed` need not be computed
    /// and whose first `known` were indexed before:
    ///
    /// - the end of `known`: a prefix that was used twice will be used again (Marconi, Pan et al. 2025);
    /// - the last end of a page, from where a longer conversation goes on;
    /// - the last multiple of [`CHECKPOINT_PAGES`] before it, for another question about the same text.
    pub(crate) fn choose_cuts(
        &mut self,
        (computed, known): (usize, usize),
        tokens: usize,
        page_tokens: usize,
    ) {
        let multiple = |position: usize, of: usize| position.saturating_sub(1) / of * of;
        let last = multiple(tokens, page_tokens);
        let mut cuts = [known, last, multiple(last, CHECKPOINT_PAGES * page_tokens)];
        for at in 0..KEPT_MAX {
            let is_new = cuts[at] > computed && !cuts[..at].contains(&cuts[at]);
            cuts[at] = if is_new { cuts[at] } else { 0 };
        }
        cuts.sort_unstable();
        self.cuts = cuts;
    }

    /// The states of a choice that shares the computed prompt; the caller counts the reference.
    pub(super) fn of_fork(&self) -> Self {
        Self {
            current: self.current,
            ..Self::default()
        }
    }

    /// The states of a sequence's last token and `drafts` draft tokens; `None` in a model without any.
    pub(crate) fn of_verification(&self, drafts: usize) -> Option<SpanStates> {
        let mut states = SpanStates::new(self.current, self.next?);
        let places = states.kept.iter_mut().zip(self.drafted);
        for (row, (place, state)) in places.take(drafts).enumerate() {
            *place = state.map(|state| KeptState {
                tokens: row + 1,
                state,
            });
        }
        Some(states)
    }

    /// The states of a planned span without draft tokens; `None` in a model without any.
    pub(crate) fn of_span(&self, positions: &Range<usize>) -> Option<SpanStates> {
        let mut states = SpanStates::new(self.current, self.next?);
        let mut places = states.kept.iter_mut();
        for (cut, state) in self.cuts.iter().zip(self.kept) {
            if is_inside(*cut, positions)
                && let (Some(state), Some(place)) = (state, places.next())
            {
                *place = Some(KeptState {
                    tokens: cut - positions.start,
                    state,
                });
            }
        }
        Some(states)
    }

    /// The places for the states that a span passes on its way.
    pub(crate) fn places_inside(
        &mut self,
        positions: &Range<usize>,
    ) -> impl Iterator<Item = &mut Option<StateId>> {
        let places = self.cuts.iter().zip(&mut self.kept);
        let inside = places.filter(|(cut, kept)| kept.is_none() && is_inside(**cut, positions));
        inside.map(|(_, kept)| kept)
    }

    /// The places for the states between draft tokens.
    pub(crate) fn draft_places(&mut self) -> impl Iterator<Item = &mut Option<StateId>> {
        self.drafted.iter_mut()
    }

    /// Takes the state that a pass with `drafts` draft tokens wrote after row `row` of the span; without draft tokens the
    /// span counts as one row.
    pub(crate) fn take_written(&mut self, row: usize, drafts: usize) -> Option<StateId> {
        if row < drafts {
            self.drafted.get_mut(row)?.take()
        } else {
            self.next.take()
        }
    }

    /// Takes the states between draft tokens that are left.
    pub(crate) fn take_drafted(&mut self) -> impl Iterator<Item = StateId> {
        self.drafted.iter_mut().filter_map(Option::take)
    }

    /// The place for the state at this position, if a checkpoint is wanted there.
    pub(crate) fn place_at(&mut self, position: usize) -> Option<&mut Option<StateId>> {
        let mut places = self.cuts.iter().zip(&mut self.kept);
        let place = places.find(|(cut, kept)| kept.is_none() && **cut == position && position > 0);
        place.map(|(_, kept)| kept)
    }

    /// Takes the kept states at positions up to `end`.
    pub(crate) fn take_kept(&mut self, end: usize) -> impl Iterator<Item = (usize, StateId)> {
        let kept = self.cuts.iter().zip(&mut self.kept);
        let ready = kept.filter(move |(cut, _)| **cut <= end);
        ready.filter_map(|(&cut, kept)| Some((cut, kept.take()?)))
    }

    /// Whether the state after `position` is to become a checkpoint although no cut was chosen there: at regular
    /// distances in an answer.
    pub(crate) fn is_regular_cut(position: usize, page_tokens: usize) -> bool {
        position > 0 && position.is_multiple_of(CHECKPOINT_PAGES * page_tokens)
    }

    /// All states held.
    pub(crate) fn held(&self) -> impl Iterator<Item = StateId> {
        let single = [self.current, self.next].into_iter();
        single.chain(self.kept).chain(self.drafted).flatten()
    }

    /// The number of states between draft tokens.
    pub(crate) fn drafted(&self) -> usize {
        self.drafted.iter().flatten().count()
    }

    /// The number of kept states.
    pub(crate) fn kept(&self) -> usize {
        self.kept.iter().flatten().count()
    }
}

fn is_inside(cut: usize, positions: &Range<usize>) -> bool {
    positions.start < cut && cut < positions.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_at_ends_of_pages_and_ascend() {
        // (computed, known before), tokens, cuts
        let rows = [
            ((0, 0), 5, [0, 0, 4]),
            ((0, 0), 4, [0, 0, 0]),
            ((0, 0), 9, [0, 0, 8]),
            ((0, 4), 9, [0, 4, 8]),
            ((0, 8), 9, [0, 0, 8]),
            ((8, 8), 9, [0, 0, 0]),
            ((0, 12), 300, [12, 256, 296]),
            ((0, 0), 129, [0, 0, 128]),
            ((0, 0), 133, [0, 128, 132]),
            ((128, 132), 140, [0, 132, 136]),
        ];
        for (before, tokens, wanted) in rows {
            let mut states = SequenceStates::default();
            states.choose_cuts(before, tokens, 4);
            assert_eq!(states.cuts, wanted, "{before:?} {tokens}");
        }
    }

    #[test]
    fn span_writes_the_states_of_the_cuts_inside() {
        let mut states = SequenceStates::default();
        states.choose_cuts((0, 12), 300, 4);
        assert_eq!(states.of_span(&(0..20)), None, "nothing was reserved");
        states.next = Some(7);
        for (next, place) in (8..).zip(states.places_inside(&(0..296))) {
            *place = Some(next);
        }
        let kept = |tokens, state| Some(KeptState { tokens, state });
        let span = states.of_span(&(0..296)).unwrap();
        assert_eq!((span.before, span.after), (None, 7));
        assert_eq!(span.kept, [kept(12, 8), kept(256, 9), None]);
        *states.place_at(296).unwrap() = Some(10);
        assert!(states.place_at(296).is_none() && states.place_at(0).is_none());
        assert_eq!(states.kept(), 3);
        let ready: Vec<_> = states.take_kept(256).collect();
        assert_eq!(ready, [(12, 8), (256, 9)]);
        assert_eq!(states.held().collect::<Vec<_>>(), [7, 10]);
    }
}
