//! OpenAI's chat completions and completions: `/v1/chat/completions`, `/v1/completions`, `/v1/models`.

pub mod chat_encoder;
pub(crate) mod chunk;
pub(crate) mod completion_encoder;
pub mod completion_request;
pub mod model_list;
pub mod stored_completion;
#[cfg(test)]
mod tests;
