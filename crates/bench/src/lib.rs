//! Measurement: the speed of a model beside the machine's limits ([`speed`], [`limits`]), a server under load
//! ([`load`]). Each result comes with its point of comparison:
//! bandwidth and arithmetic peak of the same run, or the request rate and the number of clients.

#![deny(clippy::match_bool)]

pub mod limits;
pub mod load;
pub mod process;
pub mod speed;
mod summary;

pub use summary::Summary;
