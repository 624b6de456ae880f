//! Ollama's API: `/api/*`.

pub mod chat_request;
pub(crate) mod done_reason;
pub(crate) mod encoder;
pub mod error_response;
pub mod generate_request;
pub mod go_template;
pub mod keep_alive;
pub mod model_name;
pub mod modelfile;
pub mod request;
pub(crate) mod response_line;
pub mod store_request;
#[cfg(test)]
mod tests;
