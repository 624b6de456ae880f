//! Load generation for servers with OpenAI's streaming API: arrivals, latencies, throughput, goodput.
//!
//! **Open loop** ([`Arrivals::Poisson`]): requests arrive independently of responses, and each latency starts
//! when the request was *due*. So a stalled server is charged for all requests that had to wait, including
//! those that a closed loop would never have sent (no coordinated omission). **Closed loop**
//! ([`Arrivals::Clients`]): a fixed number of clients, each with one request at a time.
//!
//! **Tokens** are counted by the server's `usage`; a frame may have several tokens, or none that are visible.
//! If the server sends no usage, frames with text are counted, and the report has a flag for that. A response
//! of `n` tokens in `f` frames has `n - 1` inter-token latencies: the `f - 1` between frames, and `n - f` of
//! zero for tokens in the frame of the token before. So the distribution of inter-token latencies is exact,
//! whichever frame had how many tokens.

mod chunk;
mod client;
mod driver;
mod options;
mod report;
mod request_trace;

pub use driver::run;
pub use options::{
    Arrivals, Endpoint, IN_FLIGHT_MAX, LatencyTargets, LoadError, LoadOptions, PROMPT_MAX,
    REQUESTS_MAX, Target, TargetError,
};
pub use report::{Goodput, LoadReport};
