//! Bodies of requests for tokens, for each kind of server.
//!
//! ```text
//! llama_cpp_body  llama.cpp's own route
//! openai_body     completions, with vLLM's and Millrace's fields
//! ```

mod llama_cpp_body;
mod openai_body;

use super::model_probe::{FoundModel, UpstreamKind};
use engine::CacheSalt;
use generate::remote_request::RemoteRequest;
use generate::request::GenerationParams;
use serde_json::{Map, Value};

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
