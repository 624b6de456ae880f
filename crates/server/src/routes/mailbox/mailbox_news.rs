//! Events that come into mailboxes at other gateways.

use crate::app::App;
use cluster::mailbox_notices::MailboxNotices;
use cluster::messages::Role;
use std::sync::Arc;
use stream::Owner;
use tokio::sync::mpsc;

/// Notices that wait to be sent. Beyond it, readers at other gateways look after some seconds.
const ARRIVALS_MAX: usize = 256;

/// Tells the other gateways of events that come into mailboxes here, and wakes the readers of mailboxes that have an event
/// elsewhere, until the process ends. Ready at once in a process without other gateways.
pub(crate) async fn exchange_mailbox_news(app: App) {
    let Some(node) = app.cluster.get().filter(|node| node.role() != Role::Engine) else {
        return;
    };
    let (sender, arrivals) = mpsc::channel(ARRIVALS_MAX);
    app.gateway.mailboxes.set_arrivals(sender);
    let connection = Arc::clone(node.connection());
    let notices = MailboxNotices::new(connection, node.subjects(), node.membership().id());
    let mailboxes = &app.gateway.mailboxes;
    notices
        .exchange(arrivals, |key| mailboxes.wake_readers(Owner(key)))
        .await;
}
