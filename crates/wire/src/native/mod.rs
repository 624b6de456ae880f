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
//! Each of the last frames has an SSE id of its own, so who is cut off between `end` (or `error`) and
//! `[DONE]` gets the rest when it comes back. An `error` after some tokens is preceded by their `metrics`:
//! it has no counts itself.
//!
//! A whole answer (`"stream": false`) is the fold of the same events.
//!
//! `token.i` is the index of the frame's first token, from 0; `n`, where it is there, says how many
//! tokens the frame holds (a reader that lags gets several at once, never fewer; 0 = the rest of the
//! text of the token before). So the next frame's `i` is `i + n`. Tokens of a matched stop string are
//! in no frame; `tokens_out` counts them. `metrics` come each half a second while tokens do.
//!
//! What a model thinks comes as `token` with `"kind":"reasoning"`. A call of a tool is `tool_call{call,id,
//! name}`, `tool_args{call,t}` as often as there is more of its arguments, and `tool_end{call}`; `call`
//! counts them, and `i` and `n` are as in `token`. Of a whole answer they are `reasoning` and `tool_calls`.
//!
//! A job is called as its caller wants it, if that is no other job of theirs, and else by its stream's
//! id; by that it is found in either case, here and at `/v1/streams`. A streamed job goes on without
//! its client, up to its credit and `streams.detached_tokens`, unless `X-Stream-Resumable: 0` says that
//! it need not. `started` and `queued` carry no SSE id: they are no place to come back to.

pub mod code;
pub(crate) mod encoder;
pub mod ending;
pub(crate) mod event;
pub mod job_id;
pub mod refusal;
pub mod request;
pub mod rfc3339;
#[cfg(test)]
mod tests;
