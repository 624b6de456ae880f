//! The mailbox of one key.

use super::cursor::{MailboxCursor, Place};
use super::mail::{Mail, MailboxEntry};
use super::page::MailboxPage;
use crate::durability::ForgottenRecords;
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
    /// An event has come, here or at another gateway.
    pub(super) news: Arc<Notify>,
    /// Acknowledged places, also of other gateways' events, and the time (microseconds since 1970).
    acknowledged: Option<(MailboxCursor, u64)>,
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

    /// Whether nobody reads, and there is nothing to tell or to remember.
    pub(super) fn is_idle(&self) -> bool {
        let is_silent = self.mails.is_empty() && self.dropped == 0 && self.acknowledged.is_none();
        is_silent && Arc::strong_count(&self.news) == 1
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

    /// Removes events that came before this time; returns how many. Acknowledgements before it covered such events only.
    pub(super) fn drop_older(&mut self, than_unix_us: u64) -> usize {
        let before = self.mails.len();
        self.acknowledged
            .take_if(|(_, at_unix_us)| *at_unix_us < than_unix_us);
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

    /// Removes the events up to the cursor; returns how many, and their records.
    pub(super) fn acknowledge(&mut self, cursor: &MailboxCursor) -> (usize, ForgottenRecords) {
        let (before, mut forgotten) = (self.mails.len(), ForgottenRecords::default());
        self.mails.retain(|mail| {
            let is_kept = !cursor.covers(mail.place);
            let blob = mail.blob.as_ref().filter(|_| !is_kept);
            blob.into_iter()
                .for_each(|blob| blob.forget(&mut forgotten));
            is_kept
        });
        (before - self.mails.len(), forgotten)
    }

    /// Remembers an acknowledgement, for events of other gateways that are taken over later.
    pub(super) fn remember_acknowledged(&mut self, cursor: &MailboxCursor, now_unix_us: u64) {
        let (acknowledged, at_unix_us) = self.acknowledged.get_or_insert_default();
        acknowledged.merge(cursor);
        *at_unix_us = now_unix_us;
    }

    /// Whether an event that had this place at another gateway was acknowledged.
    pub(super) fn has_acknowledged(&self, place: Place) -> bool {
        let acknowledged = self.acknowledged.as_ref();
        acknowledged.is_some_and(|(cursor, _)| cursor.covers(place))
    }

    /// Removes the event that is this object of the journal; returns whether there was one.
    pub(super) fn remove_object(&mut self, id: u128) -> bool {
        let before = self.mails.len();
        let is_object = |mail: &Mail| mail.blob.as_ref().is_some_and(|blob| blob.id() == id);
        self.mails.retain(|mail| !is_object(mail));
        before > self.mails.len()
    }
}
