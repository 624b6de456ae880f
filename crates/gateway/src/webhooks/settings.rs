//! Settings of webhooks.

use super::host_pattern::HostPattern;
use std::time::Duration;

/// Longest delay between two attempts of a delivery.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(60 * 60);

/// Permissions and bounds by the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Hosts that may receive events; empty: webhooks are off.
    pub allowed_hosts: Vec<HostPattern>,
    /// Whether URLs may be `http://`.
    pub allow_http: bool,
    /// Whether hosts may have addresses that are not public.
    pub allow_private: bool,
    /// Time of one attempt.
    pub timeout: Duration,
    /// Attempts at one time; a key has at most half of them.
    pub in_flight_max: usize,
    /// Running streams with a webhook, and events to be delivered; a key has at most half of them.
    pub waiting_max: usize,
    /// Attempts of one delivery.
    pub attempts_max: u32,
    /// Age of a delivery after which there is no further attempt.
    pub age_max: Duration,
    /// Delay after the first failed attempt; each further delay is four times as long.
    pub retry: Duration,
    /// Deliveries that failed and are kept.
    pub dead_letters_max: usize,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allow_http: false,
            allow_private: false,
            timeout: Duration::from_secs(15),
            in_flight_max: 8,
            waiting_max: 1024,
            attempts_max: 12,
            age_max: Duration::from_secs(24 * 60 * 60),
            retry: Duration::from_secs(5),
            dead_letters_max: 1024,
        }
    }
}

impl WebhookSettings {
    /// Whether any webhook is accepted.
    pub fn is_on(&self) -> bool {
        !self.allowed_hosts.is_empty()
    }

    /// Delay after so many failed attempts: exponential, with 20 % of jitter up or down.
    pub(crate) fn delay(&self, failed: u32, random: u64) -> Duration {
        let factor = 4_u32.saturating_pow(failed.saturating_sub(1).min(15));
        let delay = self.retry.saturating_mul(factor).min(DELAY_MAX);
        let permille = 800 + u32::try_from(random % 401).unwrap_or(0);
        delay * permille / 1000
    }
}

/// Half of a bound, for one key.
pub(crate) fn share(bound: usize) -> usize {
    bound.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_grows_up_to_an_hour_with_jitter() {
        let settings = WebhookSettings::default();
        let seconds = |failed, random| settings.delay(failed, random).as_millis();
        assert_eq!(
            [seconds(1, 0), seconds(1, 200), seconds(1, 400)],
            [4000, 5000, 6000]
        );
        let middle: Vec<_> = (1..=8).map(|failed| seconds(failed, 200) / 1000).collect();
        assert_eq!(middle, [5, 20, 80, 320, 1280, 3600, 3600, 3600]);
        assert_eq!(seconds(u32::MAX, 400), 4_320_000);
    }
}
