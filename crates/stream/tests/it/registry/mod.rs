//! The registry's laws: one owner, two kinds of missing, the oldest end out first, dropping is
//! releasing; and the whole of it beside a naive twin.
//!
//! Promise (Streams): another key's stream is not found; a recently deleted one is distinguished.

mod access;
mod model;
mod ops;
mod release;
mod retention;

use std::time::{Duration, Instant};
use stream::{Owner, RegistryLimits, StreamId};

const ANN: Owner = Owner(1);
const BOB: Owner = Owner(2);

const LIMITS: RegistryLimits = RegistryLimits {
    open_max: 10,
    retained_max: 10,
    retained_bytes_max: 1000,
    retention: Duration::from_secs(10),
    gone_max: 100,
};

#[expect(
    clippy::disallowed_methods,
    reason = "a point to count from; no test waits"
)]
fn now() -> Instant {
    Instant::now()
}

fn id(number: u64) -> StreamId {
    let mut bytes = [0x5a; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    StreamId::from_random(bytes)
}

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}
