//! Whether a request can be run at all. Asked on the caller's thread, before anything is taken.

use crate::{
    CHOICES_MAX, EOS_IDS_MAX, EngineConfig, LOGIT_BIAS_MAX, Request, STEER_TOKENS_MAX, Sampling,
    Steer, TOP_LOGPROBS_MAX,
};
use model::Dims;
use std::ops::RangeInclusive;

/// All that is wrong with a request, each with its field and bound; `None`: it can be run.
pub(crate) fn faults(request: &Request, dims: &Dims, config: &EngineConfig) -> Option<String> {
    let mut faults = Faults(String::new());
    prompt(&mut faults, request, dims);
    tokens(&mut faults, request, dims);
    choices(&mut faults, request, config);
    sampling(&mut faults, &request.sampling, dims);
    let s = &request.sampling;
    let prompt = request.prompt.len();
    faults.require(s.answered as usize <= prompt, || {
        format!(
            "answered is {}; at most the prompt's length, {prompt}",
            s.answered
        )
    });
    faults.require(s.min_tokens as usize <= request.max_tokens, || {
        format!(
            "min_tokens is {}; at most max_tokens, {}",
            s.min_tokens, request.max_tokens
        )
    });
    (!faults.0.is_empty()).then_some(faults.0)
}

/// All that is wrong with a change to a running request, likewise.
pub(crate) fn steer_faults(steer: &Steer, dims: &Dims) -> Option<String> {
    let mut faults = Faults(String::new());
    let mut changed = Sampling::default();
    steer.change(&mut changed);
    sampling(&mut faults, &changed, dims);
    let (ids, most) = (steer.inject.len(), STEER_TOKENS_MAX);
    faults.require(ids <= most, || {
        format!("inject has {ids} tokens; at most {most}")
    });
    faults.ids("inject", steer.inject.iter().copied(), dims.vocab);
    (!faults.0.is_empty()).then_some(faults.0)
}

/// Tokens a choice of this request can get: `max_tokens`, or what the context leaves.
pub(crate) fn own_max(request: &Request, dims: &Dims) -> usize {
    request
        .max_tokens
        .min(dims.context_max.saturating_sub(request.prompt.len()))
}

/// Pages one choice needs when it is as long as it can get. The last token needs no position.
///
/// Who needs more than there are is not let in. So pages may be short and never run out for good: the first of all
/// can always run alone, with those of everybody else.
pub(crate) fn pages_alone(request: &Request, dims: &Dims) -> usize {
    (request.prompt.len() + own_max(request, dims))
        .saturating_sub(1)
        .div_ceil(dims.page_tokens)
}

/// Words, joined by "; ".
struct Faults(String);

impl Faults {
    fn require(&mut self, holds: bool, words: impl FnOnce() -> String) {
        if holds {
            return;
        }
        if !self.0.is_empty() {
            self.0.push_str("; ");
        }
        self.0.push_str(&words());
    }

    /// NaN is in no range.
    fn range(&mut self, name: &str, value: f32, range: RangeInclusive<f32>) {
        self.require(range.contains(&value), || {
            format!(
                "{name} is {value}; from {} to {}",
                range.start(),
                range.end()
            )
        });
    }

    fn ids(&mut self, name: &str, mut ids: impl Iterator<Item = u32>, vocab: usize) {
        if let Some(id) = ids.find(|id| *id as usize >= vocab) {
            self.require(false, || {
                format!("{name} names token {id}; the vocabulary has {vocab}")
            });
        }
    }
}

fn prompt(faults: &mut Faults, request: &Request, dims: &Dims) {
    let (len, context) = (request.prompt.len(), dims.context_max);
    faults.require(len > 0, || "prompt is empty; at least one token".into());
    faults.require(len < context, || {
        format!("prompt has {len} tokens; fewer than the context length, {context}")
    });
    faults.ids("prompt", request.prompt.iter().copied(), dims.vocab);
    let need = pages_alone(request, dims);
    faults.require(len >= context || need <= dims.pages, || {
        let (own, all) = (own_max(request, dims), dims.pages);
        format!("prompt of {len} and {own} more tokens need {need} pages; there are {all}")
    });
}

fn tokens(faults: &mut Faults, request: &Request, dims: &Dims) {
    faults.require(request.max_tokens > 0, || {
        "max_tokens is 0; at least 1".into()
    });
    faults.require(request.eos.len() <= EOS_IDS_MAX, || {
        format!("eos has {} ids; at most {EOS_IDS_MAX}", request.eos.len())
    });
    faults.ids("eos", request.eos.iter().copied(), dims.vocab);
}

fn choices(faults: &mut Faults, request: &Request, config: &EngineConfig) {
    let (n, most) = (request.choices.len(), CHOICES_MAX.min(config.sequences_max));
    faults.require((1..=most).contains(&n), || {
        format!("choices are {n}; from 1 to {most}")
    });
    faults.require(request.embedding.is_none() || n == 1, || {
        format!("choices are {n}; of an embedding 1")
    });
    let alternatives = request.sampling.top_logprobs as usize;
    for (i, choice) in request.choices.iter().enumerate() {
        let (room, wanted) = (choice.tokens.room(), request.max_tokens);
        faults.require(room >= wanted, || {
            format!(
                "the log of choice {i} has room for {room} tokens; at least max_tokens, {wanted}"
            )
        });
        faults.require(choice.top.is_some() == (alternatives > 0), || {
            format!("choice {i} has a side log exactly when top_logprobs is not 0")
        });
        let side = choice.top.as_ref().map_or(usize::MAX, stream::Writer::room);
        let wanted = wanted.saturating_mul(alternatives);
        faults.require(side >= wanted, || {
            format!("the side log of choice {i} has room for {side} items; at least {wanted}")
        });
    }
}

fn sampling(faults: &mut Faults, s: &Sampling, dims: &Dims) {
    faults.range("temperature", s.temperature, 0.0..=100.0);
    faults.range("top_p", s.top_p, 0.0..=1.0);
    faults.range("min_p", s.min_p, 0.0..=1.0);
    faults.range("typical_p", s.typical_p, 0.0..=1.0);
    faults.range("repetition_penalty", s.repetition_penalty, 0.01..=100.0);
    faults.range("presence_penalty", s.presence_penalty, -100.0..=100.0);
    faults.range("frequency_penalty", s.frequency_penalty, -100.0..=100.0);
    let entries = s.logit_bias.len();
    faults.require(entries <= LOGIT_BIAS_MAX, || {
        format!("logit_bias has {entries} entries; at most {LOGIT_BIAS_MAX}")
    });
    faults.ids(
        "logit_bias",
        s.logit_bias.iter().map(|(id, _)| *id),
        dims.vocab,
    );
    let bound = 1e6;
    if let Some((_, bias)) = s
        .logit_bias
        .iter()
        .find(|(_, b)| !(-bound..=bound).contains(b))
    {
        faults.range("logit_bias", *bias, -bound..=bound);
    }
    let most = TOP_LOGPROBS_MAX.min(dims.vocab as u32);
    faults.require(s.top_logprobs <= most, || {
        format!("top_logprobs is {}; at most {most}", s.top_logprobs)
    });
}
