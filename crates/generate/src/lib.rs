//! From a typed request to typed events: prompts, output constraints, submission to the engine, and the output
//! pipeline. No HTTP, no JSON requests, no sockets, no async but wakers, no clock.
//!
//! ```text
//! request       what a request means, in every wire protocol       prompt         messages or text -> prompt ids
//! tools         tools and how they may be called                   prompt_limit   how long prompts may be
//! sampling      parameters of requests that set none               infill_prompt  prompts with gaps
//! constraint    which tokens may come next                         stop           stop strings, as the engine sees them
//! submit        start and resumption: prompt ids -> logs, requests embedding      a prompt as one vector
//! stream_source metadata, token logs and changes of a stream       model_handle   a loaded model, and its adapters
//! images        images: bytes -> rows of the prompt and inputs of the model's encoder
//! output        token log -> text, reasoning, tool calls, events   value_bounds   bounds of decoded values
//! remote_request  a request for an engine of another process       request_record the encoding of requests in records
//! ```

#![deny(clippy::match_bool)]

pub mod constraint;
pub mod embedding;
pub mod error;
pub mod generation_options;
pub mod images;
pub mod infill_prompt;
pub mod model_handle;
pub mod output;
pub mod prompt;
pub mod prompt_limit;
pub mod remote_request;
pub mod request;
pub mod request_record;
pub mod sampling;
pub mod stop;
pub mod stream_source;
pub mod submit;
pub mod tools;
pub mod value_bounds;
