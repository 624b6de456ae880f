//! One choice of a request: tokens, page table and scheduling state.

mod sequence_states;

pub(crate) use sequence_states::SequenceStates;

use crate::embedding::EmbeddingPool;
use crate::media::SequenceMedia;
use crate::prefix_index::{PrefixChain, PrefixRoot};
use crate::request_state::RequestState;
use crate::sampler::{SampleContext, Sampler};
use crate::speculation::{DraftState, FORCED_TOKENS_MAX};
use crate::terms::{Age, PermitState};
use crate::{Choice, Constraint, SamplingParams, StopCondition, Token, TopLogprob};
use model::PageId;
use stream::{End, FailCode, Stop, Writer};

/// Reason why a sequence is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkCause {
    /// The reader is a whole credit window behind.
    Credit,
    Paused,
    NoPermit,
}

/// Scheduling state of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SequenceState {
    /// Holds no pages and waits for them.
    Waiting,
    /// Holds no pages: another choice of the request computes the prompt for both.
    Forking,
    /// Holds pages for all tokens and computes.
    Active,
    /// Gets no rows; holds pages unless they were short.
    Parked,
}

/// Bounds of one choice, known at submission.
#[derive(Clone, Copy)]
pub(crate) struct SequenceLimits {
    pub(crate) max_new_tokens: usize,
    pub(crate) pages_max: usize,
    /// Draft tokens per step.
    pub(crate) draft_tokens_max: usize,
    /// Pages of the draft model.
    pub(crate) draft_pages_max: usize,
}

/// One choice that is being generated.
pub(crate) struct Sequence {
    /// Index of the request in the table of requests.
    pub(crate) slot: usize,
    pub(crate) age: Age,
    /// Number among the choices of the prompt, for random numbers.
    pub(crate) choice: u32,
    pub(crate) state: SequenceState,
    pub(crate) permit: PermitState,
    /// Prompt and generated tokens; for rows of an input what stands for them ([`crate::media`]).
    pub(crate) tokens: Vec<u32>,
    pub(crate) media: SequenceMedia,
    /// Inputs, from the first, that were looked for in the cache of encodings.
    pub(crate) inputs_sought: usize,
    /// Positions whose encodings are there: those before the first row that is missing. Set by each plan.
    pub(crate) encoded: usize,
    /// Positions that can be computed in chunks now: of those the ones before the next block. Set by each plan.
    pub(crate) computable: usize,
    pub(crate) prompt_tokens: usize,
    max_new_tokens: usize,
    /// Page table.
    pub(crate) pages: Vec<PageId>,
    /// States, in a model with recurrent layers.
    pub(crate) states: SequenceStates,
    pub(crate) drafts: DraftState,
    /// Positions, from the first, whose keys and values exist.
    pub(crate) computed: usize,
    /// Pages, from the first, that are in the prefix index.
    pub(crate) indexed: usize,
    /// Prefix chain that ends with the last indexed page.
    pub(crate) chain: PrefixChain,
    /// Sequences share pages only under equal roots.
    pub(crate) root: PrefixRoot,
    /// Rows in the step that is being planned.
    pub(crate) rows: usize,
    /// Results that have not come, of a model that runs ahead.
    pub(crate) in_flight: Option<InFlight>,
    /// Whether tokens are forced after the one that comes next, so that they come together if the next row waits.
    pub(crate) awaits_forced: bool,
    /// Prompt tokens that are charged to the account when they are computed for the first time.
    pub(crate) uncharged: usize,
    /// Start of the present wait: the arrival, the last token, or the end of the last park.
    pub(crate) waiting_since_ns: u64,
    /// Whether the last step gave a token, so that `waiting_since_ns` moves to the next step's head.
    pub(crate) got_token: bool,
    /// Number of the last decode row given to this sequence.
    pub(crate) decode_number: u64,
    /// Cause and time of the park; meaningless in other states.
    pub(crate) park_cause: ParkCause,
    pub(crate) parked_since_ns: u64,
    /// Whether the sequence was parked for credit or paused, so that going on counts as a resume.
    pub(crate) resume_due: bool,
    /// Pooled hidden states, for an embedding.
    pub(crate) pool: Option<Box<EmbeddingPool>>,
    pub(crate) writer: Writer<Token>,
    /// Length of the log at submission.
    log_start: u64,
    top: Option<Writer<TopLogprob>>,
    terminator: Option<Box<dyn StopCondition>>,
    pub(crate) constraint: Option<Box<dyn Constraint>>,
}

