//! How many draft tokens a sequence gets, and where they come from.

use super::draft_model::DraftModel;
use super::mtp_head::MtpHead;
use super::sequence_table::SequenceTable;
use crate::inbox::Inbox;
use crate::request_state::RequestState;
use crate::sequence::Sequence;
use crate::speculation::{MTP_TOKENS_MAX, Profitability, lookup_prompt};
use crate::{Speculation, StepFacts};

/// The source of draft tokens and the measure of their profit.
pub(super) struct Speculator {
    mode: Speculation,
    /// Draft tokens per sequence and step.
    draft_tokens_max: usize,
    profitability: Profitability,
    pub(super) draft_model: Option<DraftModel>,
    pub(super) mtp_head: Option<MtpHead>,
}

impl Speculator {
    pub(super) fn new(inbox: &Inbox) -> Self {
        let config = &inbox.config;
        let draft_model = |dims| DraftModel::new(dims, config.prefix_cache, config.sequences_max);
        Self {
            mode: config.speculation,
            draft_tokens_max: config.draft_tokens_max(),
            profitability: Profitability::new(),
            draft_model: inbox.draft.map(draft_model),
            mtp_head: (config.speculation == Speculation::Mtp)
                .then(|| MtpHead::new(config.sequences_max)),
        }
    }

    /// Gives a sequence's pages in the draft model back.
    pub(super) fn release(&mut self, sequence: &mut Sequence) {
        if let Some(model) = &mut self.draft_model {
            model.release(sequence);
        }
    }

    /// Whether sequences may get draft tokens.
    pub(super) fn is_on(&self) -> bool {
        self.mode != Speculation::Off
    }

    /// Whether a step of this many decoding sequences may have draft tokens.
    pub(super) fn begin_step(&mut self, sequences: usize) -> bool {
        self.is_on() && self.profitability.begin_step(sequences)
    }

    /// Learns from a finished step.
    pub(super) fn record_step(&mut self, facts: &StepFacts) {
        let is_behind = self
            .draft_model
            .as_ref()
            .is_some_and(|model| model.is_behind)
            || self.mtp_head.as_ref().is_some_and(|head| head.is_behind);
        if facts.rows_prefill == 0 && !is_behind {
            let (sequences, drafts) = (facts.rows_decode, facts.rows_draft);
            self.profitability
                .record_step(sequences, drafts, facts.duration_ns);
        }
    }

    /// Draft tokens for a sequence among `sequences`, at most `most`: with prompt lookup the tokens
    /// themselves, which are at hand; with a draft model or an MTP head the number to propose.
    pub(super) fn draft_count(
        &mut self,
        sequence: &mut Sequence,
        request: &RequestState,
        sequences: usize,
        most: usize,
    ) -> usize {
        let most = most.min(self.draft_tokens_max);
        let most = match (&self.draft_model, &self.mtp_head) {
            // A draft model sees tokens only.
            (Some(_), _) if !sequence.media.is_empty() => 0,
            (Some(_), _) => most,
            (None, Some(head)) if head.is_sound() => most.min(MTP_TOKENS_MAX),
            (None, Some(_)) => 0,
            (None, None) => look_up(sequence, request, most),
        };
        if most == 0 {
            return 0;
        }
        let history = &mut sequence.drafts.history;
        let count = self.profitability.draft_count(history, sequences, most);
        sequence.drafts.truncate(count);
        count
    }

    /// Limits a sequence's draft tokens to those that have pages in the model. Returns how many may be used,
    /// which pages of the draft model may limit further.
    pub(super) fn keep_drafts(
        &mut self,
        table: &mut SequenceTable,
        key: usize,
        drafts: usize,
    ) -> usize {
        match &mut self.draft_model {
            Some(model) => {
                let drafts = model.reserve(table, key, drafts);
                if let Some(sequence) = table.get_mut(key) {
                    sequence.drafts.proposal_max = drafts;
                }
                drafts
            }
            None => {
                if let Some(sequence) = table.get_mut(key) {
                    match self.mtp_head {
                        Some(_) => sequence.drafts.proposal_max = drafts,
                        None => sequence.drafts.truncate(drafts),
                    }
                }
                drafts
            }
        }
    }

    /// Records that `accepted` of a sequence's `drafted` draft tokens were sampled.
    pub(super) fn record_verified(
        &mut self,
        sequence: &mut Sequence,
        drafted: usize,
        accepted: usize,
    ) {
        let tried = drafted.min(accepted + 1);
        let drafts = &mut sequence.drafts;
        self.profitability
            .record_verified(&mut drafts.history, tried, accepted);
        if self.draft_model.is_some() {
            // All draft tokens but the last were computed; the accepted ones count from now on.
            drafts.table.computed += accepted.min(drafted - 1);
        }
    }
}

/// Fills in draft tokens by prompt lookup, at most `most`. Returns how many.
fn look_up(sequence: &mut Sequence, request: &RequestState, most: usize) -> usize {
    let (tokens, drafts) = (&sequence.tokens, &mut sequence.drafts);
    drafts.fill(tokens.last(), |into| lookup_prompt(tokens, most, into));
    if !request.sampling.ignore_eos {
        drafts.cut_at(&request.eos);
    }
    drafts.tokens().len()
}
