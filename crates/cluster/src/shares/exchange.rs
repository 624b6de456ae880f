//! Reports of usage over NATS.

use super::INTERVAL;
use super::key_share::KeyShares;
use crate::messages::UsageReport;
use crate::names::{ClusterName, Subjects};
use crate::nats::{Connection, SubjectKind, publish_in_time};
use async_nats::Subscriber;
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// Time for the last report to be sent.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Publishes and receives reports of usage; ends when dropped.
#[derive(Debug)]
pub struct UsageExchange {
    shared: Arc<ExchangeState>,
    driver: JoinHandle<()>,
}

#[derive(Debug)]
struct ExchangeState {
    shares: KeyShares,
    connection: Arc<Connection>,
    subject: String,
}

impl UsageExchange {
    /// Begins to send reports, and to receive those of others. Must be called inside a tokio runtime.
    pub fn start(connection: Arc<Connection>, cluster: &ClusterName, shares: KeyShares) -> Self {
        let shared = Arc::new(ExchangeState {
            shares,
            connection,
            subject: Subjects::new(cluster).usage(),
        });
        let driver = tokio::spawn(Arc::clone(&shared).run());
        Self { shared, driver }
    }

    /// Sends the last report: the others share this gateway's part at once. To be called when no stream is open any more.
    pub async fn leave(self) {
        self.driver.abort();
        let shared = &self.shared;
        let report = shared.shares.leave(now());
        shared.publish(&report).await;
        if shared.connection.is_usable() {
            // Without a connection the others see silence.
            let flushed = shared.connection.client().flush();
            let _ = tokio::time::timeout(LEAVE_MAX, flushed).await;
        }
    }
}

impl Drop for UsageExchange {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl ExchangeState {
    async fn run(self: Arc<Self>) {
        let subject = self.subject.clone();
        let Ok(mut heard) = self.connection.client().subscribe(subject).await else {
            // The subject is valid, so the connection has ended.
            return;
        };
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                is_open = self.hear(&mut heard) => {
                    if !is_open {
                        return;
                    }
                }
                _ = ticks.tick() => {
                    let is_usable = self.connection.is_usable();
                    let report = self.shares.tick(is_usable, now());
                    self.publish(&report).await;
                }
            }
        }
    }

    /// Takes one message. `false`: the subscription has ended.
    async fn hear(&self, heard: &mut Subscriber) -> bool {
        let Some(message) = heard.next().await else {
            return false;
        };
        let before = self.shares.counts();
        self.shares.receive(&message.payload, now());
        let after = self.shares.counts();
        let is_first = |before: u64, after: u64| before == 0 && after > 0;
        if after.malformed + after.newer > before.malformed + before.newer {
            let unreadable = self.connection.unreadable();
            unreadable.note(SubjectKind::Usage, "no report of this version");
        }
        if is_first(before.over_limit, after.over_limit) {
            tracing::error!("too many gateways: the usage of the others is not counted");
        }
        true
    }

    /// Without a connection the report is dropped: the next one has the same counts.
    async fn publish(&self, report: &UsageReport) {
        if !self.connection.is_usable() {
            return;
        }
        if let Ok(bytes) = report.encode() {
            let client = self.connection.client();
            let subject = self.subject.clone();
            let _ = publish_in_time(client, subject, None, bytes.into()).await;
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