impl Sequence {
    /// Choice `i` of the request in `slot`, without salt and adapters.
    pub(crate) fn new(
        choice: Choice,
        i: usize,
        slot: usize,
        prompt: &[u32],
        limits: SequenceLimits,
    ) -> Self {
        let mut tokens = Vec::with_capacity(prompt.len() + limits.max_new_tokens);
        tokens.extend_from_slice(prompt);
        let forced_max = choice.constraint.as_ref().map_or(0, |_| FORCED_TOKENS_MAX);
        let drafts_max = limits.draft_tokens_max.max(forced_max);
        Self {
            slot,
            age: Age(0, i as u32),
            choice: i as u32,
            state: if i == 0 {
                SequenceState::Waiting
            } else {
                SequenceState::Forking
            },
            permit: PermitState::None,
            tokens,
            media: SequenceMedia::default(),
            inputs_sought: 0,
            encoded: usize::MAX,
            computable: usize::MAX,
            prompt_tokens: prompt.len(),
            max_new_tokens: limits.max_new_tokens,
            pages: Vec::with_capacity(limits.pages_max),
            states: SequenceStates::default(),
            drafts: DraftState::new(drafts_max, limits.draft_pages_max),
            computed: 0,
            indexed: 0,
            chain: PrefixChain::START,
            root: PrefixRoot::default(),
            rows: 0,
            in_flight: None,
            awaits_forced: false,
            uncharged: 0,
            waiting_since_ns: 0,
            got_token: false,
            decode_number: 0,
            park_cause: ParkCause::Credit,
            parked_since_ns: 0,
            resume_due: false,
            pool: None,
            log_start: choice.tokens.len(),
            writer: choice.tokens,
            top: choice.top,
            terminator: choice.terminator,
            constraint: choice.constraint,
        }
    }

    /// Whether the answer began elsewhere: the log had tokens at the submission.
    pub(crate) fn is_resumed(&self) -> bool {
        self.log_start > 0
    }

