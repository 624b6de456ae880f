//! Bounds of mailboxes.

use std::time::Duration;

/// Bounds of mailboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxSettings {
    /// Events of one key; 0: there are no mailboxes.
    pub events_max: usize,
    /// Events of all keys.
    pub total_max: usize,
    /// Age at which an event is removed.
    pub age_max: Duration,
}

impl Default for MailboxSettings {
    fn default() -> Self {
        Self {
            events_max: 1000,
            total_max: 16384,
            age_max: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl MailboxSettings {
    /// Whether ends are put into mailboxes.
    pub fn is_on(&self) -> bool {
        self.events_max > 0
    }
}
