//! Validation of requests, on the caller's thread and before any resource is reserved.

use crate::media::MediaAbilities;
use crate::{
    CHOICES_MAX, DRY_BASE_MAX, DRY_MULTIPLIER_MAX, DRY_SEQUENCES_MAX, DRY_WINDOW_MAX, EOS_IDS_MAX,
    EngineConfig, INJECT_TOKENS_MAX, LOGIT_BIAS_MAX, Pooling, Request, RequestUpdate,
    SamplingParams, TOP_LOGPROBS_MAX,
};
use model::Dims;
use std::ops::RangeInclusive;

/// What bounds the fields of a request.
pub(crate) struct RequestBounds<'a> {
    pub(crate) dims: &'a Dims,
    pub(crate) config: &'a EngineConfig,
    /// See [`model::Capabilities::is_causal`].
    pub(crate) is_causal: bool,
    /// See [`model::Capabilities::adapters`].
    pub(crate) adapters: usize,
    /// Kinds of inputs that the model takes in place of tokens.
    pub(crate) media: MediaAbilities,
}

/// All invalid fields of a request with their bounds; `None`: the request is valid.
pub(crate) fn request_errors(request: &Request, bounds: &RequestBounds<'_>) -> Option<String> {
    let (dims, config) = (bounds.dims, bounds.config);
    let mut errors = FieldErrors(String::new());
    check_prompt(&mut errors, request, dims, bounds.is_causal);
    check_pooling(&mut errors, request, bounds.is_causal);
    check_media(&mut errors, request, &bounds.media);
    check_tokens(&mut errors, request, dims);
    check_adapters(&mut errors, request, bounds.adapters);
    check_choices(&mut errors, request, config);
    check_sampling(&mut errors, &request.sampling, dims);
    let s = &request.sampling;
    let prompt = request.prompt.len();
    errors.require(s.answered as usize <= prompt, || {
        format!(
            "answered is {}; at most the prompt's length, {prompt}",
            s.answered
        )
    });
    let tokens_max = request.max_tokens.saturating_add(s.answered as usize);
    errors.require(s.min_tokens as usize <= tokens_max, || {
        let bound = match s.answered {
            0 => "max_tokens",
            _ => "max_tokens and answered together",
        };
        format!(
            "min_tokens is {}; at most {bound}, {tokens_max}",
            s.min_tokens
        )
    });
    (!errors.0.is_empty()).then_some(errors.0)
}

/// All invalid fields of an update with their bounds; `None`: the update is valid.
pub(crate) fn update_errors(update: &RequestUpdate, dims: &Dims) -> Option<String> {
    let mut errors = FieldErrors(String::new());
    let mut changed = SamplingParams::default();
    update.change(&mut changed);
    check_sampling(&mut errors, &changed, dims);
    let (ids, most) = (update.inject.len(), INJECT_TOKENS_MAX);
    errors.require(ids <= most, || {
        format!("inject has {ids} tokens; at most {most}")
    });
    errors.require_ids("inject", update.inject.iter().copied(), dims.vocab);
    (!errors.0.is_empty()).then_some(errors.0)
}

/// The most tokens that a choice of this request can get: `max_tokens`, or the rest of the context.
pub(crate) fn max_new_tokens(request: &Request, dims: &Dims) -> usize {
    request
        .max_tokens
        .min(dims.context_max.saturating_sub(request.prompt.len()))
}

/// Pages of one choice at the greatest length. The last token needs no position.
///
/// A request that needs more pages than there are is rejected. So pages may be short but never deadlock: the most urgent
/// sequence can always run alone, with all the pages of the others.
pub(crate) fn pages_needed(request: &Request, dims: &Dims) -> usize {
    (request.prompt.len() + max_new_tokens(request, dims))
        .saturating_sub(1)
        .div_ceil(dims.page_tokens)
}

/// Error messages, joined by "; ".
struct FieldErrors(String);

impl FieldErrors {
    fn require(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if holds {
            return;
        }
        if !self.0.is_empty() {
            self.0.push_str("; ");
        }
        self.0.push_str(&message());
    }

    /// Requires a value in a range; NaN is in none.
    fn require_range(&mut self, name: &str, value: f32, range: RangeInclusive<f32>) {
        self.require(range.contains(&value), || {
            format!(
                "{name} is {value}; from {} to {}",
                range.start(),
                range.end()
            )
        });
    }

    /// Requires ids of the vocabulary.
    fn require_ids(&mut self, name: &str, mut ids: impl Iterator<Item = u32>, vocab: usize) {
        if let Some(id) = ids.find(|id| *id as usize >= vocab) {
            self.require(false, || {
                format!("{name} names token {id}; the vocabulary has {vocab}")
            });
        }
    }
}

/// Tokens of the longest prompt: one position of a model that generates stays free.
pub(crate) fn prompt_tokens_max(dims: &Dims, is_causal: bool) -> usize {
    if is_causal {
        dims.context_max.saturating_sub(1)
    } else {
        dims.context_max
    }
}

fn check_pooling(errors: &mut FieldErrors, request: &Request, is_causal: bool) {
    let pooling = request
        .embedding
        .as_ref()
        .map(|embedding| embedding.pooling);
    errors.require(is_causal || pooling.is_some(), || {
        "embedding is missing; the model is an encoder, which generates no text".into()
    });
    errors.require(!is_causal || pooling != Some(Pooling::First), || {
        "pooling is that of the first token, which in this model attends to no other".into()
    });
}

