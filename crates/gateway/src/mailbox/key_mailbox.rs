//! The mailbox of one key.

use super::cursor::{MailboxCursor, Place};
use super::mail::{Mail, MailboxEntry};
use super::page::MailboxPage;
use std::collections::VecDeque;
use std::sync::Arc;
use stream::StreamId;
use tokio::sync::Notify;

/// The events of one key that nobody has acknowledged.
#[derive(Default)]
pub(super) struct KeyMailbox {
    /// In the order in which they came; the places of one origin ascend.
    mails: VecDeque<Mail>,
    /// Events that were removed without an acknowledgement.
    pub(super) dropped: u64,
    /// An event has come.
    pub(super) news: Arc<Notify>,
}

impl KeyMailbox {
    pub(super) fn len(&self) -> usize {
        self.mails.len()
    }

    /// Time and place of the oldest event.
    pub(super) fn oldest(&self) -> Option<(u64, Place)> {
        let oldest = self.mails.front()?;
        Some((oldest.record.created_unix_us, oldest.place))
    }

    /// Whether nobody reads, and there is nothing to tell.
    pub(super) fn is_idle(&self) -> bool {
        self.mails.is_empty() && self.dropped == 0 && Arc::strong_count(&self.news) == 1
    }

    pub(super) fn has(&self, stream: StreamId) -> bool {
        self.mails.iter().any(|mail| mail.record.stream == stream)
    }

    pub(super) fn push(&mut self, mail: Mail) {
        self.mails.push_back(mail);
        self.news.notify_waiters();
    }

    /// Removes the oldest event. False: there is none.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let dropped = self.mails.pop_front().is_some();
        self.dropped += u64::from(dropped);
        dropped
    }

    /// Removes events that came before this time; returns how many.
    pub(super) fn drop_older(&mut self, than_unix_us: u64) -> usize {
        let before = self.mails.len();
        while let Some(oldest) = self.mails.front()
            && oldest.record.created_unix_us < than_unix_us
        {
            self.drop_oldest();
        }
        before - self.mails.len()
    }

    /// At most `limit` events that the client does not have.
    pub(super) fn page(&self, after: &MailboxCursor, limit: usize) -> MailboxPage {
        let unread = self.mails.iter();
        let mut unread = unread.filter(|mail| !after.covers(mail.place));
        MailboxPage {
            entries: unread
                .by_ref()
                .take(limit)
                .filter_map(MailboxEntry::new)
                .collect(),
            has_more: unread.next().is_some(),
            dropped: self.dropped,
        }
    }

    /// Removes the events up to the cursor; returns how many.
    pub(super) fn acknowledge(&mut self, cursor: &MailboxCursor) -> usize {
        let before = self.mails.len();
        self.mails.retain(|mail| !cursor.covers(mail.place));
        before - self.mails.len()
    }

    /// Removes the event that is this object of the journal; returns whether there was one.
    pub(super) fn remove_object(&mut self, id: u128) -> bool {
        let before = self.mails.len();
        let is_object = |mail: &Mail| mail.blob.as_ref().is_some_and(|blob| blob.id() == id);
        self.mails.retain(|mail| !is_object(mail));
        before > self.mails.len()
    }
}