    /// Tokens generated so far.
    pub(crate) fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_tokens
    }

    /// Tokens that may still be generated.
    pub(crate) fn tokens_left(&self) -> usize {
        self.max_new_tokens - self.generated()
    }

    /// Prompt tokens for the sampler, which counts the continued part of an answer as generated.
    pub(crate) fn sampler_prompt_tokens(&self, sampling: &SamplingParams) -> usize {
        self.prompt_tokens - sampling.answered as usize
    }

    /// Prompt and generated tokens, with the one that the model draws.
    pub(crate) fn tokens_expected(&self) -> usize {
        self.tokens.len() + usize::from(self.next_draw().is_some())
    }

    /// Positions to compute before the next token can be sampled.
    pub(crate) fn uncomputed(&self) -> usize {
        self.tokens_expected() - self.computed
    }

    /// Positions that can be computed now, without the rows of the plan.
    pub(crate) fn rows_wanted(&self) -> usize {
        let end = self.tokens_expected().min(self.computable);
        end.saturating_sub(self.computed + self.rows)
    }

    /// Whether one row gives the next token: all positions but the last token's are computed.
    pub(crate) fn is_decoding(&self) -> bool {
        self.state == SequenceState::Active
            && self.tokens_expected() > self.prompt_tokens
            && self.uncomputed() == 1
    }

    /// Whether prompt tokens, or tokens lost to a preemption, have to be computed, and none of them are on their way.
    pub(crate) fn is_prefilling(&self) -> bool {
        self.state == SequenceState::Active && !self.is_decoding() && self.in_flight.is_none()
    }

    /// Whether the rows that come next are a block, and their encoding is there.
    pub(crate) fn awaits_block(&self) -> bool {
        let block = self.media.next_block(self.computed);
        let is_next = |block: std::ops::Range<usize>| {
            block.start == self.computed && block.end <= self.encoded
        };
        self.is_prefilling() && block.is_some_and(is_next)
    }

    /// Whether the sequence is parked for want of credit.
    pub(crate) fn is_stalled(&self) -> bool {
        self.state == SequenceState::Parked && self.park_cause == ParkCause::Credit
    }

    /// Whether the reader is a whole window behind. The first token needs no credit.
    pub(crate) fn is_out_of_credit(&self, window: u64) -> bool {
        window > 0 && self.generated() > 0 && self.writer.unaccepted() >= window
    }

    /// Reason to park the sequence of this request, permits left aside.
    pub(crate) fn cause_to_park(&self, request: &RequestState) -> Option<ParkCause> {
        if request.paused {
            return Some(ParkCause::Paused);
        }
        let is_out = self.is_out_of_credit(request.credit_window);
        is_out.then_some(ParkCause::Credit)
    }

    /// Tokens that the credit window still allows.
    pub(crate) fn credit_left(&self, window: u64) -> usize {
        match window {
            0 => usize::MAX,
            window => window.saturating_sub(self.writer.unaccepted()) as usize,
        }
    }

    /// Takes over the pages and the state of a choice that leaves before the prompt is computed.
    pub(crate) fn take_over(&mut self, leader: &mut Self) {
        debug_assert_eq!(self.state, SequenceState::Forking);
        std::mem::swap(&mut self.pages, &mut leader.pages);
        std::mem::swap(&mut self.states, &mut leader.states);
        self.state = leader.state;
        self.in_flight = leader.in_flight.take();
        self.uncharged = std::mem::take(&mut leader.uncharged);
        self.computed = leader.computed;
        self.indexed = leader.indexed;
        self.chain = leader.chain;
        (self.park_cause, self.parked_since_ns) = (leader.park_cause, leader.parked_since_ns);
    }

    /// Shares the computed pages of another choice of the same request. The caller counts the references.
    pub(crate) fn share_prompt_of(&mut self, leader: &Self) {
        self.pages.extend_from_slice(&leader.pages);
        self.states = leader.states.of_fork();
        self.state = SequenceState::Active;
        self.computed = leader.computed;
        self.indexed = leader.indexed;
        self.chain = leader.chain;
    }

    /// Samples the next token. `None`: the constraint excludes every token that the model can give.
    ///
    /// Calls the caller's constraint, which may panic.
    pub(crate) fn sample(
        &mut self,
        request: &RequestState,
        logits: &[f32],
        sampler: &mut Sampler,
    ) -> Option<Token> {
        sampler.sample_token(logits, self.sample_context(request))
    }

    /// What the next token depends on besides the logits.
    pub(crate) fn sample_context<'a>(&'a mut self, request: &'a RequestState) -> SampleContext<'a> {
        SampleContext {
            sampling: &request.sampling,
            prompt_tokens: self.sampler_prompt_tokens(&request.sampling),
            tokens: &self.tokens,
            choice: self.choice,
            eos: &request.eos,
            constraint: self.constraint.as_deref_mut(),
        }
    }

    /// Appends the sampled token with its alternatives, unless the answer ends before the token. Returns the
    /// end.
    ///
    /// Calls the caller's constraint and terminator, which may panic.
    pub(crate) fn accept_token(
        &mut self,
        request: &mut RequestState,
        token: Option<Token>,
        alternatives: &[TopLogprob],
        now_ns: u64,
    ) -> Option<End> {
        let Some(token) = token else {
            let code = match self.constraint {
                Some(_) => FailCode::Constraint,
                None => FailCode::Inference,
            };
            return Some(End::Failed(code));
        };
        if !request.sampling.ignore_eos && request.eos.contains(&token.id) {
            if request.sampling.logprobs {
                request.progress.set_ending(token, alternatives);
            }
            return Some(End::Stop(Stop::Eos));
        }
        request.note_token(now_ns);
        self.append_token(token, alternatives);
        self.check_stop(token.id)
    }

    /// Ends both logs, the side log first: a reader that sees the end has all alternatives.
    pub(crate) fn end_logs(self, end: End) {
        if let Some(top) = self.top {
            top.finish(end);
        }
        self.writer.finish(end);
        // Caller's objects: a panic in their drop must not reach the engine.
        let callers = (self.terminator, self.constraint, self.media);
        let callers = std::panic::AssertUnwindSafe(callers);
        let _ = std::panic::catch_unwind(move || drop(callers));
    }

    /// Panics unless the sequence's state is consistent.
    pub(crate) fn check(&self, page_tokens: usize) {
        let held = self.pages.len() * page_tokens;
        assert!(
            self.computed <= self.tokens.len(),
            "computed beyond the tokens"
        );
        assert!(self.computed <= held, "computed beyond the pages");
        assert!(
            self.indexed * page_tokens <= self.computed,
            "indexed beyond the computed"
        );
        assert_eq!(
            self.writer.len(),
            self.log_start + self.generated() as u64,
            "log and tokens differ"
        );
        assert!(
            self.next_draw().is_none() || self.computed == self.tokens.len(),
            "the next token is drawn, but not all before it are computed"
        );
        // The text of an embedding may fill the context.
        assert!(
            self.generated() < self.max_new_tokens || self.pool.is_some(),
            "an open sequence has all its tokens"
        );
        match self.state {
            SequenceState::Waiting | SequenceState::Forking => {
                assert!(
                    self.pages.is_empty() && self.computed == 0,
                    "a waiting sequence holds pages"
                );
            }
            SequenceState::Active => {
                assert!(!self.pages.is_empty(), "an active sequence without pages");
            }
            SequenceState::Parked => assert!(
                self.generated() > 0 || self.park_cause != ParkCause::Credit,
                "parked for credit before its first token"
            ),
        }
    }

    /// Appends to both logs. Their capacity for `max_new_tokens` is checked at submission.
    fn append_token(&mut self, token: Token, alternatives: &[TopLogprob]) {
        if let Some(top) = &mut self.top {
            for &alternative in alternatives {
                let full = top.append(alternative);
                debug_assert!(full.is_ok(), "a side log was full");
            }
        }
        let full = self.writer.append(token);
        debug_assert!(full.is_ok(), "a log was full");
        self.tokens.push(token.id);
    }

    /// Passes an appended token to the terminator and the constraint. Returns the end, if the answer is
    /// complete.
    fn check_stop(&mut self, token: u32) -> Option<End> {
        if let Some(index) = self.terminator.as_mut().and_then(|t| t.push(token)) {
            return Some(End::Stop(Stop::StopString(index)));
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token);
            if constraint.is_complete() {
                return Some(End::Stop(Stop::Eos));
            }
        }
        (self.generated() >= self.max_new_tokens).then_some(End::Length)
    }
}

