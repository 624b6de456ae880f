//! Ollama's format: `/api/*`.
//!
//! ```text
//! routes           who answers what               models        /api/tags, /api/ps, /api/show, /api/version
//! request          fields both routes share       residence     requests that only load, keep_alive
//! chat_request     /api/chat                      names         `tiny`, `tiny:latest`
//! generate_request /api/generate                  unsupported   what is refused, and what instead
//! go_template      the `template` of a request    frames        from events to lines
//! ending           how endings are spelled        refusal       errors
//! ```

pub(crate) mod chat_request;
pub(crate) mod ending;
pub(crate) mod frames;
pub(crate) mod generate_request;
mod go_template;
mod models;
pub(crate) mod names;
pub(crate) mod refusal;
mod request;
mod residence;
mod routes;
#[cfg(test)]
mod tests;
mod unsupported;

pub(crate) use routes::routes;
