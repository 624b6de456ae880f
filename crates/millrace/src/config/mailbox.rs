//! Settings of mailboxes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::MailboxSettings;
use std::time::Duration;

/// Mailboxes of keys: the ends of streams that nobody was there to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Mailbox {
    /// Maximum number of events of one key; the oldest one makes room. 0: there are no mailboxes.
    pub(crate) events_max: usize,
    /// Maximum number of events of all keys; the oldest one of the key with the most makes room.
    pub(crate) total_max: usize,
    /// Age at which an event is removed.
    pub(crate) age_max_s: u64,
}

impl Default for Mailbox {
    fn default() -> Self {
        let settings = MailboxSettings::default();
        Self {
            events_max: settings.events_max,
            total_max: settings.total_max,
            age_max_s: settings.age_max.as_secs(),
        }
    }
}

impl Mailbox {
    /// The settings as the server knows them.
    pub(crate) fn settings(&self) -> MailboxSettings {
        MailboxSettings {
            events_max: self.events_max,
            total_max: self.total_max,
            age_max: Duration::from_secs(self.age_max_s),
        }
    }
}