impl Sequence {
    /// Appends `ids` as far as the constraint allows them. Returns how many were appended and the end, if
    /// they complete the answer.
    ///
    /// Calls the caller's constraint and terminator, which may panic.
    pub(crate) fn inject(
        &mut self,
        ids: &[u32],
        vocab: usize,
        alternatives: usize,
    ) -> (usize, Option<End>) {
        for (count, &id) in ids.iter().enumerate() {
            if !self.allows(id, vocab) {
                return (count, None);
            }
            let logprob = f32::NAN;
            let top = vec![TopLogprob { id, logprob }; alternatives];
            self.append_token(Token { id, logprob }, &top);
            if let Some(end) = self.check_stop(id) {
                return (count + 1, Some(end));
            }
        }
        (ids.len(), None)
    }

    fn allows(&mut self, id: u32, vocab: usize) -> bool {
        let Some(constraint) = &mut self.constraint else {
            return true;
        };
        let mut allowed = vec![0; vocab.div_ceil(32)];
        let is_restricted = constraint.mask(&mut allowed);
        !is_restricted || allowed[id as usize / 32] >> (id % 32) & 1 == 1
    }
}

impl Sequence {
    /// Ids of all items of the log: those before the submission are the prompt's last tokens.
    pub(crate) fn log_ids(&self) -> &[u32] {
        let before = usize::try_from(self.log_start).unwrap_or(usize::MAX);
        &self.tokens[self.prompt_tokens.saturating_sub(before)..]
    }

    /// Items of the log that count as accepted by the reader. Grants are added, so the number may be above the length.
    pub(crate) fn accepted(&self) -> u64 {
        let tap = self.writer.tap();
        tap.accepted().saturating_add(tap.granted())
    }

    /// Whether the log has room for another token.
    pub(crate) fn has_room(&self) -> bool {
        self.generated() < self.max_new_tokens
    }

    /// Drops the stop condition and the constraint, which the other process applies.
    pub(crate) fn drop_rules(&mut self) {
        (self.terminator, self.constraint) = (None, None);
    }

    /// Appends a computed token with its alternatives. The caller has checked [`Sequence::has_room`].
    pub(crate) fn append_relayed(&mut self, token: Token, alternatives: &[TopLogprob]) {
        self.append_token(token, alternatives);
    }
}

/// The results of a sequence's last rows, which have not come. Taken away with the pages: what is lost is computed again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// Number of the batch.
    pub(crate) batch: u64,
    /// The draw that gives the next token. `None`: the rows come, and the token is sampled here; until then the rows'
    /// positions do not count as computed.
    pub(crate) draw: Option<u32>,
    /// Whether the next row may be computed before the token is known.
    pub(crate) may_follow: bool,
}

impl Sequence {
    /// The draw in flight that gives the next token.
    pub(crate) fn next_draw(&self) -> Option<u32> {
        self.in_flight?.draw
    }

    /// Whether the sequence may get rows: all tokens are known, or there is a token, and credit, after the one that is drawn.
    pub(crate) fn may_get_rows(&self, request: &RequestState) -> bool {
        let Some(in_flight) = self.in_flight else {
            return true;
        };
        in_flight.draw.is_some()
            && in_flight.may_follow
            && !request.update_waits
            && self.tokens_left() > 1
            && self.credit_left(request.credit_window) > 1
    }
}
