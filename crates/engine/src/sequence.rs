//! One answer being generated: its tokens, its block table, and where it stands.

mod inject;

use crate::accounts::Share;
use crate::age::Age;
use crate::embedding::Pool;
use crate::places::{Place, Places};
use crate::prefix::Chain;
use crate::sampler::{SampleContext, Sampler};
use crate::speculation::{Drafts, FORCED_TOKENS_MAX};
use crate::{
    Account, CacheSalt, Choice, Clocks, Constraint, Phase, Policy, Progress, RequestId, Sampling,
    Terminator, Token, TopLogprob,
};
use model::PageId;
use std::sync::Arc;
use std::time::Instant;
use stream::{End, FailCode, Stop, Writer};

/// What the choices of a request have in common.
pub(crate) struct Common {
    pub(crate) id: RequestId,
    /// Where it stands in the table of requests.
    pub(crate) slot: usize,
    pub(crate) sampling: Sampling,
    pub(crate) eos: Arc<[u32]>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) credit_window: u64,
    pub(crate) progress: Arc<Progress>,
    /// The caller's, dropped with this.
    pub(crate) places: Option<Box<dyn Places>>,
    pub(crate) held: Option<Box<dyn Send>>,
    pub(crate) prompt_tokens: usize,
    /// Choices that have not ended.
    pub(crate) open: usize,
    pub(crate) has_token: bool,
    /// The step's time.
    pub(crate) now_ns: u64,
    /// Tokens its choices may grow to together.
    pub(crate) tokens_max: usize,
    pub(crate) account: Account,
    pub(crate) clocks: Clocks,
    pub(crate) policy: Policy,
    /// When it came, if its caller said so.
    pub(crate) since: Option<Instant>,
    /// Its account's meter; the place is known once it is taken from the inbox.
    pub(crate) share: Share,
    /// When it came.
    pub(crate) since_ns: u64,
    /// What the clock that runs before its first token counts from: when it came, then when it was
    /// started; later by the time it was paused.
    pub(crate) from_ns: u64,
    pub(crate) paused: bool,
    pub(crate) paused_ns: u64,
    /// What the observer knows.
    pub(crate) told: Told,
}

/// What the observer knows of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Going,
    /// Out of credit; whether its reader was called slow.
    Credit {
        slow: bool,
    },
    Detached,
    Paused,
    Preempted,
    Placeless,
}

/// Why a sequence is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Still {
    Credit,
    Paused,
    /// Without a place.
    Place,
}

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Has no pages and waits for them.
    Waiting,
    /// Has no pages: another choice of its request computes the prompt for both.
    Forking,
    /// Has pages for all its tokens, and computes.
    Active,
    /// Stands still for its reader, or because it was asked to; has pages unless they were short.
    Parked,
}

/// What one choice can grow to.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) own_max: usize,
    pub(crate) pages_max: usize,
    /// Tokens guessed at one time.
    pub(crate) guesses_max: usize,
    /// Pages of the draft model.
    pub(crate) draft_pages_max: usize,
}

/// One answer being generated.
pub(crate) struct Sequence {
    /// Where its request stands in the table of requests.
    pub(crate) slot: usize,
    /// Older is smaller: the request's place in the queue, then the choice's number.
    pub(crate) age: Age,
    pub(crate) state: State,
    pub(crate) place: Place,
    /// Prompt and generated tokens.
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt_tokens: usize,
    /// Tokens it may generate at most.
    own_max: usize,
    /// Its block table.
    pub(crate) pages: Vec<PageId>,
    pub(crate) drafts: Drafts,
    /// Positions whose keys and values exist.
    pub(crate) computed: usize,
    /// Pages, from the first, that are indexed by content.
    pub(crate) indexed: usize,
    /// Names the content of those pages.
    pub(crate) chain: Chain,
    /// Sequences share pages only under equal salts.
    pub(crate) salt: CacheSalt,
    /// Rows it has in the step being planned.
    pub(crate) rows: usize,
    /// Tokens of the prompt that its account has not paid for: it computes them for the first time.
    pub(crate) owed: usize,
    /// Since when it has got nothing: when it came, its last token, or when it went on.
    pub(crate) waits_ns: u64,
    /// Whether it got a token in the last step, of which that time does not know yet.
    pub(crate) fresh: bool,
    /// The number of its last turn.
    pub(crate) turn: u64,
    /// Why it is parked, and since when; means nothing in other states.
    pub(crate) still: Still,
    pub(crate) parked_ns: u64,
    /// Whether it was parked for credit or paused and has not gone on since.
    pub(crate) stood: bool,
    /// What its prompt becomes, where that is all it is asked for.
    pub(crate) pool: Option<Box<Pool>>,
    pub(crate) writer: Writer<Token>,
    /// What its log held before it was asked for.
    begun: u64,
    top: Option<Writer<TopLogprob>>,
    terminator: Option<Box<dyn Terminator>>,
    pub(crate) constraint: Option<Box<dyn Constraint>>,
}

