//! Stop condition, output constraint and limits of one answer.

use super::Submission;
use crate::constraint::compiler::OutputConstraints;
use crate::constraint::harmony::{HarmonyConstraint, HarmonyHeaders};
use crate::constraint::prompt_logprobs::{self, ForcedTokens, SkipPrompt};
use crate::constraint::reasoning_budget::ReasoningBudget;
use crate::constraint::strict_tools::{ChainedConstraint, StrictCalls, WithoutDelimiters};
use crate::constraint::text_delimiters::{FormatAfterReasoning, TextReasoningBudget};
use crate::error::ApiError;
use crate::prompt::PreparedPrompt;
use crate::stop::StopStrings;
use engine::{Constraint, SamplingParams, StopCondition};
use std::sync::Arc;

/// Stop condition and output constraint at the beginning of an answer.
pub(super) struct AnswerRules {
    pub(super) terminator: Option<Box<dyn StopCondition>>,
    pub(super) constraint: Option<Box<dyn Constraint>>,
}

/// Limits of the answers to one prompt.
#[derive(Clone, Copy)]
pub(super) struct AnswerLimits {
    /// Most tokens that the engine generates, from the first on.
    pub(super) max_tokens: usize,
    /// Tokens of the prompt that the engine gets as prompt; the others are forced tokens of the answer.
    pub(super) prompt_len: usize,
    /// Tokens of the prompt at the beginning of the log.
    pub(super) echoed_first: usize,
    /// Tokens of the prompt that count as generated for the engine.
    pub(super) forced: usize,
}

