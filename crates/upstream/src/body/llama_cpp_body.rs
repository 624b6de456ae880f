//! The body of llama.cpp's route `/completion`. What a request does not ask for is turned off by name: the server has
//! defaults of its own.

use super::{CallBody, Fields};
use serde_json::{Value, json};

/// Seeds are 32 bits, of which the highest value means a random one.
const SEED_MASK: u64 = 0x7FFF_FFFF;

impl CallBody<'_> {
    /// JSON for `/completion`.
    pub(super) fn llama_cpp_json(&self) -> Value {
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
