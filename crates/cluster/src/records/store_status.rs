//! The store of records, as this process has seen it last.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Shared by the driver, metrics and the report of the cluster.
#[derive(Debug, Default)]
pub struct StoreStatus {
    bytes: AtomicU64,
    is_there: AtomicBool,
    problem: Mutex<Option<String>>,
}

impl StoreStatus {
    /// Bytes of all records in JetStream.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Why records cannot be stored; `None`: they can, or the store was not looked at yet.
    pub fn problem(&self) -> Option<String> {
        self.lock().clone()
    }

    /// Whether records can be stored.
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    pub(super) fn note_facts(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        if !self.is_there.swap(true, Ordering::Relaxed) {
            tracing::info!("the records of streams are stored in JetStream");
        }
        *self.lock() = None;
    }

    /// Logs a problem that is another one than before.
    pub(super) fn note_problem(&self, why: String) {
        self.is_there.store(false, Ordering::Relaxed);
        let mut problem = self.lock();
        if problem.as_ref() != Some(&why) {
            tracing::warn!("streams are not replicated: {why}");
            *problem = Some(why);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_is_shown_until_the_store_is_there() {
        let status = StoreStatus::default();
        assert_eq!((status.problem(), status.is_there()), (None, false));
        status.note_problem("no JetStream".to_owned());
        assert_eq!(status.problem().as_deref(), Some("no JetStream"));
        status.note_facts(7);
        let seen = (status.problem(), status.is_there(), status.bytes());
        assert_eq!(seen, (None, true, 7));
        status.note_problem("gone".to_owned());
        assert!(!status.is_there());
    }
}
