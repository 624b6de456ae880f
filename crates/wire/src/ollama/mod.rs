//! Ollama's API: `/api/*`.

pub mod chat_request;
pub(crate) mod encoder;
pub mod generate_request;
pub mod go_template;
pub mod model_name;
pub mod modelfile;
pub mod request;
pub mod response_line;
pub mod store_request;
#[cfg(test)]
mod tests;
