//! Events that one read of a mailbox returns.

use super::cursor::MailboxCursor;
use super::mail::MailboxEntry;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Events after a cursor.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MailboxPage {
    /// In the order of their ends at each gateway.
    pub entries: Vec<MailboxEntry>,
    /// Whether there are further events.
    pub has_more: bool,
    /// Events of the key that were removed without an acknowledgement.
    pub dropped: u64,
}

impl MailboxPage {
    /// The cursor of a client that had `before`, and has this page.
    pub fn cursor_after(&self, before: &MailboxCursor) -> MailboxCursor {
        let mut cursor = before.clone();
        for entry in &self.entries {
            cursor.pass(entry);
        }
        cursor
    }

    /// The pages of several gateways as one: by time, and in the order of each page.
    pub fn merge(pages: Vec<Self>, limit: usize) -> Self {
        let mut merged = Self::default();
        let mut queues: Vec<VecDeque<MailboxEntry>> = Vec::with_capacity(pages.len());
        for page in pages {
            merged.has_more |= page.has_more;
            merged.dropped += page.dropped;
            queues.push(page.entries.into());
        }
        while merged.entries.len() < limit {
            let heads = queues.iter_mut().filter(|queue| !queue.is_empty());
            let created = |queue: &VecDeque<MailboxEntry>| {
                queue
                    .front()
                    .map_or(u64::MAX, MailboxEntry::created_unix_us)
            };
            let first = heads.min_by_key(|queue| created(queue));
            let Some(next) = first.and_then(VecDeque::pop_front) else {
                break;
            };
            merged.entries.push(next);
        }
        merged.has_more |= queues.iter().any(|queue| !queue.is_empty());
        merged
    }
}
