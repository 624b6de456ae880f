//! Waiting for a condition that another thread or process brings about.

use std::time::{Duration, Instant};

/// How long a test waits for a condition: a guard against hanging, not a measure.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Checks `condition` every millisecond until it holds.
///
/// # Panics
/// When the condition does not hold within [`PATIENCE`].
#[expect(clippy::disallowed_methods, reason = "a guard against hanging")]
pub fn wait_until(label: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {label}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