impl Submission<'_> {
    /// The limits of the answers to this prompt.
    pub(super) fn answer_limits(&self, prompt: &PreparedPrompt) -> Result<AnswerLimits, ApiError> {
        let (params, len) = (self.params, prompt.ids.len());
        let context_max = self.context_max.min(self.model.context_max);
        let room = context_max.saturating_sub(len);
        let max_tokens = params.max_tokens.map_or(room, |max| max.min(room));
        let min_tokens = params.sampling.min_tokens as usize;
        if min_tokens > max_tokens {
            let words = format!(
                "min_tokens: is {min_tokens}; there is room for {max_tokens} more tokens in the context"
            );
            return Err(ApiError::field("min_tokens", "invalid_value", words));
        }
        if !params.prompt_logprobs {
            return Ok(AnswerLimits {
                max_tokens,
                prompt_len: len,
                echoed_first: 0,
                forced: 0,
            });
        }
        let ends = (!params.sampling.ignore_eos).then(|| self.eos_ids());
        let answer_tokens = prompt_logprobs::answer_tokens;
        Ok(AnswerLimits {
            max_tokens: answer_tokens(&prompt.ids, max_tokens, ends.as_deref())?,
            prompt_len: 1,
            echoed_first: 1,
            forced: len - 1,
        })
    }

    /// Stop condition and constraint of one answer, after the tokens of the prompt that are part of the answer.
    pub(super) fn answer_rules(&self, prompt: &PreparedPrompt) -> AnswerRules {
        let mut terminator = self.stop_condition(prompt);
        let mut constraint = self.output_constraint(prompt);
        if self.params.prompt_logprobs {
            let others = &prompt.ids[1..];
            let skip =
                |stop| Box::new(SkipPrompt::new(others.len(), stop)) as Box<dyn StopCondition>;
            terminator = terminator.map(skip);
            constraint = Some(Box::new(ForcedTokens::new(others, constraint)));
        }
        AnswerRules {
            terminator,
            constraint,
        }
    }

    /// The sampling parameters of the answers to a prompt with these limits.
    pub(super) fn sampling_params(&self, limits: AnswerLimits) -> SamplingParams {
        let sampling = self.params.sampling.clone();
        let forced = u32::try_from(limits.forced).unwrap_or(u32::MAX);
        SamplingParams {
            seed: self.seed,
            min_tokens: sampling.min_tokens.saturating_add(forced),
            ..sampling
        }
    }

    /// Stop strings, and the end of the only tool call, where a request has these.
    fn stop_condition(&self, prompt: &PreparedPrompt) -> Option<Box<dyn StopCondition>> {
        let (params, reading) = (self.params, &prompt.reading);
        if params.stops.is_empty() && !params.tool_calling.single_call {
            return None;
        }
        let stops = StopStrings::new(
            &self.model.tokenizer,
            prompt.at_text_start,
            reading,
            &params.stops,
        );
        Some(Box::new(
            stops.after_one_call(params.tool_calling.single_call),
        ))
    }

    /// The constraint of one answer: response format, tool calls, reasoning budget, or several of them.
    fn output_constraint(&self, prompt: &PreparedPrompt) -> Option<Box<dyn Constraint>> {
        let (reading, constraints) = (&prompt.reading, self.constraints);
        let budget = self.params.reasoning_budget;
        let is_constrained =
            constraints.grammar.is_some() || constraints.strict.is_some() || budget.is_some();
        match (reading.channels(), reading.marks(), reading.spelled()) {
            (Some(channels), ..) if is_constrained => Some(self.in_channels(channels, budget)),
            (_, Some(marks), _) if is_constrained => {
                let thinking = ReasoningBudget::new(
                    marks.clone(),
                    budget,
                    &self.eos_ids(),
                    self.content_constraint(),
                );
                Some(Box::new(thinking))
            }
            (.., Some(spelled)) if is_constrained => {
                let content = self.content_constraint().zip(self.content_constraint());
                let content = content.zip(constraints.delimiters.as_ref());
                let form = content.map(|((direct, after), delimiters)| {
                    FormatAfterReasoning::new(direct, after, delimiters, &self.eos_ids())
                });
                let (tokenizer, at_start) = (&self.model.tokenizer, prompt.at_text_start);
                let spelled = spelled.clone();
                let thinking = TextReasoningBudget::new(spelled, budget, tokenizer, at_start, form);
                Some(Box::new(thinking))
            }
            _ => self.content_constraint(),
        }
    }

    /// The constraint of content and tool calls, at the beginning of an answer.
    fn content_constraint(&self) -> Option<Box<dyn Constraint>> {
        let vocab = self.model.tokenizer.vocab_size();
        let OutputConstraints {
            grammar,
            strict,
            masks,
            ..
        } = self.constraints;
        match (grammar, strict) {
            (Some(grammar), _) => Some(Box::new(masks.start(grammar.matcher(), vocab))),
            (None, Some(strict)) => Some(Box::new(StrictCalls::new(strict, masks, vocab))),
            (None, None) => None,
        }
    }

    /// The constraint of an answer in Harmony channels. Strict tool calls are constrained in every channel.
    fn in_channels(&self, channels: &HarmonyHeaders, budget: Option<u64>) -> Box<dyn Constraint> {
        let harmony = |budget, content| {
            HarmonyConstraint::new(channels.clone(), budget, &self.eos_ids(), content)
        };
        match (self.content_constraint(), &self.constraints.strict) {
            (Some(strict), Some(_)) if budget.is_some() => Box::new(ChainedConstraint {
                first: Box::new(harmony(budget, None)),
                second: strict,
            }),
            (Some(strict), Some(_)) => strict,
            (Some(content), None) => {
                let content = match &self.constraints.delimiters {
                    Some(delimiters) => Box::new(WithoutDelimiters::new(content, delimiters)),
                    None => content,
                };
                Box::new(harmony(budget, Some(content)))
            }
            (None, _) => Box::new(harmony(budget, None)),
        }
    }

    /// The model's end-of-sequence ids and the request's. With `ignore_eos`, those of the request alone.
    pub(super) fn eos_ids(&self) -> Arc<[u32]> {
        let extra = &self.params.stop_token_ids;
        if extra.is_empty() {
            return Arc::clone(&self.model.eos);
        }
        let own: &[u32] = if self.params.ignore_eos {
            &[]
        } else {
            &self.model.eos
        };
        own.iter().chain(extra).copied().collect()
    }
}
