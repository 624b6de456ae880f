//! The gateway's side of requests on engines of other processes.
//!
//! A [`Relay`] takes requests from remote handles ([`engine::remote`]), places each on an engine, and appends the tokens
//! that come back. It has no I/O and no clock: a driver passes messages and `now` in and carries [`Action`]s out.
//!
//! - **Index decides.** Tokens carry their index in the choice's log. Tokens that are there already must be equal;
//!   tokens beyond the next index show that a message was lost, and the engine is asked for what is missing. A request
//!   that nothing was heard of is read as well: the last message has no successor that would show its loss.
//! - **Attempts.** When an engine dies, rejects the request or loses it, the request is sent to another engine with the
//!   tokens so far, as the next attempt. Messages of earlier attempts are ignored, and their engine is ordered to forget
//!   them. A request with which several engines died without a token in between fails with
//!   [`stream::FailCode::CrashedEngines`].
//! - **Orders** (pause, resume, updates) are numbered and repeated until acknowledged; credit is sent as it grows.
//! - **Embeddings** have no tokens: their vector comes beside the end, which counts with the vector only.
//! - **Images** go as files before the request, to engines that have the tower of this gateway's model.
//! - While this process has no connection, no engine counts as dead.
//!
//! ```text
//! core            polls of requests, times and bounds   assignment       a request, where it runs, and its end
//! placing         requests that go to an engine         outgoing         orders until acknowledged, credit, reads, parts
//! arrivals        messages of engines                   driver           the relay and its models on NATS
//! files           files of requests, sent before them
//! ```

mod arrivals;
mod assignment;
mod core;
mod driver;
mod files;
mod outgoing;
mod placing;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use arrivals::SubmitOutcome;
pub use core::{Action, Relay, RelayConfig, RelayCounters};
pub use driver::{InstanceSource, RelayDriver, RelayLink, RelayedModel};
pub use placing::{Engines, KnownInstance, ModelEngines};
