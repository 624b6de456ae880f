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
//! - While this process has no connection, no engine counts as dead.
//!
//! ```text
//! core            polls of requests                    assignment       a request and where it runs
//! placing         requests that go to an engine
//! arrivals        messages of engines                  order_queue      orders until acknowledged, their messages
//! outgoing        orders, credit, reads                endings          attempts that are given up, and ends
//! config          times and bounds                     engines          engines from heartbeats
//! driver          the relay on NATS                    submission       a request on its way to an engine
//! whole_batches   batches that show no loss            model_slots      models that come and go
//! ```

mod arrivals;
mod assignment;
mod config;
mod core;
mod counters;
mod driver;
mod endings;
mod engines;
mod model_slots;
mod order_queue;
mod outgoing;
mod placing;
#[cfg(test)]
mod simulation;
mod submission;
#[cfg(test)]
mod tests;
mod whole_batches;

pub use arrivals::SubmitOutcome;
pub use config::RelayConfig;
pub use core::{Action, Relay};
pub use counters::RelayCounters;
pub use driver::{InstanceSource, RelayDriver, RelayLink};
pub use engines::{Engines, KnownInstance, ModelEngines};
pub use model_slots::RelayedModel;
