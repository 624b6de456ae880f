//! Ollama's API: `/api/*`.

pub(crate) mod encoder;
pub mod go_template;
pub mod request;
pub mod response_line;
pub mod store_request;
#[cfg(test)]
mod tests;
