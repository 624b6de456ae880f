//! Reasoning between delimiter tokens: the budget, and the constraint of the content that follows.
//!
//! **States.** *Beginning*: no token yet; under a content constraint, the first token of content or an opening delimiter is allowed.
//! *Reasoning*: everything but the end of the answer is allowed, until the closing delimiter; when the budget is used up,
//! only that delimiter. *Answering*: the content constraint decides.

use crate::constraint::mask_worker::{clear, set};
use engine::Constraint;
use std::sync::Arc;
use text::{AnswerFormat, Tokenizer};

/// Delimiter tokens of a model's reasoning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenDelimiters {
    /// Each of these opens reasoning, at the beginning of an answer.
    pub opens: Vec<u32>,
    /// Closes reasoning.
    pub close: u32,
    /// Whether the prompt opened reasoning.
    pub is_open: bool,
}

impl TokenDelimiters {
    /// The delimiters of this format after this prompt. `None`: they are not single tokens.
    pub fn find(format: AnswerFormat, prompt: &str, tokenizer: &Tokenizer) -> Option<Self> {
        let (opens, close) = format.reasoning_token_ids(tokenizer)?;
        // A prompt with empty reasoning switches reasoning off.
        let is_over = format.closes_reasoning(prompt);
        Some(Self {
            opens: if is_over { Vec::new() } else { opens },
            close,
            is_open: format.opens_reasoning(prompt),
        })
    }
}

/// Ends reasoning when the budget is used up, and constrains the content that follows.
pub(crate) struct ReasoningBudget {
    marks: TokenDelimiters,
    /// Reasoning tokens without the closing delimiter. `None`: unlimited.
    budget: Option<u64>,
    eos: Arc<[u32]>,
    /// The constraint of the content.
    form: Option<Box<dyn Constraint>>,
    at: BudgetState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BudgetState {
    Beginning,
    /// Reasoning, after this number of reasoning tokens.
    Reasoning(u64),
    Answering,
}

impl ReasoningBudget {
    /// At the beginning of an answer.
    pub(crate) fn new(
        marks: TokenDelimiters,
        budget: Option<u64>,
        eos: &Arc<[u32]>,
        form: Option<Box<dyn Constraint>>,
    ) -> Self {
        let at = if marks.is_open {
            BudgetState::Reasoning(0)
        } else {
            BudgetState::Beginning
        };
        Self {
            marks,
            budget,
            eos: Arc::clone(eos),
            form,
            at,
        }
    }
}

impl Constraint for ReasoningBudget {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        match self.at {
            BudgetState::Reasoning(used) if self.budget.is_some_and(|budget| used >= budget) => {
                set(allowed, self.marks.close);
                true
            }
            BudgetState::Reasoning(_) if self.form.is_none() => false,
            // An end within reasoning would leave no content.
            BudgetState::Reasoning(_) => {
                allowed.fill(u32::MAX);
                self.eos.iter().for_each(|&id| clear(allowed, id));
                true
            }
            BudgetState::Answering => match &mut self.form {
                Some(form) => form.mask(allowed),
                None => false,
            },
            BudgetState::Beginning => {
                let Some(form) = &mut self.form else {
                    return false;
                };
                let is_bound = form.mask(allowed);
                if is_bound {
                    self.marks.opens.iter().for_each(|&id| set(allowed, id));
                }
                is_bound
            }
        }
    }

    fn accept(&mut self, token: u32) {
        self.at = match self.at {
            BudgetState::Beginning if self.marks.opens.contains(&token) => {
                BudgetState::Reasoning(0)
            }
            BudgetState::Reasoning(_) if token == self.marks.close => BudgetState::Answering,
            BudgetState::Reasoning(used) => BudgetState::Reasoning(used + 1),
            BudgetState::Beginning | BudgetState::Answering => {
                if let Some(form) = &mut self.form {
                    form.accept(token);
                }
                BudgetState::Answering
            }
        };
    }

    fn replay(&mut self, tokens: &[u32]) {
        let left = accept_reasoning(self, tokens, |own| own.at == BudgetState::Answering);
        if let Some(form) = &mut self.form {
            form.replay(left);
        }
    }

