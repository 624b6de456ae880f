//! Several instances of Millrace over NATS: gateways, engines, and the records that let one take over from another.
//!
//! A gateway owns streams: token logs, journal, frames. An engine computes tokens. Tokens travel on core NATS; records of
//! streams are copied to JetStream.
//!
//! ```text
//! config     how NATS is reached
//! executor   the engine side: requests of gateways on this process's engines
//! forecast   demand of the next minutes, and engines for it
//! instances  live instances, from their heartbeats
//! job_names  names that clients give to jobs: one job of a name in the cluster
//! messages   messages between gateways and engines
//! names      names of instances and of NATS subjects
//! nats       the connection
//! node       this process with its role
//! placement  which engine gets a request
//! records    records of streams in JetStream, and their owners
//! relay      the gateway side: requests on engines of other processes
//! secret     what the gateways share, and engines do not have
//! ```

#![deny(clippy::match_bool)]

pub mod config;
pub mod executor;
pub mod forecast;
pub mod instances;
pub mod job_names;
pub mod messages;
pub mod names;
pub mod nats;
pub mod node;
pub mod placement;
pub mod records;
pub mod relay;
pub mod secret;
