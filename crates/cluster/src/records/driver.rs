//! The replicator on NATS.

use super::cluster_identity::{IdentityCheck, IdentityStep};
use super::jet_stream::{JetStreamRecords, StoreFacts, parse_notice};
use super::journal_tap::{SharedReplicator, now};
use super::store::{Fenced, FilesOutcome, PublishOutcome, StoreProblem, StoreRequest, StoreStatus};
use crate::messages::FileDigest;
use crate::nats::{Connection, SubjectKind};
use async_nats::{Message, Subscriber};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

/// Requests without an answer.
const REQUESTS_MAX: usize = 256;
/// Time between two looks at the store.
const STORE_EVERY: Duration = Duration::from_secs(2);
/// Time between two looks at the ages of all copies.
const AGES_EVERY: Duration = Duration::from_secs(60);
/// Pause before files are sent again that may not be stored.
const FILES_AGAIN: Duration = Duration::from_secs(1);
/// Time for the creation of the store.
const CREATE_WAIT: Duration = Duration::from_secs(10);

/// Tools of the driver.
pub struct RecordsLink {
    /// The connection.
    pub connection: Arc<Connection>,
    /// The store.
    pub store: JetStreamRecords,
    /// The streams.
    pub replicator: Arc<SharedReplicator>,
    /// The cluster of this process; `None`: the records are not compared with it.
    pub identity: Option<IdentityCheck>,
    /// Called when a stream has another owner.
    pub on_fenced: Box<dyn Fn(Fenced) + Send + Sync>,
    /// Called before the first record is stored.
    pub on_store: Box<dyn Fn() + Send + Sync>,
    /// Wakes the journal's thread when streams are to be written once more.
    pub on_wanted: Box<dyn Fn() + Send + Sync>,
    /// Reads a file that records name. Called on a thread that may block.
    pub read_file: ReadFile,
}

/// Reads a file by its digest; `None`: it is not there any more.
pub type ReadFile = Arc<dyn Fn(&FileDigest) -> Option<Vec<u8>> + Send + Sync>;

/// A running replicator. Dropped, it stops; what is not stored stays in the journal only.
#[derive(Debug)]
pub struct RecordsDriver {
    task: JoinHandle<()>,
    replicator: Arc<SharedReplicator>,
    status: Arc<StoreStatus>,
}

impl RecordsDriver {
    /// Starts to store records. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn start(link: RecordsLink) -> Result<Self, String> {
        let subject = link.store.subjects().claimed();
        let subscribed = link.connection.client().subscribe(subject.clone()).await;
        let notices = subscribed.map_err(|why| format!("{subject}: {why}"))?;
        let replicator = Arc::clone(&link.replicator);
        link.connection.hearing().expect_confirmations();
        let status = Arc::new(StoreStatus::default());
        let task = RecordsTask {
            usable: link.connection.usable_watch(),
            link,
            notices,
            requests: JoinSet::new(),
            has_store: false,
            is_adapted: false,
            returns: 0,
            looks: JoinSet::new(),
            status: Arc::clone(&status),
        };
        Ok(Self {
            task: tokio::spawn(task.run()),
            replicator,
            status,
        })
    }

    /// As [`SharedReplicator::flush`].
    pub async fn flush(&self, wait: Duration) -> bool {
        self.replicator.flush(wait).await
    }

    /// The store.
    pub fn status(&self) -> &Arc<StoreStatus> {
        &self.status
    }
}

impl Drop for RecordsDriver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Stream, first sequence that stays, and store.
type PurgeName = (u128, u64, u64);

/// The answer to an action.
enum Answer {
    Published(u128, u64, PublishOutcome),
    Checked(u128, Result<Option<super::LastMessage>, ()>),
    Purged(PurgeName, bool),
    Files(u128, FilesOutcome),
    FilesPurged(u128, bool),
}

