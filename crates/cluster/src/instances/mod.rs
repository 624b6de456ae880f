//! The live instances of a cluster, from their heartbeats.
//!
//! ```text
//! registry     which instances there are, and in which state; `now` is an argument
//! silence      time without a heartbeat, counted only while heartbeats could arrive
//! probe        a refused connection says that a silent instance has ended
//! difference   what another instance has that this one has not: keys, models, versions of records
//! warnings     differences and two clusters under one name, in words
//! seal         the code of a heartbeat, by the secret of the gateways
//! log_budget   how many changes are logged
//! membership   publishes this instance's heartbeats and hears the others'
//! ```

mod difference;
mod log_budget;
mod membership;
mod probe;
mod registry;
mod seal;
mod silence;
#[cfg(test)]
mod simulation;
mod warnings;

pub use difference::Difference;
pub use membership::{Membership, MembershipConfig, PublishCounts};
pub use registry::{Change, INSTANCES_MAX, InstanceState, LiveInstance, Registry, RegistryCounts};
pub use seal::Seal;
