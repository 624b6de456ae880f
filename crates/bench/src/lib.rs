//! Measuring: [`speed`] of a model beside the machine's [`limits`], a server's streams under
//! [`load`], and what a model knows ([`eval`]). A figure here always comes with what it is to be compared with: bandwidth and peak
//! measured in the same run, or the rate and the clients that asked for it.

mod clock;
pub mod eval;
pub mod limits;
pub mod load;
pub mod process;
pub mod speed;
mod summary;
mod table;

pub use summary::Summary;
