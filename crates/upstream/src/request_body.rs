//! The body of a request to an upstream.

use generate::remote_request::RemoteRequest;
use generate::request::GenerationParams;
use serde_json::{Map, Value, json};

/// The part of a request that upstreams cannot compute by token ids, or `None`. The name is that of the request's field.
pub fn unsupported_part(request: &RemoteRequest) -> Option<&'static str> {
    let GenerationParams {
        response_format,
        constrained_tools,
        reasoning_budget,
        prompt_logprobs,
        sampling,
        ..
    } = &request.params;
    let update = &request.in_effect;
    [
        ("response_format", response_format.is_some()),
        ("tools (strict)", !constrained_tools.is_empty()),
        ("reasoning_budget", reasoning_budget.is_some()),
        ("prompt_logprobs", *prompt_logprobs),
        ("top_logprobs", sampling.top_logprobs > 0),
        ("typical_p", sampling.typical_p < 1.0),
        (
            "control updates",
            *update != engine::RequestUpdate::default(),
        ),
    ]
    .into_iter()
    .find_map(|(name, is_used)| is_used.then_some(name))
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

/// What a call is made of.
pub(crate) struct CallBody<'a> {
    pub(crate) model: &'a str,
    pub(crate) request: &'a RemoteRequest,
    pub(crate) choice: usize,
    /// The prompt and the tokens so far.
    pub(crate) ids: &'a [u32],
    /// Tokens that are left.
    pub(crate) max_tokens: usize,
    /// Tokens generated so far.
    pub(crate) generated: usize,
}

impl CallBody<'_> {
    /// JSON for `/v1/completions`, with vLLM's fields.
    pub(crate) fn to_json(&self) -> Value {
        let params = &self.request.params;
        let sampling = &params.sampling;
        let mut body = Map::new();
        let mut set = |name: &str, value: Value| {
            body.insert(name.to_owned(), value);
        };
        set("model", json!(self.model));
        set("prompt", json!(self.ids));
        set("max_tokens", json!(self.max_tokens));
        set("stream", json!(true));
        set("return_token_ids", json!(true));
        set("temperature", json!(sampling.temperature));
        if sampling.temperature > 0.0 {
            // Choices of a request are requests here, each with a seed of its own.
            let seed = self
                .request
                .seed
                .wrapping_add(u64::from(self.request.first_choice));
            let seed = seed.wrapping_add(self.choice as u64) & (i64::MAX as u64);
            set("seed", json!(seed));
            set("top_p", json!(sampling.top_p));
            set("min_p", json!(sampling.min_p));
            if sampling.top_k > 0 {
                set("top_k", json!(sampling.top_k));
            }
        }
        for (name, value, neutral) in [
            ("presence_penalty", sampling.presence_penalty, 0.0),
            ("frequency_penalty", sampling.frequency_penalty, 0.0),
            ("repetition_penalty", sampling.repetition_penalty, 1.0),
        ] {
            if value != neutral {
                set(name, json!(value));
            }
        }
        if !params.stops.is_empty() {
            set("stop", json!(params.stops));
            // The end of a stop string is cut off here, as with an engine.
            set("include_stop_str_in_output", json!(true));
        }
        if !params.stop_token_ids.is_empty() {
            set("stop_token_ids", json!(params.stop_token_ids));
        }
        if params.ignore_eos || sampling.ignore_eos {
            set("ignore_eos", json!(true));
        }
        let least = (sampling.min_tokens as usize).saturating_sub(self.generated);
        if least > 0 {
            set("min_tokens", json!(least));
        }
        if !sampling.logit_bias.is_empty() {
            let bias = sampling.logit_bias.iter();
            let bias: Map<_, _> = bias
                .map(|(id, bias)| (id.to_string(), json!(bias)))
                .collect();
            set("logit_bias", Value::Object(bias));
        }
        if sampling.logprobs {
            set("logprobs", json!(0));
        }
        Value::Object(body)
    }
}
