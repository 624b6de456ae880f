//! The body of completions, with vLLM's fields; for Millrace with its own. What a request does not ask for is turned off by
//! name: the server has defaults of its own, those of its model.

use super::{CallBody, Fields};
use crate::model_probe::UpstreamKind;
use engine::{CacheSalt, SamplingParams};
use serde_json::{Map, Value, json};

impl CallBody<'_> {
    /// JSON for `/v1/completions`.
    pub(super) fn openai_json(&self) -> Value {
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
