//! Limits of API keys that hold for all gateways of a cluster together.
//!
//! Every gateway has the whole bucket of each key, and admits by itself: no request waits for another process. Each
//! [`INTERVAL`] a gateway publishes what it has admitted in total ([`crate::messages::UsageReport`]), and charges its own
//! buckets for what the others have. Two rules bound what happens before a report arrives:
//!
//! - *Shares of the rest.* In each [`WINDOW`], which is longer than a report takes, a gateway admits at most its equal
//!   share of what was left before, or one request. So all gateways together admit at most the rest, and one request each.
//! - *Silent gateways.* A gateway is heard while a report arrives that acknowledges one that this gateway has sent within
//!   [`SILENT`]: so lost and late messages are seen in both directions, with one clock. A silent gateway is taken to use as
//!   much as one that is heard: a charge counts for both. A gateway that is cut off so has the limit over the last known
//!   number of gateways. The excess is returned when reports arrive again. A gateway that is silent for [`HELD`] is dead
//!   and has no share.
//!
//! Clocks need not agree: reports have counts and durations only. No message is an error, whatever its bytes.
//!
//! ```text
//! rate_share    a bucket of a rate           stream_share  open streams       recent    the last WINDOW
//! key_state     both, for one key            peers         other gateways     standing  how many there are and are heard
//! assumed       what silent gateways are taken to have used
//! core          all keys and gateways, without clock and network
//! key_share     a key's limits, as requests use them           exchange      reports over NATS
//! ```

mod assumed;
mod core;
mod exchange;
mod key_share;
mod key_state;
mod peers;
mod rate_share;
mod recent;
#[cfg(test)]
mod simulation;
mod standing;
mod stream_share;
#[cfg(test)]
mod tests;

pub use self::core::{SharesCore, SharesCounts};
pub use exchange::UsageExchange;
pub use key_share::{KeyShare, KeyShares};
pub use key_state::SharedLimits;
pub use peers::GATEWAYS_MAX;
pub use rate_share::Shortage;
pub use standing::Standing;
pub use stream_share::StreamShortage;

use std::time::Duration;

/// Time between two reports of a gateway.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Time without an acknowledgement after which a gateway is taken to be cut off, or dead.
pub const SILENT: Duration = Duration::from_millis(500);
/// Time in which admitted requests are taken to be unknown to others: [`SILENT`], and an interval until that is noticed.
pub const WINDOW: Duration = Duration::from_millis(600);
/// Time for which a silent gateway keeps its share: as long as an empty bucket needs to fill.
pub const HELD: Duration = Duration::from_secs(60);
