//! Ended streams whose end no reader has and no client has acknowledged, in the order of their ends.

use super::StreamRegistry;
use super::stream_record::StreamRecord;
use stream::{Caller, Entry, EntryState, LIST_PAGE_MAX, ListCursor, Owner};

/// A page of unread streams.
pub struct UnreadPage {
    /// The streams with their positions in this list, which ascend.
    pub streams: Vec<(ListCursor, Entry<StreamRecord>)>,
    /// Whether there are more streams after these.
    pub has_more: bool,
}

impl StreamRegistry {
    /// The owner's unread streams after a position: at most `limit`, and those that ended in the same microsecond as the
    /// last one. A position is the time of the end, so it is valid in the next process, too.
    pub fn list_unread(&self, owner: Owner, after: ListCursor, limit: usize) -> UnreadPage {
        let mut unread = Vec::new();
        let mut opened_after = None;
        loop {
            let caller = Caller::Owner(owner);
            let page = self.registry().list(caller, opened_after, LIST_PAGE_MAX);
            let entries = page.entries.into_iter().filter(|entry| {
                matches!(entry.state, EntryState::Ended { .. }) && entry.payload.is_unread()
            });
            let ends = entries.map(|entry| (ListCursor(entry.payload.ended_unix_us()), entry));
            unread.extend(ends.filter(|(ended, _)| *ended > after));
            if page.next.is_none() {
                break;
            }
            opened_after = page.next;
        }
        unread.sort_by_key(|(ended, entry)| (*ended, entry.cursor));
        let last = unread.get(limit.saturating_sub(1));
        let last = last.map_or(ListCursor(u64::MAX), |(ended, _)| *ended);
        let count = unread.partition_point(|(ended, _)| *ended <= last);
        let has_more = count < unread.len();
        unread.truncate(count);
        UnreadPage {
            streams: unread,
            has_more,
        }
    }
}
