//! A stored answer on its way into the journal, for which the readers of the stream's end wait: what a client has received
//! survives the process.

use super::durable_stream::WRITTEN_TIMEOUT;
use super::stream_journal::JournalSlot;
use std::sync::Arc;
use tokio::sync::watch;

/// Where the answer of one stream is stored.
pub(crate) struct AnswerStorage {
    journal: Arc<JournalSlot>,
    /// Closed when the answer is in the journal, or never will be.
    pending: watch::Receiver<()>,
}

impl AnswerStorage {
    /// The storage of a stream that has not ended. The drop of the sender ends the wait of all readers.
    pub(crate) fn begin(journal: &Arc<JournalSlot>) -> (watch::Sender<()>, Self) {
        let (sender, pending) = watch::channel(());
        let journal = Arc::clone(journal);
        (sender, Self { journal, pending })
    }

    /// The wait of a reader that has come to the end, at most a second. `None`: there is no journal, or the answer is in it.
    pub(crate) fn wait(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.journal.get()?;
        let mut pending = self.pending.clone();
        pending.has_changed().ok()?;
        Some(async move {
            let _ = tokio::time::timeout(WRITTEN_TIMEOUT, pending.changed()).await;
        })
    }
}
