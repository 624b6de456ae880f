//! The live instances of a cluster, from their heartbeats.
//!
//! ```text
//! registry     which instances there are, and in which state; `now` is an argument
//! silence      time without a heartbeat, counted only while heartbeats could arrive, and refused connections
//! warnings     differences of other instances and two clusters under one name, in words; lines of the log
//! membership   publishes this instance's heartbeats, sealed, and hears the others'
//! ```

mod membership;
mod registry;
mod silence;
#[cfg(test)]
mod simulation;
mod warnings;

pub use membership::{Membership, MembershipConfig, PublishCounts, Seal};
pub use registry::{Change, INSTANCES_MAX, InstanceState, LiveInstance, Registry, RegistryCounts};
pub use warnings::Difference;
