//! How much of what was measured still counts.

use std::time::Duration;

/// How many half-lives passed.
pub(crate) fn half_lives(passed: Duration, half_life: Duration) -> f64 {
    passed.as_secs_f64() / half_life.as_secs_f64()
}

/// The share that is left after that many half-lives.
pub(crate) fn remaining_part(half_lives: f64) -> f64 {
    (-half_lives).exp2()
}
