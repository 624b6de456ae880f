//! Harmony constraint: an answer in channels (gpt-oss) with free reasoning and a constrained final channel.
//!
//! **States.** *Opening*: only the headers of reasoning and of the final channel. *Thinking*: everything but the control
//! tokens of other messages, until the token that ends a message; when the budget is used up, only that token. *Turning*:
//! the header of the final channel. *Answering*: the content constraint. Without one (a budget alone), only reasoning is
//! constrained. Where a tool call is required, the call takes the place of the final channel: the grammar begins with the
//! recipient.

use crate::constraint::mask_worker::{clear, set};
use crate::constraint::reasoning_budget::accept_reasoning;
use engine::Constraint;
use std::sync::Arc;
use text::Tokenizer;

/// A prompt with this end is followed by a header.
const PROMPT_END: &str = "<|start|>assistant";
const THOUGHT: &str = "<|channel|>analysis<|message|>";
const ANSWER: &str = "<|channel|>final<|message|>";
/// Header of a tool call, up to the recipient.
const CALL: &str = "<|channel|>commentary";
const END: &str = "<|end|>";
/// Control tokens that do not occur within a message.
const OTHERS: [&str; 6] = [
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|call|>",
    "<|return|>",
];

/// Headers of a model's channels, as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarmonyHeaders {
    /// Opens reasoning.
    thought: Vec<u32>,
    /// Opens the final channel.
    answer: Vec<u32>,
    /// Ends a message.
    end: u32,
    /// Opens the final channel after reasoning.
    turn: Vec<u32>,
    /// Occur in no message.
    others: Vec<u32>,
}

impl HarmonyHeaders {
    /// The headers of this vocabulary after this prompt; `None`: there are none, or the prompt opened a channel. `calls`:
    /// the answer must be a tool call.
    pub fn find(prompt: &str, tokenizer: &Tokenizer, calls: bool) -> Option<Self> {
        if !prompt.trim_end().ends_with(PROMPT_END) {
            return None;
        }
        let ids = |text: &str| tokenizer.encode(text, true).ok();
        let answer = if calls { CALL } else { ANSWER };
        Some(Self {
            end: tokenizer.id_of(END)?,
            others: OTHERS
                .iter()
                .map(|text| tokenizer.id_of(text))
                .collect::<Option<_>>()?,
            thought: ids(THOUGHT)?,
            answer: ids(answer)?,
            turn: ids(&[PROMPT_END, answer].concat())?,
        })
    }
}

/// Constrains an answer in channels.
pub(crate) struct HarmonyConstraint {
    channels: HarmonyHeaders,
    /// Reasoning tokens. `None`: unlimited.
    budget: Option<u64>,
    eos: Arc<[u32]>,
    form: Option<Box<dyn Constraint>>,
    at: HarmonyState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HarmonyState {
    /// Within a header, after this number of tokens: of reasoning, of the final channel, or of either.
    Opening {
        len: usize,
        thought: bool,
        answer: bool,
    },
    /// Reasoning, after this number of reasoning tokens.
    Thinking(u64),
    /// Within the header after reasoning, after this number of tokens.
    Turning(usize),
    Answering,
}

impl HarmonyConstraint {
    /// A constraint at the beginning of an answer.
    pub(crate) fn new(
        channels: HarmonyHeaders,
        budget: Option<u64>,
        eos: &Arc<[u32]>,
        form: Option<Box<dyn Constraint>>,
    ) -> Self {
        Self {
            channels,
            budget,
            eos: Arc::clone(eos),
            form,
            at: HarmonyState::Opening {
                len: 0,
                thought: true,
                answer: true,
            },
        }
    }

    /// The state after this token of a header.
    fn state_after_header(
        &self,
        token: u32,
        len: usize,
        thought: bool,
        answer: bool,
    ) -> HarmonyState {
        let HarmonyHeaders {
            thought: of_thought,
            answer: of_answer,
            ..
        } = &self.channels;
        let thought = thought && of_thought.get(len) == Some(&token);
        let answer = answer && of_answer.get(len) == Some(&token);
        let len = len + 1;
        match (thought, answer) {
            (true, _) if len == of_thought.len() => HarmonyState::Thinking(0),
            (_, true) if len == of_answer.len() => HarmonyState::Answering,
            (false, false) => HarmonyState::Answering,
            _ => HarmonyState::Opening {
                len,
                thought,
                answer,
            },
        }
    }

