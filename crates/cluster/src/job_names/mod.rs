//! Names that clients give to jobs: one job of a name and key in the whole cluster.
//!
//! ```text
//! record       what JetStream has of a name
//! name_store   the subject of a name
//! name_claim   one request that wants a name
//! ```
//!
//! # States of a name at a gateway
//!
//! *Free*, *reserved* (a request wants the name), *used* (there is a job). A request reserves the name before anything else,
//! and keeps the reservation until the job is there or is rejected. Each gateway tells the others on request.
//!
//! # With JetStream
//!
//! The name has a subject. A request reads the subject's last record, asks all gateways, and appends its own record after
//! the one that was read: JetStream accepts one record after each. A gateway that uses the name, and the reservation of the
//! gateway that the last record names, reject the request. Records are not removed when a job is: a name whose record nobody
//! uses is free.
//!
//! Two requests cannot both have a name: the later record follows the earlier one, so its request read the earlier one
//! first, and asked afterwards. The gateway of the earlier one had the name reserved before its record, so it answers that
//! the name is reserved or used, or it does not answer, which is an error for the client (503). If that gateway is gone, the
//! name is free unless there are records of its job, which another gateway takes over. A gateway that is regarded as gone
//! and is not learns it when it confirms the record with the stream of the job: another record came first.
//!
//! # Without JetStream
//!
//! A request reserves the name, then asks. Of two requests that ask, the second one to reserve sees the other's reservation.
//! If both see each other's, the lower instance waits until the higher one has given up or has a job; the higher one gives
//! up. Gateways that do not hear each other may both use a name.

mod name_claim;
mod name_store;
mod record;
#[cfg(test)]
mod simulation;

pub use name_claim::{ClaimedName, NameAnswers, NameClaim, NameRefusal, OtherGateways};
pub use name_store::{JetStreamName, NameStore};
pub use record::NameRecord;
