//! Repeated attempts: how often, and after which pauses.

use crate::clock::now;
use std::time::Duration;

/// Consecutive attempts without a new byte.
const FRUITLESS_MAX: u32 = 5;
/// Pause after the first such attempt; longer after each further one.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause that a hub may ask for with `Retry-After`; beyond it the person decides.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time between two looks at whether the caller still waits.
const LOOK: Duration = Duration::from_millis(500);

/// Consecutive attempts without progress.
#[derive(Default)]
pub(super) struct Attempts {
    fruitless: u32,
}

impl Attempts {
    /// The last attempt made progress.
    pub(super) fn made_progress(&mut self) {
        self.fruitless = 0;
    }

    /// Pauses after an attempt without progress, for as long as the hub asked for, if it did. False: no further attempt is
    /// to be made. `look` fails if the caller no longer waits.
    pub(super) fn pause<E>(
        &mut self,
        asked: Option<Duration>,
        mut look: impl FnMut() -> Result<(), E>,
    ) -> Result<bool, E> {
        self.fruitless += 1;
        let pause = asked.unwrap_or(PAUSE * self.fruitless);
        if self.fruitless >= FRUITLESS_MAX || pause > PAUSE_MAX {
            return Ok(false);
        }
        let end = now() + pause;
        loop {
            let left = end.saturating_duration_since(now());
            if left.is_zero() {
                return Ok(true);
            }
            std::thread::park_timeout(left.min(LOOK));
            look()?;
        }
    }
}