fn check_prompt(errors: &mut FieldErrors, request: &Request, dims: &Dims, is_causal: bool) {
    let (len, context) = (request.prompt.len(), dims.context_max);
    let fits = len <= prompt_tokens_max(dims, is_causal);
    errors.require(len > 0, || "prompt is empty; at least one token".into());
    errors.require(fits, || {
        let bound = if is_causal { "fewer than" } else { "at most" };
        format!("prompt has {len} tokens; {bound} the context length, {context}")
    });
    errors.require_ids("prompt", request.prompt.iter().copied(), dims.vocab);
    let need = pages_needed(request, dims);
    errors.require(!fits || need <= dims.pages, || {
        let (own, all) = (max_new_tokens(request, dims), dims.pages);
        format!("prompt of {len} and {own} more tokens need {need} pages; there are {all}")
    });
}

fn check_media(errors: &mut FieldErrors, request: &Request, abilities: &MediaAbilities) {
    if let Some(why) = abilities.refusal(request) {
        errors.require(false, || why);
    }
}

fn check_tokens(errors: &mut FieldErrors, request: &Request, dims: &Dims) {
    errors.require(request.max_tokens > 0, || {
        "max_tokens is 0; at least 1".into()
    });
    errors.require(request.eos.len() <= EOS_IDS_MAX, || {
        format!("eos has {} ids; at most {EOS_IDS_MAX}", request.eos.len())
    });
    errors.require_ids("eos", request.eos.iter().copied(), dims.vocab);
}

fn check_adapters(errors: &mut FieldErrors, request: &Request, count: usize) {
    let last = request.adapters.last();
    errors.require(last.is_none_or(|last| last < count), || {
        let last = last.unwrap_or_default();
        format!("adapters name adapter {last}; the model has {count}")
    });
}

fn check_choices(errors: &mut FieldErrors, request: &Request, config: &EngineConfig) {
    let (n, most) = (request.choices.len(), CHOICES_MAX.min(config.sequences_max));
    errors.require((1..=most).contains(&n), || {
        format!("choices are {n}; from 1 to {most}")
    });
    errors.require(request.embedding.is_none() || n == 1, || {
        format!("choices are {n}; of an embedding 1")
    });
    let alternatives = request.sampling.top_logprobs as usize;
    for (i, choice) in request.choices.iter().enumerate() {
        let (room, wanted) = (choice.tokens.room(), request.max_tokens);
        errors.require(room >= wanted, || {
            format!(
                "the log of choice {i} has room for {room} tokens; at least max_tokens, {wanted}"
            )
        });
        errors.require(choice.top.is_some() == (alternatives > 0), || {
            format!("choice {i} has a side log exactly when top_logprobs is not 0")
        });
        let side = choice.top.as_ref().map_or(usize::MAX, stream::Writer::room);
        let wanted = wanted.saturating_mul(alternatives);
        errors.require(side >= wanted, || {
            format!("the side log of choice {i} has room for {side} items; at least {wanted}")
        });
    }
}

fn check_sampling(errors: &mut FieldErrors, s: &SamplingParams, dims: &Dims) {
    errors.require_range("temperature", s.temperature, 0.0..=100.0);
    errors.require_range("top_p", s.top_p, 0.0..=1.0);
    errors.require_range("min_p", s.min_p, 0.0..=1.0);
    errors.require_range("typical_p", s.typical_p, 0.0..=1.0);
    check_dry(errors, s);
    errors.require_range("xtc_probability", s.xtc_probability, 0.0..=1.0);
    errors.require_range("xtc_threshold", s.xtc_threshold, 0.0..=1.0);
    errors.require_range("repetition_penalty", s.repetition_penalty, 0.01..=100.0);
    errors.require_range("presence_penalty", s.presence_penalty, -100.0..=100.0);
    errors.require_range("frequency_penalty", s.frequency_penalty, -100.0..=100.0);
    let entries = s.logit_bias.len();
    errors.require(entries <= LOGIT_BIAS_MAX, || {
        format!("logit_bias has {entries} entries; at most {LOGIT_BIAS_MAX}")
    });
    errors.require_ids(
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
        errors.require_range("logit_bias", *bias, -bound..=bound);
    }
    let most = TOP_LOGPROBS_MAX.min(dims.vocab as u32);
    errors.require(s.top_logprobs <= most, || {
        format!("top_logprobs is {}; at most {most}", s.top_logprobs)
    });
}

fn check_dry(errors: &mut FieldErrors, s: &SamplingParams) {
    errors.require_range("dry_multiplier", s.dry_multiplier, 0.0..=DRY_MULTIPLIER_MAX);
    errors.require_range("dry_base", s.dry_base, 1.0..=DRY_BASE_MAX);
    for (name, value) in [
        ("dry_allowed_length", s.dry_allowed_length),
        ("dry_window", s.dry_window),
    ] {
        errors.require(value as usize <= DRY_WINDOW_MAX, || {
            format!("{name} is {value}; at most {DRY_WINDOW_MAX}")
        });
    }
    let longer = s.dry_breakers.longer_count();
    errors.require(longer <= DRY_SEQUENCES_MAX, || {
        format!(
            "dry_breakers has {longer} sequences of several tokens; at most {DRY_SEQUENCES_MAX}"
        )
    });
}
