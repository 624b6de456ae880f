//! The native format: jobs. `/v1/inference` and `/v1/jobs*`.
//!
//! A job is a stream with one answer, told as data-only SSE events, each a JSON object with a `type`:
//!
//! ```text
//! queued{position}*  started{job_id,model,started_at}  (token{t,i,n?} | metrics{..})*
//! then exactly one of  end{tokens_out,decode_time_ms,stop_reason,stop_sequence_matched?}
//!                      error{code,message,retriable}
//! then [DONE]
//! ```
//!
//! A whole answer (`"stream": false`) is the fold of the same events.

pub(crate) mod code;
pub(crate) mod ending;
pub(crate) mod frames;
pub(crate) mod job_id;
pub(crate) mod jobs;
pub(crate) mod names;
pub(crate) mod refusal;
pub(crate) mod request;
pub(crate) mod rfc3339;
#[cfg(test)]
mod tests;