struct RecordsTask {
    link: RecordsLink,
    usable: watch::Receiver<bool>,
    notices: Subscriber,
    /// At most [`REQUESTS_MAX`].
    requests: JoinSet<Answer>,
    /// Whether the store was there at the last look.
    has_store: bool,
    /// Whether the store has the bounds of this process's settings.
    is_adapted: bool,
    /// Returns of the connection after which all streams are checked, or were.
    returns: u64,
    /// At most one.
    looks: JoinSet<Result<StoreFacts, StoreProblem>>,
    status: Arc<StoreStatus>,
}

impl RecordsTask {
    async fn run(mut self) {
        let mut store = interval(STORE_EVERY);
        store.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ages = interval(AGES_EVERY);
        ages.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let shared = Arc::clone(&self.link.replicator);
        let hearing = Arc::clone(self.link.connection.hearing());
        loop {
            let due = self.next_at();
            tokio::select! {
                Some(answer) = self.requests.join_next() => {
                    if let Ok(answer) = answer {
                        self.take_answer(&answer);
                    }
                }
                Some(notice) = self.notices.next() => self.take_notice(&notice),
                Some(look) = self.looks.join_next() => self.take_look(look),
                changed = self.usable.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.look_at_store();
                }
                _ = store.tick() => self.look_at_store(),
                _ = ages.tick() => self.link.replicator.lock().look_at_ages(now()),
                () = shared.news.notified() => {}
                () = hearing.wait_return() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
            self.send();
        }
    }

    fn next_at(&self) -> Option<Instant> {
        if self.requests.len() >= REQUESTS_MAX {
            return None;
        }
        self.link.replicator.lock().next_at().map(Instant::from_std)
    }

    fn send(&mut self) {
        let hearing = self.link.connection.hearing();
        let mut replicator = self.link.replicator.lock();
        if self.returns != hearing.returns() {
            self.returns = hearing.returns();
            replicator.set_connected(false, now());
        }
        let is_connected = *self.usable.borrow() && self.has_store;
        replicator.set_connected(is_connected, now());
        while self.requests.len() < REQUESTS_MAX {
            let Some(action) = replicator.poll(now()) else {
                break;
            };
            let store = self.link.store.clone();
            let read_file = Arc::clone(&self.link.read_file);
            self.requests.spawn(perform((store, read_file), action));
        }
        let fenced = replicator.take_fenced();
        let wants_copies = replicator.wants_copies();
        let is_sure = is_connected && !replicator.has_doubts();
        drop(replicator);
        fenced.into_iter().for_each(&self.link.on_fenced);
        if is_sure {
            hearing.confirm(self.returns);
        }
        if wants_copies {
            (self.link.on_wanted)();
        }
    }

    fn take_answer(&self, answer: &Answer) {
        let mut replicator = self.link.replicator.lock();
        match *answer {
            Answer::Published(id, serial, outcome) => {
                replicator.on_published(id, serial, outcome, now());
            }
            Answer::Checked(id, last) => replicator.on_checked(id, last, now()),
            Answer::Purged((id, below, epoch), false) => {
                replicator.on_purge_failed(id, below, epoch);
            }
            Answer::Files(id, outcome) => replicator.on_files(id, outcome, now()),
            Answer::FilesPurged(id, false) => replicator.on_file_purge_failed(id),
            Answer::Purged(_, true) | Answer::FilesPurged(_, true) => {}
        }
    }

    fn take_notice(&self, notice: &Message) {
        let Some((id, generation)) = parse_notice(&notice.payload) else {
            let unreadable = self.link.connection.unreadable();
            unreadable.note(SubjectKind::Claimed, "no notice of a claim");
            return;
        };
        let mut replicator = self.link.replicator.lock();
        replicator.note_claimed(id, generation, now());
    }

    /// Reads the facts of the store, which is created where there is none.
    fn look_at_store(&mut self) {
        if !*self.usable.borrow() {
            self.has_store = false;
            return;
        }
        if !self.looks.is_empty() {
            return;
        }
        let (store, is_adapted) = (self.link.store.clone(), self.is_adapted);
        let identity = self.link.identity.clone();
        self.looks.spawn(async move {
            let facts = existing_store(&store, is_adapted).await?;
            if let Some(identity) = identity {
                agree(&store, &identity).await?;
            }
            Ok(facts)
        });
    }

