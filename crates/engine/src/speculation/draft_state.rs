//! A sequence's draft tokens: from an earlier occurrence of its last tokens (prompt lookup), or with keys and values in
//! the draft model; and their verification.

use super::profitability::DraftHistory;
use crate::Progress;
use crate::media::is_media;
use crate::pages::Pages;
use crate::prefix_index::PrefixChain;
use model::PageId;
use std::sync::Arc;

/// A sequence's draft tokens in the step that is being planned, and the record of earlier ones.
pub(crate) struct DraftState {
    /// Empty, or the sequence's last token and the draft tokens: the rows of the verification.
    rows: Vec<u32>,
    /// Whether the draft tokens are forced: the constraint allows no others.
    pub(crate) is_forced: bool,
    /// Draft tokens that the draft model may propose in this step.
    pub(crate) proposal_max: usize,
    /// Acceptance of earlier draft tokens.
    pub(crate) history: DraftHistory,
    /// Keys and values in the draft model.
    pub(crate) table: DraftPageTable,
}

impl DraftState {
    /// With capacity for `tokens_max` draft or forced tokens and `pages_max` pages of the draft model.
    pub(crate) fn new(tokens_max: usize, pages_max: usize) -> Self {
        Self {
            rows: Vec::with_capacity(if tokens_max > 0 { 1 + tokens_max } else { 0 }),
            is_forced: false,
            proposal_max: 0,
            history: DraftHistory::default(),
            table: DraftPageTable::new(pages_max),
        }
    }

    /// Removes all draft tokens.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.is_forced = false;
        self.proposal_max = 0;
    }

    /// The draft tokens.
    pub(crate) fn tokens(&self) -> &[u32] {
        self.rows.get(1..).unwrap_or_default()
    }

    /// The sequence's last token and the draft tokens; empty without draft tokens.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Marks the draft tokens as forced, if there are any.
    pub(crate) fn mark_forced(&mut self) {
        self.is_forced = !self.rows.is_empty();
    }

    /// Replaces the draft tokens by those that `fill` appends after the sequence's last token.
    pub(crate) fn fill(&mut self, last: Option<&u32>, fill: impl FnOnce(&mut Vec<u32>)) {
        self.rows.clear();
        self.rows.extend(last);
        fill(&mut self.rows);
        self.drop_lone_token();
    }

    /// Adds a draft token; `last` is the sequence's last token.
    pub(crate) fn push(&mut self, last: u32, draft: u32) {
        if self.rows.is_empty() {
            self.rows.push(last);
        }
        self.rows.push(draft);
    }

    /// Keeps the first `drafts` draft tokens.
    pub(crate) fn truncate(&mut self, drafts: usize) {
        self.rows.truncate(1 + drafts);
        self.drop_lone_token();
    }

    /// Removes the first end token and all tokens after the end token: these are never sampled, and the end
    /// token is sampled from the preceding row.
    pub(crate) fn cut_at(&mut self, eos: &[u32]) {
        if let Some(end) = self.tokens().iter().position(|token| eos.contains(token)) {
            self.truncate(end);
        }
    }

    /// Without draft tokens there is nothing to verify.
    fn drop_lone_token(&mut self) {
        if self.rows.len() == 1 {
            self.rows.clear();
        }
    }
}

/// A sequence's page table in the draft model's pages, for accepted tokens.
pub(crate) struct DraftPageTable {
    pub(crate) pages: Vec<PageId>,
    /// Positions, from the first, whose keys and values exist.
    pub(crate) computed: usize,
    /// Pages, from the first, that are in the prefix index, and the chain that ends with the last of them.
    pub(crate) indexed: usize,
    pub(crate) chain: PrefixChain,
}

impl DraftPageTable {
    pub(crate) fn new(pages_max: usize) -> Self {
        Self {
            pages: Vec::with_capacity(pages_max),
            computed: 0,
            indexed: 0,
            chain: PrefixChain::START,
        }
    }

    /// Indexes full pages by their content, the sequence's tokens.
    pub(crate) fn index(&mut self, tokens: &[u32], pages: &mut Pages) {
        let page_tokens = pages.page_tokens();
        while (self.indexed + 1) * page_tokens <= self.computed {
            let at = self.indexed;
            let content = &tokens[at * page_tokens..][..page_tokens];
            (self.pages[at], self.chain) = pages.index(self.pages[at], self.chain, content);
            self.indexed += 1;
        }
    }

    /// Gives all pages back.
    pub(crate) fn release(&mut self, pages: &mut Pages) {
        pages.release_all(&mut self.pages);
        (self.computed, self.indexed) = (0, 0);
        self.chain = PrefixChain::START;
    }
}

/// How many of a sequence's draft tokens were sampled. Outlives the sequence, which may end on the way.
#[derive(Default)]
pub(crate) struct Verification {
    pub(crate) is_forced: bool,
    drafted: usize,
    accepted: usize,
    progress: Option<Arc<Progress>>,
}

impl Verification {
    pub(crate) fn of(drafts: &DraftState, progress: &Arc<Progress>) -> Self {
        let drafted = drafts.tokens().len();
        Self {
            is_forced: drafts.is_forced,
            drafted,
            accepted: 0,
            progress: (drafted > 0).then(|| Arc::clone(progress)),
        }
    }

    /// Compares a row's draft token with the token that was sampled and appended. Returns whether they are equal,
    /// so that the next row's logits are valid.
    pub(crate) fn accept(&mut self, draft: Option<u32>, appended: Option<u32>) -> bool {
        let is_equal = draft.is_some() && appended == draft;
        self.accepted += usize::from(is_equal);
        is_equal
    }

