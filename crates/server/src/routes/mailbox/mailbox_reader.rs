//! A reader of one mailbox, who waits for events.

use crate::app::App;
use crate::peers::{PassedRequest, PeerCalls, PeerReach, Unanswered};
use gateway::keys::Caller;
use gateway::mailbox::{MailboxCursor, MailboxPage, Mailboxes};
use http::request::Parts;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use stream::Owner;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

/// Longest time between two looks at the other gateways while a reader waits. Their notices come at once, and may be lost.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A reader of one mailbox.
pub(super) struct MailboxReader {
    mailboxes: Arc<Mailboxes>,
    owner: Owner,
    cursor: MailboxCursor,
    news: Arc<Notify>,
    draining: watch::Receiver<bool>,
    /// The other gateways, and the reader's request; `None`: the reader wants the events of this gateway.
    others: Option<(Arc<PeerCalls>, Parts)>,
}

/// Events of the gateways that answered.
#[derive(Default)]
pub(super) struct MergedPage {
    pub(super) page: MailboxPage,
    /// Gateways whose events are missing.
    pub(super) unanswered: Vec<Unanswered>,
}

impl MailboxReader {
    /// A reader of the caller's mailbox at this gateway, who has everything up to the cursor.
    pub(super) fn new(app: &App, caller: &Caller, cursor: MailboxCursor) -> Self {
        let mailboxes = Arc::clone(&app.gateway.mailboxes);
        Self {
            news: mailboxes.news(caller.owner),
            mailboxes,
            owner: caller.owner,
            cursor,
            draining: app.lifecycle.drain_watch(),
            others: None,
        }
    }

    /// A reader of the mailboxes at all gateways. `head` is the reader's request.
    pub(super) fn with_others(self, app: &App, head: Parts) -> Self {
        Self {
            others: Some((Arc::clone(&app.peer_calls), head)),
            ..self
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
    pub(super) async fn next_page(&mut self, limit: usize, wait: Duration) -> MergedPage {
        let until = Instant::now() + wait;
        let news = Arc::clone(&self.news);
        let mut merged;
        loop {
            // Before the look: an event that comes after it is noticed.
            let mut news = pin!(news.notified());
            news.as_mut().enable();
            merged = self.look(limit).await;
            let now = Instant::now();
            if !merged.page.entries.is_empty() || now >= until {
                break;
            }
            let look_again = self.others.as_ref().map(|_| now + LOOK_AGAIN);
            tokio::select! {
                () = news => {}
                () = sleep_until(look_again.unwrap_or(until).min(until)) => {}
                _ = self.draining.wait_for(|draining| *draining) => break,
            }
        }
        self.cursor = merged.page.cursor_after(&self.cursor);
        merged
    }

    /// The events that are there now.
    async fn look(&self, limit: usize) -> MergedPage {
        let mut merged = MergedPage::default();
        let mut pages = Vec::new();
        if let Some((calls, head)) = &self.others {
            let path = format!(
                "/v1/mailbox?stream=false&limit={limit}&after={}",
                self.cursor
            );
            let request = PassedRequest::get(head, path);
            let answers = calls.ask_all(PeerReach::Gateways, &request).await;
            merged.unanswered = answers.unanswered;
            for answer in answers.answers {
                match serde_json::from_slice(&answer.body) {
                    Ok(page) => pages.push(page),
                    Err(why) => {
                        let why = format!("its answer cannot be read: {why}");
                        merged.unanswered.push(Unanswered::new(&answer.peer, why));
                    }
                }
            }
        }
        pages.push(self.mailboxes.read(self.owner, &self.cursor, limit));
        merged.page = MailboxPage::merge(pages, limit);
        merged
    }
}
