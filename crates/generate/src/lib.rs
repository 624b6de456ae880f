//! From a typed request to typed events: prompts, output constraints, submission to the engine, and the output
//! pipeline. No HTTP, no JSON requests, no sockets, no async but wakers, no clock.
//!
//! ```text
//! request      what a request means, in every wire protocol       prompt           messages or text -> prompt ids
//! constraint   which tokens may come next                         stop             stop strings, as the engine sees them
//! stream_meta  what is fixed when a stream is opened              stream_source    metadata and token logs
//! output       token log -> text, reasoning, tool calls, events   model_handle     a loaded model
//! submit       start and resumption: prompt ids -> logs, requests tools            tools and how they may be called
//! detokenize   a list of ids -> text                          embedding        a prompt as one vector
//! remote_request  a request for an engine of another process  value_bounds, update_record  decoded values
//! adapters     adapters of a model, and of a request         ended_time       when a stream ended
//! truncation      prompts that leave no room for the answer
//! rerank_template a prompt with places for a query and a document   sampling_defaults  for requests that set no parameters
//! ```

pub mod adapters;
pub mod constraint;
pub mod detokenize;
mod dry_breakers;
pub mod embedding;
pub mod ended_time;
pub mod error;
pub mod generation_options;
pub mod infill_prompt;
pub mod model_handle;
pub mod offered_tools;
pub mod output;
pub mod priority;
pub mod prompt;
pub mod prompt_limit;
pub mod prompt_record;
pub mod remote_request;
pub mod reported_sampling;
pub mod request;
mod request_serde;
pub mod rerank_template;
pub mod response_format;
pub mod sampling_defaults;
pub mod stop;
pub mod stream_change;
pub mod stream_meta;
pub mod stream_source;
pub mod submit;
pub mod tools;
pub mod truncation;
pub mod update_record;
pub mod value_bounds;
