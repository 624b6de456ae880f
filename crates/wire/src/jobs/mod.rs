//! The jobs API: `/v1/inference` and `/v1/jobs*`.
//!
//! A job is a stream with one answer. The stream is sent as data-only SSE events, each a JSON object with a `type`:
//!
//! ```text
//! queued{position}*  started{job_id,model,started_at}  (token{t,i,n?} | metrics{..})*
//! then exactly one of  end{tokens_out,decode_time_ms,stop_reason,stop_sequence_matched?}
//!                      error{code,message,retriable}
//! then [DONE]
//! ```
//!
//! Each of the last frames has its own SSE id, so a client that was disconnected between `end` (or `error`) and
//! `[DONE]` receives the rest after a reconnection. An `error` after some tokens is preceded by `metrics`, because
//! `error` has no counts.
//!
//! The non-streaming response (`"stream": false`) is collected from these events.
//!
//! `token.i` is the index of the frame's first token, from 0; `n` is the number of tokens in the frame, left out for
//! one. A slow reader gets several tokens at once; 0 means the rest of the text of the previous token. The next
//! frame's `i` is therefore `i + n`. Tokens of a matched stop string are in no frame; `tokens_out` counts them.
//! `metrics` are sent every half second while tokens are generated.
//!
//! Reasoning is sent as `token` with `"kind":"reasoning"`. A tool call is `tool_call{call,id,name}`, any number of
//! `tool_args{call,t}`, and `tool_end{call}`; `call` is the index of the call, and `i` and `n` are those of `token`. A
//! non-streaming response has the fields `reasoning` and `tool_calls`.
//!
//! The id of a job is chosen by the caller, unless another job of the caller has this id; otherwise the job has its
//! stream's id. A job is found by the stream's id in either case, here and at `/v1/streams`. A streamed job continues
//! without its client, up to its credit and `streams.detached_tokens`, unless `X-Stream-Resumable: 0` is given.
//! `started` and `queued` have no SSE id: clients cannot resume after them.

pub(crate) mod encoder;
pub mod request;
#[cfg(test)]
mod tests;