    fn take_look(&mut self, look: Result<Result<StoreFacts, StoreProblem>, JoinError>) {
        match look {
            Ok(Ok(facts)) => {
                if !self.is_adapted {
                    (self.link.on_store)();
                }
                (self.has_store, self.is_adapted) = (true, true);
                self.status.note_facts(facts.bytes);
                let mut replicator = self.link.replicator.lock();
                replicator.note_store(facts.created, facts.last_sequence, now());
            }
            Ok(Err(why)) => {
                // A denied request has no answer.
                let denials = self.link.connection.denials().into_iter();
                let denied = denials.into_iter().find(|denial| denial.contains("$JS."));
                let denied = denied.map(StoreProblem::Other);
                self.status.note_problem(denied.unwrap_or(why));
                let identity = self.link.identity.as_ref();
                if identity.is_some_and(|check| check.identity.problem().is_some()) {
                    self.has_store = false;
                }
            }
            Err(_) => {}
        }
    }
}

/// The facts of the store, which is created or adapted before where that was not done yet.
async fn existing_store(
    store: &JetStreamRecords,
    is_adapted: bool,
) -> Result<StoreFacts, StoreProblem> {
    if is_adapted && let Some(facts) = store.facts().await {
        return Ok(facts);
    }
    let created = timeout(CREATE_WAIT, store.create_store()).await;
    created.map_err(|_| StoreProblem::no_answer())??;
    let facts = store.facts().await;
    facts.ok_or_else(StoreProblem::no_answer)
}

/// Compares the cluster of this process with that of the records; an id that is missing there is stored.
///
/// # Errors
/// The records belong to another cluster.
async fn agree(store: &JetStreamRecords, check: &IdentityCheck) -> Result<(), StoreProblem> {
    // The next look decides what has no answer now.
    let Ok(stored) = store.stored_cluster().await else {
        return Ok(());
    };
    match check.compare(stored) {
        IdentityStep::Agreed | IdentityStep::Wait => {}
        IdentityStep::Store(id) => {
            if store.store_cluster(id).await {
                check.identity.note_stored(id);
            }
        }
        IdentityStep::Conflict => {
            let problem = check.identity.problem();
            let problem =
                problem.unwrap_or_else(|| "the records belong to another cluster".to_owned());
            return Err(StoreProblem::Other(problem));
        }
    }
    Ok(())
}

async fn perform((store, read_file): (JetStreamRecords, ReadFile), action: StoreRequest) -> Answer {
    match action {
        StoreRequest::Files { id, files, renews } => {
            let outcome = store_files((&store, &read_file), id, (files, renews)).await;
            Answer::Files(id, outcome)
        }
        StoreRequest::PurgeFiles { id } => Answer::FilesPurged(id, store.purge_files(id).await),
        StoreRequest::Publish {
            id,
            serial,
            expected,
            payload,
        } => {
            let outcome = store.publish(id, expected, payload).await;
            Answer::Published(id, serial, outcome)
        }
        StoreRequest::Check { id } => {
            let last = store.last_message(id).await;
            Answer::Checked(id, last.map_err(|why| tracing::debug!("records: {why}")))
        }
        StoreRequest::Purge { id, below, epoch } => {
            let is_done = store.purge(id, below).await;
            Answer::Purged((id, below, epoch), is_done)
        }
    }
}

/// Stores the files of a stream, one after the other.
async fn store_files(
    (store, read_file): (&JetStreamRecords, &ReadFile),
    id: u128,
    (files, renews): (Vec<FileDigest>, bool),
) -> FilesOutcome {
    if renews && !store.purge_files(id).await {
        return FilesOutcome::Busy(FILES_AGAIN);
    }
    for digest in files {
        let read = Arc::clone(read_file);
        let read = tokio::task::spawn_blocking(move || read(&digest)).await;
        let Some(bytes) = read.unwrap_or_default() else {
            return FilesOutcome::Missing;
        };
        if let Err(wait) = store.store_file(id, &digest, bytes).await {
            return FilesOutcome::Busy(wait.unwrap_or(FILES_AGAIN));
        }
    }
    FilesOutcome::Stored
}
