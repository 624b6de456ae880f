//! A reader of one mailbox, who waits for events.

use crate::app::App;
use gateway::keys::Caller;
use gateway::mailbox::{MailboxCursor, MailboxPage, Mailboxes};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use stream::Owner;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

/// A reader of one mailbox.
pub(super) struct MailboxReader {
    mailboxes: Arc<Mailboxes>,
    owner: Owner,
    cursor: MailboxCursor,
    news: Arc<Notify>,
    draining: watch::Receiver<bool>,
}

impl MailboxReader {
    /// A reader of the caller's mailbox, who has everything up to the cursor.
    pub(super) fn new(app: &App, caller: &Caller, cursor: MailboxCursor) -> Self {
        let mailboxes = Arc::clone(&app.gateway.mailboxes);
        Self {
            news: mailboxes.news(caller.owner),
            mailboxes,
            owner: caller.owner,
            cursor,
            draining: app.lifecycle.drain_watch(),
        }
    }

    /// How far the reader has read.
    pub(super) fn cursor(&self) -> &MailboxCursor {
        &self.cursor
    }

    /// Whether the server shuts down: no further events are waited for.
    pub(super) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// The next events; after `wait` without one, or when the server shuts down, an empty page.
    pub(super) async fn next_page(&mut self, limit: usize, wait: Duration) -> MailboxPage {
        let until = Instant::now() + wait;
        let mut page;
        loop {
            // Before the look: an event that comes after it is noticed.
            let mut news = pin!(self.news.notified());
            news.as_mut().enable();
            page = self.mailboxes.read(self.owner, &self.cursor, limit);
            if !page.entries.is_empty() || Instant::now() >= until {
                break;
            }
            tokio::select! {
                () = news => {}
                () = sleep_until(until) => {}
                _ = self.draining.wait_for(|draining| *draining) => break,
            }
        }
        self.cursor = page.cursor_after(&self.cursor);
        page
    }
}
