//! The task that attempts the deliveries that are due.

use super::outbox::DueDelivery;
use super::{AttemptOutcome, Outbox, SendWebhook};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use wire::clock;

/// Time until the table is read again in any case: the wall clock may be set.
const LOOK: Duration = Duration::from_secs(60);

/// Attempts the deliveries that are due, forever. Dropping the future leaves the attempts in flight without a record:
/// they are repeated.
pub async fn run_deliveries(outbox: Arc<Outbox>, sender: Arc<dyn SendWebhook>) {
    let mut attempts = JoinSet::new();
    loop {
        while let Some(attempt) = outbox.begin_attempt() {
            attempts.spawn(send(Arc::clone(&outbox), Arc::clone(&sender), attempt));
        }
        let wait = outbox.next_due().map_or(LOOK, |due_unix_us| {
            Duration::from_micros(due_unix_us.saturating_sub(clock::unix_us())).min(LOOK)
        });
        tokio::select! {
            () = outbox.news.notified() => {}
            Some(_) = attempts.join_next() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Sends one request after its delivery is in the journal: a success that the next process does not know of is an event
/// that arrives twice, and never one that is lost.
async fn send(outbox: Arc<Outbox>, sender: Arc<dyn SendWebhook>, attempt: DueDelivery) {
    if let Some(blob) = &attempt.blob {
        blob.written().await;
    }
    let (outcome, received) = oneshot::channel();
    sender.send(attempt.request, outcome);
    let failed = |_| AttemptOutcome::Failed("the request could not be sent".to_owned());
    let outcome = received.await.unwrap_or_else(failed);
    outbox.finish_attempt(attempt.stream, &outcome);
}