impl Common {
    /// Gives back what was kept for it. It is the caller's: a panic in its drop must not reach the engine.
    pub(crate) fn let_go(&mut self) {
        let held = std::panic::AssertUnwindSafe((self.places.take(), self.held.take()));
        let _ = std::panic::catch_unwind(move || drop(held));
    }

    /// Before a token can be seen, so that whoever sees it sees that it came.
    fn note_token(&mut self) {
        if !self.has_token {
            self.has_token = true;
            self.progress.set_first_token(self.now_ns);
            self.progress.set_phase(Phase::Running);
        }
    }

    /// Stops or starts the clocks that stand still with it. Returns whether that is news.
    pub(crate) fn pause(&mut self, paused: bool, now_ns: u64) -> bool {
        let news = self.paused != paused;
        if news && paused {
            self.paused_ns = now_ns;
        } else if news {
            self.from_ns += now_ns.saturating_sub(self.paused_ns);
        }
        self.paused = paused;
        news
    }

    /// Why this sequence of it should stand still.
    pub(crate) fn still(&self, sequence: &Sequence) -> Option<Still> {
        if self.paused {
            return Some(Still::Paused);
        }
        let out = sequence.out_of_credit(self.credit_window);
        out.then_some(Still::Credit)
    }
}

impl Sequence {
    /// The choice of this number, without a salt. It can grow to `own_max` tokens and `pages_max` pages.
    pub(crate) fn new(choice: Choice, i: usize, slot: usize, prompt: &[u32], room: Room) -> Self {
        let mut tokens = Vec::with_capacity(prompt.len() + room.own_max);
        tokens.extend_from_slice(prompt);
        let forced_max = choice.constraint.as_ref().map_or(0, |_| FORCED_TOKENS_MAX);
        Self {
            slot,
            age: Age(0, i as u32),
            state: if i == 0 {
                State::Waiting
            } else {
                State::Forking
            },
            place: Place::None,
            tokens,
            prompt_tokens: prompt.len(),
            own_max: room.own_max,
            pages: Vec::with_capacity(room.pages_max),
            drafts: Drafts::new(room.guesses_max.max(forced_max), room.draft_pages_max),
            computed: 0,
            indexed: 0,
            chain: Chain::START,
            salt: CacheSalt::NONE,
            rows: 0,
            owed: 0,
            waits_ns: 0,
            fresh: false,
            turn: 0,
            still: Still::Credit,
            parked_ns: 0,
            stood: false,
            pool: None,
            begun: choice.tokens.len(),
            writer: choice.tokens,
            top: choice.top,
            terminator: choice.terminator,
            constraint: choice.constraint,
        }
    }

    /// Tokens it generated.
    pub(crate) fn own(&self) -> usize {
        self.tokens.len() - self.prompt_tokens
    }

    /// Tokens of its prompt that are not an answer that was begun.
    pub(crate) fn asked_tokens(&self, sampling: &Sampling) -> usize {
        self.prompt_tokens - sampling.answered as usize
    }

    /// Tokens it may still generate.
    pub(crate) fn own_left(&self) -> usize {
        self.own_max - self.own()
    }

