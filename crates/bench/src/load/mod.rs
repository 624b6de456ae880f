//! Load on any server of OpenAI's streaming API: who asks when, what came back when, and what that
//! says.
//!
//! **Open loop** ([`Arrivals::Poisson`]): requests arrive when they arrive, answered or not, and
//! each clock starts when its request was *due*. A server that stalls is charged for everybody who
//! had to wait, also for those whom a client that waits for answers would never have sent.
//! **Closed loop** ([`Arrivals::Clients`]): so many clients, each with one request at a time.
//!
//! **Tokens** are counted by the server's own `usage`; a frame may carry several of them, or none
//! that can be seen. Where a server tells no usage, frames with text are counted and the report
//! says so. An answer of `n` tokens in `f` frames has `n - 1` waits between tokens: the `f - 1`
//! between frames, and `n - f` of zero, for tokens that came with the one before. So the
//! distribution of inter-token latency is exact without knowing which frame held how many.

mod arrivals;
mod ask;
mod chunk;
mod connection;
mod driver;
mod events;
mod figures;
mod options;
mod report;
mod story;
mod target;
mod words;

pub(crate) use connection::Connections;
pub use driver::run;
pub use options::{
    Arrivals, Endpoint, IN_FLIGHT_MAX, LoadError, Objective, PROMPT_MAX, REQUESTS_MAX, Wish,
};
pub use report::{Goodput, Report};
pub(crate) use story::Failure;
pub use target::{Target, TargetError};
