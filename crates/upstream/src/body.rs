//! Bodies of requests for tokens, for each kind of server. A field that a request leaves out is turned off by name: a server has
//! defaults of its own, or those of its model.

use super::model_probe::FoundModel;
use crate::model_probe::UpstreamKind;
use engine::{CacheSalt, SamplingParams};
use generate::remote_request::RemoteRequest;
use generate::request::GenerationParams;
use serde_json::{Map, Value, json};

/// Parts of a call.
pub(crate) struct CallBody<'a> {
    pub(crate) model: &'a FoundModel,
    pub(crate) request: &'a RemoteRequest,
    /// Number among the choices of the prompt.
    pub(crate) choice: u32,
    /// Tokens of the answer so far, from its beginning.
    pub(crate) answered: &'a [u32],
    /// Tokens that the whole answer may have.
    pub(crate) max_tokens: usize,
    /// Salt of the prefix cache.
    pub(crate) salt: CacheSalt,
}

impl CallBody<'_> {
    /// Route and JSON of the call.
    pub(crate) fn route_and_json(&self) -> (&'static str, Value) {
        match self.model.kind {
            UpstreamKind::LlamaCpp => ("/completion", self.llama_cpp_json()),
            _ => ("/v1/completions", self.openai_json()),
        }
    }

    /// The prompt followed by the tokens so far.
    fn prompt_and_answer(&self) -> Vec<u32> {
        [&self.request.prompt.ids, self.answered].concat()
    }

    /// Tokens that are left.
    fn rest(&self) -> usize {
        self.max_tokens.saturating_sub(self.answered.len())
    }

    /// The seed of a choice that is a request of its own.
    fn choice_seed(&self) -> u64 {
        self.request.seed.wrapping_add(u64::from(self.choice))
    }
}

/// An object of JSON that is being written.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

/// The part of a request that no upstream can compute, or `None`. The name is that of the request's field.
pub(crate) fn unsupported_part(request: &RemoteRequest) -> Option<&'static str> {
    let GenerationParams {
        response_format,
        constrained_tools,
        reasoning_budget,
        prompt_logprobs,
        sampling,
        tool_calling,
        ..
    } = &request.params;
    let update = &request.in_effect;
    [
        ("embedding", request.embedding.is_some()),
        ("response_format", response_format.is_some()),
        ("tools (strict)", !constrained_tools.is_empty()),
        ("parallel_tool_calls", tool_calling.single_call),
        ("reasoning_budget", reasoning_budget.is_some()),
        ("prompt_logprobs", *prompt_logprobs),
        ("top_logprobs", sampling.top_logprobs > 0),
        ("typical_p", sampling.typical_p < 1.0),
        ("dry_multiplier", sampling.dry_multiplier > 0.0),
        ("xtc_probability", sampling.xtc_probability > 0.0),
        (
            "control updates",
            *update != engine::RequestUpdate::default(),
        ),
    ]
    .into_iter()
    .find_map(|(name, is_used)| is_used.then_some(name))
}

/// The part of a request that servers of a kind cannot compute, or `None`.
pub(crate) fn unsupported_by(
    kind: &UpstreamKind,
    params: &GenerationParams,
) -> Option<&'static str> {
    let is_llama = *kind == UpstreamKind::LlamaCpp;
    (is_llama && params.sampling.min_tokens > 0).then_some("min_tokens")
}

/// Whether the prompt with the tokens so far continues exactly like the answer: greedy, and nothing counts tokens of the
/// answer apart from those of the prompt.
pub(crate) fn continues_exactly(params: &GenerationParams) -> bool {
    let sampling = &params.sampling;
    sampling.temperature <= 0.0
        && sampling.presence_penalty == 0.0
        && sampling.frequency_penalty == 0.0
        && sampling.repetition_penalty == 1.0
}

/// Seeds are 32 bits, of which the highest value means a random one.
const SEED_MASK: u64 = 0x7FFF_FFFF;

