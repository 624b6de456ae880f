//! Ollama's format: `/api/*`.
//!
//! ```text
//! routes           who answers what               models        /api/tags, /api/ps, /api/show, /api/version
//! request          fields both routes share       residence     requests that only load, keep_alive
//! chat_request     /api/chat                      names         `tiny`, `tiny:latest`
//! generate_request /api/generate                  unsupported   what is refused, and what instead
//! go_template      the `template` of a request    frames        from events to lines
//! ending           how endings are spelled        refusal       errors
//! manage           /api/create, /api/copy, /api/delete           pull      /api/pull
//! modelfile        a model, written down
//! ```

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
