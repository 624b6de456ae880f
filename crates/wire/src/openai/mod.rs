//! OpenAI's chat completions and completions: `/v1/chat/completions`, `/v1/completions`, `/v1/models`.

pub mod chat_encoder;
pub mod chat_request;
pub(crate) mod chunk;
pub(crate) mod completion_encoder;
pub mod completion_request;
mod dry_xtc_fields;
mod earlier_calls;
pub mod error_response;
pub mod finish_reason;
pub mod generation_fields;
pub(crate) mod logprobs;
pub mod lora_field;
pub mod model_list;
pub mod stored_completion;
#[cfg(test)]
mod tests;
pub(crate) mod token_ids;