    fn is_complete(&self) -> bool {
        self.at == BudgetState::Answering
            && self.form.as_ref().is_some_and(|form| form.is_complete())
    }

    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        let may_think = self.at == BudgetState::Beginning && !self.marks.opens.is_empty();
        match (self.at, &self.form) {
            (BudgetState::Reasoning(used), _)
                if self.budget.is_some_and(|budget| used >= budget) =>
            {
                into.push(self.marks.close);
            }
            (BudgetState::Beginning | BudgetState::Answering, Some(form)) if !may_think => {
                form.forced(most, into);
            }
            _ => {}
        }
    }
}

/// Accepts tokens until the content begins. Returns those of the content.
pub(crate) fn accept_reasoning<'a, C: Constraint>(
    constraint: &mut C,
    tokens: &'a [u32],
    is_answering: impl Fn(&C) -> bool,
) -> &'a [u32] {
    let mut left = tokens;
    while let Some((&token, rest)) = left.split_first()
        && !is_answering(constraint)
    {
        constraint.accept(token);
        left = rest;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allows token 7, and then the end.
    struct Seven(bool);

    impl Constraint for Seven {
        fn mask(&mut self, allowed: &mut [u32]) -> bool {
            set(allowed, if self.0 { 0 } else { 7 });
            true
        }

        fn accept(&mut self, token: u32) {
            assert_eq!(token, 7, "nothing that was thought reaches the form");
            self.0 = true;
        }

        fn is_complete(&self) -> bool {
            self.0
        }
    }

    const EOS: u32 = 0;
    const OPEN: u32 = 1;
    const CLOSE: u32 = 2;
    const ANY: u32 = 3;

    /// Whether each of these ids is allowed, after each of the tokens.
    fn allowed(thinking: &mut ReasoningBudget, ids: &[u32]) -> Vec<bool> {
        let mut mask = [0];
        let bound = thinking.mask(&mut mask);
        ids.iter()
            .map(|id| !bound || mask[0] >> id & 1 == 1)
            .collect()
    }

    fn at(is_open: bool, budget: Option<u64>, form: bool) -> ReasoningBudget {
        let marks = TokenDelimiters {
            opens: vec![OPEN],
            close: CLOSE,
            is_open,
        };
        let form = form.then(|| Box::new(Seven(false)) as Box<dyn Constraint>);
        ReasoningBudget::new(marks, budget, &Arc::from([EOS]), form)
    }

    #[test]
    fn content_constraint_begins_after_reasoning() {
        let ids = [EOS, OPEN, ANY, 7];
        let mut thinking = at(false, None, true);
        assert_eq!(allowed(&mut thinking, &ids), [false, true, false, true]);
        for token in [OPEN, ANY, 7, EOS] {
            thinking.accept(token);
            assert_eq!(
                allowed(&mut thinking, &ids),
                [false, true, true, true],
                "{token}"
            );
            assert!(!thinking.is_complete());
        }
        thinking.accept(CLOSE);
        assert_eq!(allowed(&mut thinking, &ids), [false, false, false, true]);
        thinking.accept(7);
        assert!(thinking.is_complete());
        let mut without = at(false, None, true);
        without.accept(7);
        assert!(without.is_complete(), "it need not think");
    }

    #[test]
    fn used_up_budget_ends_reasoning() {
        for (is_open, form) in [(true, true), (true, false), (false, false)] {
            let mut thinking = at(is_open, Some(2), form);
            if !is_open {
                assert_eq!(allowed(&mut thinking, &[EOS, ANY]), [true, true]);
                thinking.accept(OPEN);
            }
            for _ in 0..2 {
                assert_eq!(allowed(&mut thinking, &[EOS, ANY]), [!form, true]);
                thinking.accept(ANY);
            }
            let ids = [EOS, OPEN, CLOSE, ANY];
            assert_eq!(allowed(&mut thinking, &ids), [false, false, true, false]);
            thinking.accept(CLOSE);
            assert_eq!(allowed(&mut thinking, &[ANY, 7]), [!form, true]);
        }
        let mut early = at(true, Some(2), false);
        early.accept(CLOSE);
        early.accept(ANY);
        early.accept(ANY);
        assert_eq!(
            allowed(&mut early, &[EOS, ANY]),
            [true, true],
            "it was over before"
        );
        let mut none = at(true, Some(0), false);
        assert_eq!(allowed(&mut none, &[CLOSE, ANY]), [true, false]);
    }
}
