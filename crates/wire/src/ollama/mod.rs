//! Ollama's API: `/api/*`.

pub mod chat_request;
pub(crate) mod encoder;
pub(crate) mod ending;
pub mod generate_request;
pub mod go_template;
pub mod keep_alive;
pub(crate) mod line;
pub mod modelfile;
pub mod names;
pub(crate) mod refusal;
pub mod request;
#[cfg(test)]
mod tests;
