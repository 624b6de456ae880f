//! Reasoning between delimiters that are plain text, of several tokens each: the budget, and the constraint of the content
//! that follows.
//!
//! **States.** *Beginning*: the text so far may yet become an opening delimiter. *Thinking*: the text is searched for a
//! closing delimiter. *Closing*: the budget is used up, and the tokens of the closing delimiter that matches the opening
//! one are forced one after the other. *Answering*: the content constraint decides.
//!
//! **With a content constraint** the first tokens allowed are those of the constraint and those of the opening delimiters
//! as the tokenizer writes them; accepted tokens go to a separate grammar state, which is dropped when reasoning begins.
//! Within reasoning no token may extend beyond the end of a closing delimiter ([`DelimiterWatch`]), wherever tokens are
//! cut, so that the content begins with a token; and the answer may not end.

use crate::constraint::mask_worker::{clear, has, set};
use crate::constraint::reasoning_budget::accept_reasoning;
use engine::Constraint;
use std::sync::Arc;
use text::{AnswerFormat, Decoder, DelimiterSet, DelimiterWatch, Tokenizer};

/// Delimiters of a model's reasoning that are text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextDelimiters {
    opens: &'static [&'static str],
    closes: &'static [&'static str],
    /// Tokens of the opening delimiters.
    open_ids: Vec<Vec<u32>>,
    /// The delimiter that the prompt opened.
    is_open: Option<usize>,
}

impl TextDelimiters {
    /// The delimiters of this format after this prompt; `None`: the format has none, or the prompt closed them.
    pub fn find(format: AnswerFormat, prompt: &str, tokenizer: &Tokenizer) -> Option<Self> {
        let (opens, closes) = format.reasoning_delimiters()?;
        let prompt = prompt.trim_end();
        let is_open = opens.iter().position(|open| prompt.ends_with(open));
        let ids = |open: &&str| tokenizer.encode(open, false).unwrap_or_default();
        let spelled = Self {
            opens,
            closes,
            open_ids: opens.iter().map(ids).collect(),
            is_open,
        };
        (!format.closes_reasoning(prompt)).then_some(spelled)
    }
}

/// The constraint of the content, with or without preceding reasoning.
pub(crate) struct FormatAfterReasoning {
    /// For an answer without reasoning, while that is possible.
    direct: Option<Box<dyn Constraint>>,
    /// For the content after reasoning.
    after: Box<dyn Constraint>,
    /// Finds closing delimiters.
    watch: DelimiterWatch,
    eos: Arc<[u32]>,
}

impl FormatAfterReasoning {
    /// Two grammar states at the beginning of one grammar, and the closing delimiters.
    pub(crate) fn new(
        direct: Box<dyn Constraint>,
        after: Box<dyn Constraint>,
        closings: &Arc<DelimiterSet>,
        eos: &Arc<[u32]>,
    ) -> Self {
        Self {
            direct: Some(direct),
            after,
            watch: DelimiterWatch::new(closings),
            eos: Arc::clone(eos),
        }
    }
}

/// Ends reasoning when the budget is used up, and constrains the content that follows.
pub(crate) struct TextReasoningBudget {
    spelled: TextDelimiters,
    /// Reasoning tokens. `None`: unlimited.
    budget: Option<u64>,
    form: Option<FormatAfterReasoning>,
    tokenizer: Arc<Tokenizer>,
    decoder: Decoder,
    /// The text so far, while it may become an opening delimiter; then the end of the reasoning, in which a delimiter may
    /// begin.
    text: String,
    /// Tokens of the beginning.
    said: Vec<u32>,
    /// Tokens of the closing delimiter that matches the opening one.
    close: Vec<u32>,
    at: DelimiterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DelimiterState {
    Beginning,
    /// Reasoning, after this number of reasoning tokens.
    Thinking(u64),
    /// Within the closing delimiter, after this number of tokens.
    Closing(usize),
    Answering,
}

impl TextReasoningBudget {
    /// A constraint at the beginning of an answer.
    pub(crate) fn new(
        spelled: TextDelimiters,
        budget: Option<u64>,
        tokenizer: &Arc<Tokenizer>,
        at_text_start: bool,
        form: Option<FormatAfterReasoning>,
    ) -> Self {
        let mut it = Self {
            budget,
            form,
            decoder: Decoder::new(Arc::clone(tokenizer), at_text_start),
            tokenizer: Arc::clone(tokenizer),
            text: String::new(),
            said: Vec::new(),
            close: Vec::new(),
            at: DelimiterState::Beginning,
            spelled,
        };
        if let Some(open) = it.spelled.is_open {
            it.begin_reasoning(open);
        }
        it
    }

    /// Reasoning begins, after the opening delimiter of this number.
    fn begin_reasoning(&mut self, open: usize) {
        let closes = self.spelled.closes;
        let close = closes
            .get(open)
            .or(closes.first())
            .copied()
            .unwrap_or_default();
        self.close = self.tokenizer.encode(close, false).unwrap_or_default();
        self.text.clear();
        self.at = DelimiterState::Thinking(0);
        if let Some(form) = &mut self.form {
            form.direct = None;
        }
    }

