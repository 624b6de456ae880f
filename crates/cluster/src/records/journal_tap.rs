//! The journal's side of the replicator: records are encoded on the thread `journal`, and sent by the driver.

use super::replicator::Replicator;
use journal::{Record, RecordSource, RecordTap, StreamKey};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Time between two looks whether everything is stored.
const FLUSH_LOOK: Duration = Duration::from_millis(5);

/// A replicator that the journal's thread and the driver share. The lock is held for the encoding of a record, or of one
/// stream that is written once more.
#[derive(Debug)]
pub struct SharedReplicator {
    replicator: Mutex<Replicator>,
    /// Wakes the driver.
    pub(super) news: Notify,
}

impl SharedReplicator {
    /// Shares a replicator.
    pub fn new(replicator: Replicator) -> Arc<Self> {
        Arc::new(Self {
            replicator: Mutex::new(replicator),
            news: Notify::new(),
        })
    }

    /// Waits until everything so far is stored, at most for this time. Returns whether it is.
    pub async fn flush(&self, wait: Duration) -> bool {
        let is_stored = async {
            while self.lock().behind_bytes() > 0 {
                tokio::time::sleep(FLUSH_LOOK).await;
            }
        };
        timeout(wait, is_stored).await.is_ok()
    }

    /// The replicator.
    pub fn lock(&self) -> MutexGuard<'_, Replicator> {
        self.replicator
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tap of a journal's writer.
#[derive(Debug)]
pub struct JournalTap(Arc<SharedReplicator>);

impl JournalTap {
    /// A tap for this replicator.
    pub fn new(shared: Arc<SharedReplicator>) -> Self {
        Self(shared)
    }

    fn change(&self, change: impl FnOnce(&mut Replicator, Instant)) {
        let mut replicator = self.0.lock();
        let before = replicator.next_at();
        change(&mut replicator, now());
        let after = replicator.next_at();
        drop(replicator);
        // The driver sleeps until the time before.
        if after.is_some() && before.is_none_or(|before| after < Some(before)) {
            self.0.news.notify_one();
        }
    }
}

impl RecordTap for JournalTap {
    fn open_stream(&mut self, key: StreamKey, id: u128, description: &[u8]) {
        self.change(|replicator, now| replicator.open_stream(key, id, description, now));
    }

    fn append(&mut self, id: u128, record: &Record<'_>) {
        self.change(|replicator, now| replicator.append(id, record, now));
    }

    fn forget_stream(&mut self, id: u128) {
        self.change(|replicator, now| replicator.forget_stream(id, now));
        self.0.news.notify_one();
    }

    fn next_copy(&mut self) -> Option<(StreamKey, u128)> {
        self.0.lock().next_copy()
    }

    fn copy_stream(&mut self, id: u128, description: &[u8], write: RecordSource<'_>) {
        self.change(|replicator, now| replicator.copy_stream(id, description, write, now));
    }
}

pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
