//! Terms of service in records.

use engine::{Account, CacheSalt, Clocks, Policy, Priority, Terms};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Terms of service without points in time. By default those of [`Terms`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordTerms {
    priority: crate::priority::Priority,
    account: u64,
    weight: u32,
    /// Hexadecimal digits; empty: none.
    salt: String,
    policy: RecordPolicy,
    queue_ms: Option<u64>,
    first_token_ms: Option<u64>,
    idle_ms: Option<u64>,
    total_ms: Option<u64>,
    reader_ms: Option<u64>,
}

/// [`Policy`] by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordPolicy {
    #[default]
    Cancel,
    Detach,
    Keep,
}

impl RecordTerms {
    pub(crate) fn new(terms: &Terms) -> Self {
        let Clocks {
            queue,
            first_token,
            idle,
            total,
            reader,
        } = terms.clocks;
        let priorities = crate::priority::Priority::ALL;
        Self {
            priority: priorities[terms.priority as usize],
            account: terms.account.id,
            weight: terms.account.weight,
            salt: match terms.salt {
                CacheSalt::NONE => String::new(),
                CacheSalt(salt) => format!("{salt:x}"),
            },
            policy: match terms.policy {
                Policy::Cancel => RecordPolicy::Cancel,
                Policy::Detach => RecordPolicy::Detach,
                Policy::Keep => RecordPolicy::Keep,
            },
            queue_ms: queue.map(millis),
            first_token_ms: first_token.map(millis),
            idle_ms: idle.map(millis),
            total_ms: total.map(millis),
            reader_ms: reader.map(millis),
        }
    }

    /// The terms of a request that arrived at this time.
    pub(super) fn terms(&self, since: Option<Instant>) -> Terms {
        let clock = |ms: Option<u64>| ms.map(Duration::from_millis);
        Terms {
            priority: Priority::from(self.priority),
            account: Account {
                id: self.account,
                weight: self.weight,
            },
            clocks: Clocks {
                queue: clock(self.queue_ms),
                first_token: clock(self.first_token_ms),
                idle: clock(self.idle_ms),
                total: clock(self.total_ms),
                reader: clock(self.reader_ms),
            },
            // A salt that is no number shares with nobody but its equals.
            salt: match u128::from_str_radix(&self.salt, 16) {
                Ok(salt) => CacheSalt(salt),
                Err(_) if self.salt.is_empty() => CacheSalt::NONE,
                Err(_) => CacheSalt(u128::MAX),
            },
            policy: match self.policy {
                RecordPolicy::Cancel => Policy::Cancel,
                RecordPolicy::Detach => Policy::Detach,
                RecordPolicy::Keep => Policy::Keep,
            },
            since,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
