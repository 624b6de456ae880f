//! Time between two attempts to connect.

use std::time::Duration;

/// Time before the second attempt; each further one waits twice as long.
const FIRST: Duration = Duration::from_millis(50);
/// Longest time.
const LONGEST: Duration = Duration::from_secs(2);

/// Time before attempt `attempt`, counted from 1 since the connection was lost. `random` spreads the attempts of many
/// instances over a quarter of the time.
pub(super) fn delay(attempt: usize, random: u8) -> Duration {
    if attempt <= 1 {
        return Duration::ZERO;
    }
    let doublings = u32::try_from(attempt - 2).unwrap_or(u32::MAX).min(16);
    let whole = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    whole - whole / 4 * u32::from(random) / 255
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_bound() {
        assert_eq!(delay(0, 0), Duration::ZERO);
        assert_eq!(delay(1, 255), Duration::ZERO);
        let ms = [2, 3, 4, 5, 6, 7, 8, 9, usize::MAX].map(|n| delay(n, 0).as_millis());
        assert_eq!(ms, [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000]);
        for attempt in 2..20 {
            let (long, short) = (delay(attempt, 0), delay(attempt, 255));
            assert_eq!(short, long - long / 4);
        }
    }
}