    /// Positions to compute before the next token can be drawn.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Whether it needs one row per token now: all but its last token is computed.
    pub(crate) fn decodes(&self) -> bool {
        self.state == State::Active && self.own() > 0 && self.pending() == 1
    }

    /// Whether it has prompt, or tokens lost to a preemption, to compute.
    pub(crate) fn prefills(&self) -> bool {
        self.state == State::Active && !self.decodes()
    }

    /// Whether it is parked for want of credit.
    pub(crate) fn stalls(&self) -> bool {
        self.state == State::Parked && self.still == Still::Credit
    }

    /// Whether it is as far ahead of its reader as it may be. Its first token it always makes.
    pub(crate) fn out_of_credit(&self, window: u64) -> bool {
        window > 0 && self.own() > 0 && self.writer.unaccepted() >= window
    }

    /// Takes over the place of a choice that leaves before the prompt was computed.
    pub(crate) fn inherit(&mut self, leader: &mut Self) {
        debug_assert_eq!(self.state, State::Forking);
        std::mem::swap(&mut self.pages, &mut leader.pages);
        self.state = leader.state;
        self.owed = std::mem::take(&mut leader.owed);
        self.computed = leader.computed;
        self.indexed = leader.indexed;
        self.chain = leader.chain;
        (self.still, self.parked_ns) = (leader.still, leader.parked_ns);
    }

    /// Draws and appends the next token. Returns why it ends, if it does.
    ///
    /// Calls the caller's constraint and terminator, which may panic.
    pub(crate) fn advance(
        &mut self,
        common: &mut Common,
        logits: &[f32],
        sampler: &mut Sampler,
    ) -> Option<End> {
        let drawn = sampler.draw(
            logits,
            SampleContext {
                sampling: &common.sampling,
                tokens: &self.tokens,
                prompt_tokens: self.asked_tokens(&common.sampling),
                choice: self.age.1,
                eos: &common.eos,
                constraint: self.constraint.as_deref_mut(),
            },
        );
        let Some(token) = drawn else {
            let code = match self.constraint {
                Some(_) => FailCode::Constraint,
                None => FailCode::Inference,
            };
            return Some(End::Failed(code));
        };
        if !common.sampling.ignore_eos && common.eos.contains(&token.id) {
            return Some(End::Stop(Stop::Eos));
        }
        common.note_token();
        self.append(token, sampler.top());
        self.stops(token.id)
    }

    /// Ends its logs, the side log first: who sees the end has all alternatives.
    pub(crate) fn finish(self, end: End) {
        if let Some(top) = self.top {
            top.finish(end);
        }
        self.writer.finish(end);
        // These are the caller's; a panic in their drop must not reach the engine.
        let callers = std::panic::AssertUnwindSafe((self.terminator, self.constraint));
        let _ = std::panic::catch_unwind(move || drop(callers));
    }

    /// Panics unless the sequence is consistent by itself.
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
            self.begun + self.own() as u64,
            "log and tokens differ"
        );
        assert!(
            self.own() < self.own_max,
            "an open sequence has all its tokens"
        );
        match self.state {
            State::Waiting | State::Forking => {
                assert!(
                    self.pages.is_empty() && self.computed == 0,
                    "pages without a place"
                );
            }
            State::Active => assert!(!self.pages.is_empty(), "a place without pages"),
            State::Parked => assert!(
                self.own() > 0 || self.still != Still::Credit,
                "parked for credit before its first token"
            ),
        }
    }

    /// The logs have room for `own_max` tokens: checked when the request was submitted.
    pub(crate) fn append(&mut self, token: Token, alternatives: &[TopLogprob]) {
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

    pub(crate) fn stops(&mut self, token: u32) -> Option<End> {
        if let Some(index) = self.terminator.as_mut().and_then(|t| t.push(token)) {
            return Some(End::Stop(Stop::StopString(index)));
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(token);
            if constraint.is_complete() {
                return Some(End::Stop(Stop::Eos));
            }
        }
        (self.own() >= self.own_max).then_some(End::Length)
    }
}
