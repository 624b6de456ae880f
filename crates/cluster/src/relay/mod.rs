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
//! - **Leaving.** A request that another gateway continues ends here, and its engine keeps it.
//! - **Adoption.** A request that an earlier process had submitted is looked for at all engines before it is sent.
//! - **Embeddings** have no tokens: their vector comes beside the end, which counts with the vector only.
//! - While this process has no connection, no engine counts as dead.
//!
//! ```text
//! core            polls of requests                    assignment       a request and where it runs
//! placing         requests that go to an engine
//! adoption        engines that have a request of an earlier process
//! arrivals        messages of engines                  order_queue      orders until acknowledged
//! outgoing        orders, credit, reads                endings          attempts that are given up, and ends
//! config          times and bounds                     farewells        attempts that engines are to forget
//! driver          the relay on NATS                    engines          engines from heartbeats
//! whole_batches   batches that show no loss            left_attempts    attempts that engines keep for the next owner
//! model_slots     models that come and go              submission       a request on its way to an engine
//! order_parts     orders within the bounds of messages
//! ```

mod adoption;
mod arrivals;
mod assignment;
mod config;
mod core;
mod counters;
mod driver;
mod endings;
mod engines;
mod farewells;
mod left_attempts;
mod model_slots;
mod order_parts;
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