impl CallBody<'_> {
    /// JSON for `/completion`.
    fn llama_cpp_json(&self) -> Value {
        let params = &self.request.params;
        let sampling = &params.sampling;
        let mut body = Fields::default();
        body.set("model", self.model.name.as_str());
        body.set("prompt", self.prompt_and_answer());
        body.set("n_predict", self.rest());
        body.set("stream", true);
        body.set("return_tokens", true);
        body.set("cache_prompt", true);
        body.set("temperature", sampling.temperature);
        body.set("seed", self.choice_seed() & SEED_MASK);
        body.set("top_k", sampling.top_k);
        body.set("top_p", sampling.top_p);
        body.set("min_p", sampling.min_p);
        body.set("typical_p", 1.0);
        body.set("repeat_penalty", sampling.repetition_penalty);
        // All tokens of prompt and answer, as here. The server allocates so many; recent ones take no -1 for all.
        let tokens_max = self.request.prompt.ids.len() + self.max_tokens;
        body.set("repeat_last_n", tokens_max);
        body.set("presence_penalty", sampling.presence_penalty);
        body.set("frequency_penalty", sampling.frequency_penalty);
        for name in [
            "dynatemp_range",
            "dry_multiplier",
            "xtc_probability",
            "mirostat",
        ] {
            body.set(name, 0);
        }
        body.set("ignore_eos", params.ignore_eos || sampling.ignore_eos);
        if !params.stops.is_empty() {
            body.set("stop", params.stops.as_slice());
        }
        if !sampling.logit_bias.is_empty() {
            let bias = sampling.logit_bias.iter();
            let bias: Vec<_> = bias.map(|(id, bias)| json!([id, bias])).collect();
            body.set("logit_bias", bias);
        }
        if sampling.logprobs {
            body.set("n_probs", 1);
        }
        Value::Object(body.0)
    }
}

impl CallBody<'_> {
    /// JSON for `/v1/completions`.
    fn openai_json(&self) -> Value {
        let params = &self.request.params;
        let sampling = &params.sampling;
        let mut body = Fields::default();
        body.set("model", self.model.name.as_str());
        body.set("stream", true);
        body.set("temperature", sampling.temperature);
        let is_text = self.model.kind == UpstreamKind::OpenAiText;
        if !is_text {
            body.set("return_token_ids", true);
        }
        match self.model.kind {
            UpstreamKind::Millrace(_) => self.set_continuation(&mut body),
            _ => self.set_prompt(&mut body),
        }
        if sampling.temperature > 0.0 {
            set_filters(&mut body, sampling);
        }
        body.set("presence_penalty", sampling.presence_penalty);
        body.set("frequency_penalty", sampling.frequency_penalty);
        body.set("repetition_penalty", sampling.repetition_penalty);
        if !params.stops.is_empty() {
            body.set("stop", params.stops.as_slice());
            if !is_text {
                // The end of a stop string is cut off here, as with an engine.
                body.set("include_stop_str_in_output", true);
            }
        }
        if !params.stop_token_ids.is_empty() {
            body.set("stop_token_ids", params.stop_token_ids.as_slice());
        }
        if params.ignore_eos || sampling.ignore_eos {
            body.set("ignore_eos", true);
        }
        if !sampling.logit_bias.is_empty() {
            let bias = sampling.logit_bias.iter();
            let bias: Map<_, _> = bias
                .map(|(id, bias)| (id.to_string(), json!(bias)))
                .collect();
            body.set("logit_bias", bias);
        }
        if sampling.logprobs && !is_text {
            body.set("logprobs", 0);
        }
        if let CacheSalt(salt) = self.salt
            && self.salt != CacheSalt::NONE
            && !is_text
        {
            body.set("cache_salt", format!("{salt:x}"));
        }
        Value::Object(body.0)
    }

    /// The prompt with the tokens so far, as a request of its own.
    fn set_prompt(&self, body: &mut Fields) {
        let sampling = &self.request.params.sampling;
        body.set("prompt", self.prompt_and_answer());
        body.set("max_tokens", self.rest());
        if sampling.temperature > 0.0 {
            // Choices of a request are requests here, each with a seed of its own.
            body.set("seed", self.choice_seed() & (i64::MAX as u64));
        }
        let least = (sampling.min_tokens as usize).saturating_sub(self.answered.len());
        if least > 0 {
            body.set("min_tokens", least);
        }
    }

    /// The answer of this choice, from its tokens so far on.
    fn set_continuation(&self, body: &mut Fields) {
        let sampling = &self.request.params.sampling;
        body.set("prompt", self.request.prompt.ids.as_slice());
        body.set("max_tokens", self.max_tokens);
        body.set("seed", self.request.seed);
        if !self.answered.is_empty() {
            body.set("continue_token_ids", self.answered);
        }
        if self.choice > 0 {
            body.set("continue_choice", self.choice);
        }
        if sampling.min_tokens > 0 {
            body.set("min_tokens", sampling.min_tokens);
        }
    }
}

fn set_filters(body: &mut Fields, sampling: &SamplingParams) {
    body.set("top_p", sampling.top_p);
    body.set("min_p", sampling.min_p);
    match sampling.top_k {
        // Older servers know no other number for "all".
        0 => body.set("top_k", -1),
        top_k => body.set("top_k", top_k),
    }
}