    fn is_used_up(&self, used: u64) -> bool {
        self.budget.is_some_and(|budget| used >= budget)
    }
}

impl Constraint for HarmonyConstraint {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        let channels = &self.channels;
        match self.at {
            HarmonyState::Thinking(used) if self.is_used_up(used) => {
                set(allowed, channels.end);
                true
            }
            _ if self.form.is_none() => false,
            HarmonyState::Opening {
                len,
                thought,
                answer,
            } => {
                let headers = [(thought, &channels.thought), (answer, &channels.answer)];
                let possible = headers.into_iter().filter(|(is, _)| *is);
                let next = possible.filter_map(|(_, header)| header.get(len));
                next.for_each(|&id| set(allowed, id));
                true
            }
            HarmonyState::Thinking(_) => {
                allowed.fill(u32::MAX);
                let never = channels.others.iter().chain(self.eos.iter());
                never.for_each(|&id| clear(allowed, id));
                true
            }
            HarmonyState::Turning(len) => {
                channels
                    .turn
                    .get(len)
                    .iter()
                    .for_each(|&&id| set(allowed, id));
                true
            }
            HarmonyState::Answering => self.form.as_mut().is_some_and(|form| form.mask(allowed)),
        }
    }

    fn accept(&mut self, token: u32) {
        self.at = match self.at {
            HarmonyState::Opening {
                len,
                thought,
                answer,
            } => self.state_after_header(token, len, thought, answer),
            HarmonyState::Thinking(_) if token == self.channels.end => match self.form {
                Some(_) => HarmonyState::Turning(0),
                None => HarmonyState::Answering,
            },
            HarmonyState::Thinking(used) => HarmonyState::Thinking(used + 1),
            HarmonyState::Turning(len) if len + 1 < self.channels.turn.len() => {
                HarmonyState::Turning(len + 1)
            }
            HarmonyState::Turning(_) => HarmonyState::Answering,
            HarmonyState::Answering => {
                if let Some(form) = &mut self.form {
                    form.accept(token);
                }
                HarmonyState::Answering
            }
        };
    }

    fn replay(&mut self, tokens: &[u32]) {
        let left = accept_reasoning(self, tokens, |own| own.at == HarmonyState::Answering);
        if let Some(form) = &mut self.form {
            form.replay(left);
        }
    }

    fn is_complete(&self) -> bool {
        self.at == HarmonyState::Answering
            && self.form.as_ref().is_some_and(|form| form.is_complete())
    }

