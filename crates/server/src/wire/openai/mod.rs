//! OpenAI's formats: `/v1/chat/completions`, `/v1/completions`, `/v1/models`.

pub(crate) mod chat_encoder;
pub(crate) mod chat_request;
pub(crate) mod chunk;
pub(crate) mod completion_encoder;
pub(crate) mod completion_request;
pub(crate) mod control;
pub(crate) mod ending;
pub(crate) mod logprobs;
pub(crate) mod models;
pub(crate) mod refusal;
#[cfg(test)]
mod tests;