    pub(crate) fn drafted(&self) -> usize {
        self.drafted
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted
    }

    /// Adds the draft tokens to the request's counters.
    pub(crate) fn record_progress(&self) {
        if let Some(progress) = &self.progress {
            progress.add_drafts(self.drafted, self.accepted);
        }
    }
}

/// The shortest n-gram that is searched for: one token predicts little.
const NGRAM_MIN: usize = 2;

/// A match of this length is as good as any longer one.
const NGRAM_MAX: usize = 5;

/// Tokens that are searched, from the last: some microseconds per sequence and step.
const LOOK_BACK: usize = 16_384;

/// Appends to `drafts` up to `most` tokens that follow an earlier occurrence of the last tokens: the
/// longest match, the latest where equal. The continuation may run into the draft tokens themselves, when
/// a pattern shorter than `most` repeats.
pub(crate) fn lookup_prompt(tokens: &[u32], most: usize, drafts: &mut Vec<u32>) {
    let Some(mut from) = longest_match(&tokens[tokens.len().saturating_sub(LOOK_BACK)..]) else {
        return;
    };
    from += tokens.len().saturating_sub(LOOK_BACK);
    let first = drafts.len();
    for at in from..from + most {
        let token = match at.checked_sub(tokens.len()) {
            None => tokens[at],
            Some(beyond) => drafts[first + beyond],
        };
        if is_media(token) {
            return;
        }
        drafts.push(token);
    }
}

/// The end of the longest earlier occurrence of the last tokens.
fn longest_match(tokens: &[u32]) -> Option<usize> {
    let (&last, before) = tokens.split_last()?;
    let (mut best, mut longest) = (None, NGRAM_MIN - 1);
    for (at, _) in before.iter().enumerate().rev().filter(|(_, t)| **t == last) {
        let length = common_suffix(&tokens[..=at], tokens);
        if length > longest {
            (best, longest) = (Some(at + 1), length);
            if length >= NGRAM_MAX {
                break;
            }
        }
    }
    best
}

/// Length of the common suffix, up to [`NGRAM_MAX`].
fn common_suffix(a: &[u32], b: &[u32]) -> usize {
    let pairs = a.iter().rev().zip(b.iter().rev());
    pairs.take(NGRAM_MAX).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_are_empty_without_draft_tokens() {
        let mut drafts = DraftState::new(4, 0);
        drafts.fill(Some(&7), |_| {});
        assert!(drafts.rows().is_empty());
        drafts.fill(Some(&7), |into| into.extend([1, 2, 3, 4]));
        assert_eq!(drafts.rows(), [7, 1, 2, 3, 4]);
        drafts.cut_at(&[3]);
        assert_eq!(drafts.tokens(), [1, 2]);
        drafts.mark_forced();
        assert!(drafts.is_forced);
        drafts.truncate(0);
        assert!(drafts.rows().is_empty() && drafts.tokens().is_empty());
        drafts.push(7, 5);
        assert_eq!(drafts.rows(), [7, 5]);
    }

    fn drafts_of(tokens: &[u32], most: usize) -> Vec<u32> {
        let mut drafts = Vec::new();
        lookup_prompt(tokens, most, &mut drafts);
        drafts
    }

    #[test]
    fn drafts_follow_the_earlier_occurrence() {
        let check = |label, tokens: &[u32], most, expected: &[u32]| {
            assert_eq!(drafts_of(tokens, most), expected, "{label}");
        };
        check("no tokens", &[], 4, &[]);
        check("no repetition", &[1, 2, 3], 4, &[]);
        check("one token is too short", &[1, 2, 3, 1], 4, &[]);
        check("two tokens", &[1, 2, 3, 4, 1, 2], 2, &[3, 4]);
        check(
            "into the drafts",
            &[1, 2, 3, 1, 2],
            7,
            &[3, 1, 2, 3, 1, 2, 3],
        );
        check("one token repeated", &[9, 9, 9], 3, &[9, 9, 9]);
        check("latest occurrence", &[1, 2, 5, 1, 2, 6, 1, 2], 1, &[6]);
        let longer = [7, 1, 2, 5, 8, 1, 2, 6, 7, 1, 2];
        check("longest occurrence", &longer, 1, &[5]);
        check("none wanted", &[1, 2, 1, 2], 0, &[]);
    }

    #[test]
    fn occurrence_beyond_the_look_back_is_not_found() {
        let mut tokens = vec![1, 2, 3];
        tokens.extend((0..LOOK_BACK as u32).map(|i| 10 + i));
        tokens.extend([1, 2]);
        assert!(drafts_of(&tokens, 3).is_empty());
        tokens.extend([3, 1, 2]);
        assert_eq!(drafts_of(&tokens, 3), [3, 1, 2]);
    }

    proptest! {
        #[test]
        fn drafts_equal_those_of_a_plain_search(
            tokens in prop::collection::vec(0u32..4, 0..60),
            most in 0usize..12,
        ) {
            let ends = |at: usize, length: usize| tokens[..at].ends_with(&tokens[tokens.len() - length..]);
            let found = (NGRAM_MIN..=NGRAM_MAX.min(tokens.len())).rev().find_map(|length| {
                (length..tokens.len()).rev().find(|&at| ends(at, length))
            });
            let mut all = tokens.clone();
            if let Some(from) = found {
                (from..from + most).for_each(|at| all.push(all[at]));
            }
            prop_assert_eq!(drafts_of(&tokens, most), &all[tokens.len()..]);
        }
    }
}