    fn forced(&self, most: usize, into: &mut Vec<u32>) {
        let channels = &self.channels;
        match (self.at, &self.form) {
            (HarmonyState::Thinking(used), form) if self.is_used_up(used) => {
                into.push(channels.end);
                if form.is_some() {
                    into.extend(channels.turn.iter().take(most.saturating_sub(1)));
                }
            }
            (HarmonyState::Turning(len), Some(_)) => {
                into.extend(channels.turn.iter().skip(len).take(most));
            }
            (
                HarmonyState::Opening {
                    len,
                    thought,
                    answer,
                },
                Some(_),
            ) if thought != answer => {
                let header = if thought {
                    &channels.thought
                } else {
                    &channels.answer
                };
                into.extend(header.iter().skip(len).take(most));
            }
            (HarmonyState::Answering, Some(form)) => form.forced(most, into),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EOS: u32 = 0;
    const START: u32 = 1;
    const CHANNEL: u32 = 2;
    const MESSAGE: u32 = 3;
    const END: u32 = 4;
    const ROLE: u32 = 5;
    const ANALYSIS: u32 = 6;
    const FINAL: u32 = 7;
    const ANY: u32 = 8;
    /// The only token of the content.
    const IT: u32 = 9;

    /// Allows one token, and then the end.
    struct One(bool);

    impl Constraint for One {
        fn mask(&mut self, allowed: &mut [u32]) -> bool {
            set(allowed, if self.0 { EOS } else { IT });
            true
        }
        fn accept(&mut self, token: u32) {
            assert_eq!(token, IT, "nothing but the answer proper reaches the form");
            self.0 = true;
        }
        fn is_complete(&self) -> bool {
            self.0
        }
        fn forced(&self, _: usize, into: &mut Vec<u32>) {
            into.push(IT);
        }
    }

    fn at_start(budget: Option<u64>, form: bool) -> HarmonyConstraint {
        let channels = HarmonyHeaders {
            thought: vec![CHANNEL, ANALYSIS, MESSAGE],
            answer: vec![CHANNEL, FINAL, MESSAGE],
            end: END,
            turn: vec![START, ROLE, CHANNEL, FINAL, MESSAGE],
            others: vec![START, CHANNEL, MESSAGE],
        };
        let form = form.then(|| Box::new(One(false)) as Box<dyn Constraint>);
        HarmonyConstraint::new(channels, budget, &Arc::from([EOS]), form)
    }

    /// Those of the first ten tokens that are allowed.
    fn allowed(constraint: &mut HarmonyConstraint) -> Vec<u32> {
        let mut mask = [0];
        let bound = constraint.mask(&mut mask);
        (0..10)
            .filter(|id| !bound || mask[0] >> id & 1 == 1)
            .collect()
    }

    fn forced(constraint: &HarmonyConstraint) -> Vec<u32> {
        let mut ids = Vec::new();
        constraint.forced(9, &mut ids);
        ids
    }

    #[test]
    fn content_constraint_applies_in_final_channel() {
        let mut it = at_start(None, true);
        for (token, before) in [(CHANNEL, vec![CHANNEL]), (ANALYSIS, vec![ANALYSIS, FINAL])] {
            assert_eq!(allowed(&mut it), before);
            assert!(forced(&it).is_empty(), "two headers are possible");
            it.accept(token);
        }
        assert_eq!(forced(&it), [MESSAGE]);
        it.accept(MESSAGE);
        for token in [ANY, IT, ROLE, FINAL] {
            assert_eq!(allowed(&mut it), [END, ROLE, ANALYSIS, FINAL, ANY, IT]);
            it.accept(token);
        }
        it.accept(END);
        assert_eq!(forced(&it), [START, ROLE, CHANNEL, FINAL, MESSAGE]);
        for token in [START, ROLE, CHANNEL, FINAL, MESSAGE] {
            assert_eq!(allowed(&mut it), [token]);
            assert!(!it.is_complete());
            it.accept(token);
        }
        assert_eq!((allowed(&mut it), forced(&it)), (vec![IT], vec![IT]));
        it.accept(IT);
        assert!(it.is_complete());
    }

    #[test]
    fn reasoning_is_optional_under_a_content_constraint() {
        let mut it = at_start(None, true);
        [CHANNEL, FINAL, MESSAGE]
            .into_iter()
            .for_each(|token| it.accept(token));
        assert_eq!(allowed(&mut it), [IT]);
    }

    #[test]
    fn used_up_budget_ends_reasoning_in_channels() {
        for form in [true, false] {
            let mut it = at_start(Some(2), form);
            [CHANNEL, ANALYSIS, MESSAGE, ANY]
                .into_iter()
                .for_each(|token| it.accept(token));
            assert!(allowed(&mut it).contains(&ANY));
            it.accept(ANY);
            assert_eq!(allowed(&mut it), [END]);
            assert_eq!(forced(&it)[0], END);
            it.accept(END);
            assert_eq!(allowed(&mut it).len(), if form { 1 } else { 10 });
        }
        let mut free = at_start(Some(0), false);
        assert_eq!(
            allowed(&mut free).len(),
            10,
            "before it thinks it may say anything"
        );
        [CHANNEL, FINAL, MESSAGE, ANY]
            .into_iter()
            .for_each(|token| free.accept(token));
        assert_eq!(allowed(&mut free).len(), 10, "and after");
    }
}