    /// Accepts a token while reasoning may yet begin.
    fn accept_first(&mut self, token: u32) {
        self.said.push(token);
        let Some(form) = &mut self.form else {
            self.decoder.push(token, &mut self.text);
            return self.begin_freely();
        };
        let opens = &self.spelled.open_ids;
        if let Some(open) = opens.iter().position(|ids| *ids == self.said) {
            return self.begin_reasoning(open);
        }
        let mut allowed = vec![0; self.tokenizer.vocab_size().div_ceil(32)];
        form.direct = form.direct.take().and_then(|mut direct| {
            let may_come = !direct.mask(&mut allowed) || has(&allowed, token);
            may_come.then(|| {
                direct.accept(token);
                direct
            })
        });
        if !opens.iter().any(|ids| ids.starts_with(&self.said)) {
            self.at = DelimiterState::Answering;
        }
    }

    /// Checks whether the text so far is an opening delimiter.
    fn begin_freely(&mut self) {
        let said = self.text.trim_start();
        let opens = self.spelled.opens;
        if let Some(open) = opens.iter().position(|open| said.starts_with(open)) {
            self.begin_reasoning(open);
        } else if !opens.iter().any(|open| open.starts_with(said)) {
            self.at = DelimiterState::Answering;
        }
    }

    /// Searches reasoning for a closing delimiter, and drops text that cannot be part of one.
    fn search_closing(&mut self, token: u32, used: u64) {
        self.at = DelimiterState::Thinking(used + 1);
        if let Some(form) = &mut self.form {
            if form.watch.accept_token(token).is_some() {
                self.at = DelimiterState::Answering;
            }
            return;
        }
        self.decoder.push(token, &mut self.text);
        let closes = self.spelled.closes;
        if closes.iter().any(|close| self.text.contains(close)) {
            self.at = DelimiterState::Answering;
            return;
        }
        let longest = closes.iter().map(|close| close.len()).max().unwrap_or(0);
        let cut = self.text.len().saturating_sub(longest);
        let cut = (cut..=self.text.len()).find(|&at| self.text.is_char_boundary(at));
        self.text.drain(..cut.unwrap_or(0));
    }

    /// The forced tokens of the closing delimiter.
    fn forced_tokens(&self) -> &[u32] {
        match (self.at, self.budget) {
            (DelimiterState::Thinking(used), Some(budget)) if used >= budget => &self.close,
            (DelimiterState::Closing(len), _) => &self.close[len..],
            _ => &[],
        }
    }
}

impl FormatAfterReasoning {
    /// The constraint of the content.
    fn content_mut(&mut self) -> &mut dyn Constraint {
        match &mut self.direct {
            Some(direct) => direct.as_mut(),
            None => self.after.as_mut(),
        }
    }

    /// The constraint of the content, shared.
    fn content(&self) -> &dyn Constraint {
        self.direct.as_ref().unwrap_or(&self.after).as_ref()
    }

    /// While reasoning may yet begin: tokens of the content constraint and of opening delimiters.
    fn mask_first(&mut self, opens: impl Iterator<Item = u32>, allowed: &mut [u32]) -> bool {
        if self
            .direct
            .as_mut()
            .is_some_and(|direct| !direct.mask(allowed))
        {
            return false;
        }
        opens.for_each(|id| set(allowed, id));
        true
    }

    /// Within reasoning.
    fn mask_thought(&self, allowed: &mut [u32]) {
        allowed.fill(u32::MAX);
        let never = self
            .eos
            .iter()
            .copied()
            .chain(self.watch.straddling_tokens());
        never.for_each(|id| clear(allowed, id));
    }
}

impl Constraint for TextReasoningBudget {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        if let Some(&id) = self.forced_tokens().first() {
            set(allowed, id);
            return true;
        }
        let Some(form) = &mut self.form else {
            return false;
        };
        match self.at {
            DelimiterState::Beginning => {
                let opens = self.spelled.open_ids.iter();
                let opens = opens.filter(|ids| ids.starts_with(&self.said));
                form.mask_first(
                    opens.filter_map(|ids| ids.get(self.said.len()).copied()),
                    allowed,
                )
            }
            DelimiterState::Thinking(_) | DelimiterState::Closing(_) => {
                form.mask_thought(allowed);
                true
            }
            DelimiterState::Answering => form.content_mut().mask(allowed),
        }
    }

    fn accept(&mut self, token: u32) {
        let due = self.forced_tokens().len();
        if due > 0 {
            self.at = match due {
                1 => DelimiterState::Answering,
                _ => DelimiterState::Closing(self.close.len() + 1 - due),
            };
            return;
        }
        match self.at {
            DelimiterState::Beginning => self.accept_first(token),
            DelimiterState::Thinking(used) => self.search_closing(token, used),
            DelimiterState::Closing(_) => {}
            DelimiterState::Answering => {
                if let Some(form) = &mut self.form {
                    form.content_mut().accept(token);
                }
            }
        }
    }

    fn replay(&mut self, tokens: &[u32]) {
        let left = accept_reasoning(self, tokens, |own| own.at == DelimiterState::Answering);
        if let Some(form) = &mut self.form {
            form.content_mut().replay(left);
        }
    }

    fn is_complete(&self) -> bool {
        self.at == DelimiterState::Answering
            && self
                .form
                .as_ref()
                .is_some_and(|form| form.content().is_complete())
    }

    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        let due = self.forced_tokens();
        if !due.is_empty() {
            return into.extend(due.iter().take(most));
        }
        if let (DelimiterState::Answering, Some(form)) = (self.at, &self.form) {
            form.content().forced(most, into);
        }
    }
}

#[cfg(test)]
mod tests;
