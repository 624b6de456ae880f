//! Requests for an engine of another process.
//!
//! A gateway has a model's tokenizer and template, and no weights. What it submits to its engine handle is sent to the
//! engine of another process as a [`RemoteRequest`]: the prepared prompt, the parameters, and what else decides the
//! tokens. The engine's side restores the prompt, compiles the constraints again, and continues the tokens so far exactly
//! as a recovered stream continues ([`Submission::resume`](crate::submit::Submission::resume)). So a request is moved to
//! another engine with the same record and the tokens so far.

mod embedding;
pub mod record;
pub(crate) mod record_terms;
mod resumption;
#[cfg(test)]
mod tests;

pub use self::embedding::RecordPooling;
pub use self::record::{REMOTE_REQUEST_BYTES_MAX, RemoteRequest};
pub use self::record_terms::RecordTerms;
pub use self::resumption::{ChoiceSoFar, Resumption};
