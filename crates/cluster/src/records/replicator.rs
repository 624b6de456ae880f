//! Write-behind of the streams of one gateway. No clock and no network: records, answers and `now` are arguments.
//!
//! The subject's last message decides after every answer that is not clear: it is the own message (stored), the own
//! message before (not stored; sent again with the same expected sequence, so that a late first one does no harm), an
//! older one or none (the store has lost messages; the stream is written once more), or another owner's (fenced).

use super::claim::ClaimedPlace;
use super::replicated_stream::{FileState, NextAction, ReplicatedStream, Schedule};
use super::store::{Fenced, FilesOutcome, LastMessage, PublishOutcome, ReplicaState, StoreRequest};
use crate::messages::FileDigest;
use crate::names::InstanceId;
use journal::{Open, Record, RecordSource, StreamKey};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Time from a stream's first record to the message.
const GATHER: Duration = Duration::from_millis(10);
/// Time between two attempts to read a last message.
const CHECK_AGAIN: Duration = Duration::from_millis(500);
/// Purges that wait; further ones are left to the age of the messages.
const PURGES_MAX: usize = 4096;

/// The hash of the API key in a stream's description.
pub type KeyReader = fn(&[u8]) -> u64;
/// The files that a stream's description names.
pub type FileReader = fn(&[u8]) -> Vec<FileDigest>;

/// Streams whose files are sent at one time: each has a file in memory.
const FILES_AT_ONCE: usize = 4;
/// Pause before a stream whose files wait for others.
const FILES_PAUSE: Duration = Duration::from_millis(50);

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicatorCounters {
    /// Messages that were stored.
    pub stored_messages: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Answers that were not clear, or rejected the sequence.
    pub checks: u64,
    /// Streams written once more from memory.
    pub copies: u64,
    /// Streams whose records were dropped because the buffer was full.
    pub overflows: u64,
    /// Streams of which the store has lost messages.
    pub regressions: u64,
    /// Streams that another instance has taken over.
    pub fenced: u64,
    /// Streams that this instance has taken over.
    pub claimed: u64,
}

/// The streams of one gateway.
#[derive(Debug)]
pub struct Replicator {
    instance: InstanceId,
    config: RecordsConfig,
    key_of: KeyReader,
    files_of: FileReader,
    streams: HashMap<u128, ReplicatedStream>,
    schedule: Schedule,
    /// Streams that can be written once more from memory.
    wanted: BTreeSet<u128>,
    /// Streams that another instance may have taken over during an interruption; a part of `streams`.
    doubtful: BTreeSet<u128>,
    purges: VecDeque<(u128, u64)>,
    /// Streams whose files are to be removed, at most [`PURGES_MAX`].
    file_purges: VecDeque<u128>,
    /// Streams whose files are being sent.
    sending: usize,
    fenced: Vec<Fenced>,
    /// Bytes of records that are not stored.
    held: usize,
    is_connected: bool,
    /// How many stores there were.
    epoch: u64,
    /// Number of the last publication.
    serial: u64,
    /// When the store was made, and its highest sequence.
    store: Option<(i128, u64)>,
    counters: ReplicatorCounters,
}

impl Replicator {
    /// No streams yet; not connected. `key_of` reads the API key in descriptions.
    pub fn new(instance: InstanceId, config: RecordsConfig, key_of: KeyReader) -> Self {
        Self {
            instance,
            config,
            key_of,
            files_of: |_| Vec::new(),
            streams: HashMap::new(),
            schedule: Schedule::default(),
            wanted: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            purges: VecDeque::new(),
            file_purges: VecDeque::new(),
            sending: 0,
            fenced: Vec::new(),
            held: 0,
            is_connected: false,
            epoch: 0,
            serial: 0,
            store: None,
            counters: ReplicatorCounters::default(),
        }
    }

    /// The replicator of streams whose descriptions name files: they are stored before the records.
    #[must_use]
    pub fn with_files(self, files_of: FileReader) -> Self {
        Self { files_of, ..self }
    }

    /// A stream begins. One that was claimed keeps its generation and waits for the copy.
    pub fn open_stream(&mut self, key: StreamKey, id: u128, description: &[u8], now: Instant) {
        let stream = self.streams.entry(id);
        let stream = stream.or_insert_with(|| ReplicatedStream::new(1, now));
        stream.key = Some(key);
        stream.api_key = (self.key_of)(description);
        stream.copy_bytes = description.len() as u64;
        stream.set_files((self.files_of)(description), self.config.age_max, now);
        self.push(id, &Record::Open(Open::new(id, description)), now);
        self.settle(id, now);
    }

    /// A stream that this instance has claimed: what follows replaces the stored records.
    pub fn claim_stream(&mut self, id: u128, place: ClaimedPlace, now: Instant) {
        self.remove(id);
        let mut stream = ReplicatedStream::new(place.generation, now);
        stream.last_sequence = place.sequence;
        stream.stored_handle = place.handle;
        stream.stored = 1;
        stream.needs_copy = true;
        self.streams.insert(id, stream);
        self.counters.claimed += 1;
    }

    /// Sets the journal's key of a claimed stream, which can be copied from then on.
    pub fn set_key(&mut self, id: u128, key: StreamKey, now: Instant) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.key = Some(key);
            self.settle(id, now);
        }
    }

    /// A record was appended.
    pub fn append(&mut self, id: u128, record: &Record<'_>, now: Instant) {
        self.push(id, record, now);
    }

    /// The retention of a stream has ended.
    pub fn forget_stream(&mut self, id: u128, now: Instant) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.is_forgotten = true;
            self.held -= stream.pending.len();
            stream.pending = Vec::new();
            self.settle(id, now);
        }
    }

    /// The next stream to be written once more, if there is room.
    pub fn next_copy(&mut self) -> Option<(StreamKey, u128)> {
        if !self.is_connected || self.held > self.config.behind_bytes / 2 {
            return None;
        }
        while let Some(id) = self.wanted.pop_first() {
            let found = self.streams.get(&id).filter(|stream| stream.needs_copy);
            if let Some(key) = found.and_then(|stream| stream.key) {
                return Some((key, id));
            }
        }
        None
    }

    /// Whether [`next_copy`](Self::next_copy) would return a stream.
    pub fn wants_copies(&self) -> bool {
        let has_room = self.held <= self.config.behind_bytes / 2;
        self.is_connected && has_room && !self.wanted.is_empty()
    }

    /// Takes a stream once more.
    pub fn copy_stream(
        &mut self,
        id: u128,
        description: &[u8],
        write: RecordSource<'_>,
        now: Instant,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let is_possible = stream.needs_copy && stream.state == NextAction::Following;
        if !is_possible || stream.flight.is_some() {
            return;
        }
        let held = stream.held();
        stream.api_key = (self.key_of)(description);
        stream.set_files((self.files_of)(description), self.config.age_max, now);
        let copied = stream.copy(Open::new(id, description), write, now);
        self.held = self.held - held + stream.held();
        stream.behind_since.get_or_insert(now);
        self.counters.copies += 1;
        match copied {
            Ok(()) => self.settle(id, now),
            Err(error) => self.refuse(id, error),
        }
    }

    fn refuse(&mut self, id: u128, error: journal::RecordError) {
        tracing::warn!("a stream is not replicated: {error}");
        self.doubtful.remove(&id);
        if let Some(stream) = self.streams.get_mut(&id) {
            self.held -= stream.held();
            self.schedule.clear(&mut stream.due, id);
            stream.pending = Vec::new();
            stream.flight = None;
            stream.state = NextAction::Refused;
        }
    }

    fn push(&mut self, id: u128, record: &Record<'_>, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if !stream.takes_records() {
            return;
        }
        let before = stream.pending.len();
        if let Err(error) = stream.push(record) {
            return self.refuse(id, error);
        }
        self.held += stream.pending.len() - before;
        stream.behind_since.get_or_insert(now);
        if self.held > self.config.behind_bytes {
            self.held -= stream.pending.len();
            stream.drop_pending();
            self.counters.overflows += 1;
        }
        self.settle(id, now);
    }

    /// Decides what is next for a stream after any change.
    fn settle(&mut self, id: u128, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        match stream.state {
            NextAction::Fenced | NextAction::Refused if stream.is_forgotten => self.remove(id),
            NextAction::Fenced | NextAction::Refused | NextAction::CheckSent => {}
            NextAction::Checking => self.schedule.set(&mut stream.due, id, now),
            NextAction::Following => self.settle_following(id, now),
        }
    }

    fn settle_following(&mut self, id: u128, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.file_state == FileState::Sending {
            // The answer settles the stream.
        } else if let Some(flight) = &stream.flight {
            if !flight.is_sent {
                self.schedule.set(&mut stream.due, id, now);
            }
        } else if stream.is_forgotten {
            if stream.stored > 0 && self.purges.len() < PURGES_MAX {
                self.purges.push_back((id, stream.last_sequence + 1));
            }
            if !stream.files.is_empty() && self.file_purges.len() < PURGES_MAX {
                self.file_purges.push_back(id);
            }
            self.remove(id);
        } else if stream.needs_copy {
            if stream.key.is_some() {
                self.wanted.insert(id);
            }
        } else if !stream.pending.is_empty() {
            let is_full = stream.pending.len() >= RECORDS_BYTES_MAX;
            let next = stream.sent_at.map(|at| at + self.config.batch_interval);
            let gathered = next.map_or(now + GATHER, |next| next.max(now + GATHER));
            let at = if is_full { now } else { gathered };
            self.schedule.set(&mut stream.due, id, at);
        } else {
            stream.behind_since = None;
        }
    }

    fn remove(&mut self, id: u128) {
        if let Some(mut stream) = self.streams.remove(&id) {
            self.held -= stream.held();
            self.schedule.clear(&mut stream.due, id);
        }
        self.wanted.remove(&id);
        self.doubtful.remove(&id);
    }

    /// The next request. `None`: nothing is due, or there is no connection.
    pub fn poll(&mut self, now: Instant) -> Option<StoreRequest> {
        if !self.is_connected {
            return None;
        }
        if let Some((id, below)) = self.purges.pop_front() {
            let epoch = self.epoch;
            return Some(StoreRequest::Purge { id, below, epoch });
        }
        if let Some(id) = self.file_purges.pop_front() {
            return Some(StoreRequest::PurgeFiles { id });
        }
        while let Some(id) = self.schedule.take_due(now) {
            let action = self.next_action(id, now);
            if action.is_some() {
                return action;
            }
        }
        None
    }

    /// When [`poll`](Self::poll) has something, if no answer arrives before.
    pub fn next_at(&self) -> Option<Instant> {
        self.schedule.next_at().filter(|_| self.is_connected)
    }

    fn next_action(&mut self, id: u128, now: Instant) -> Option<StoreRequest> {
        let stream = self.streams.get_mut(&id)?;
        stream.due = None;
        match stream.state {
            NextAction::Checking => {
                stream.state = NextAction::CheckSent;
                self.counters.checks += 1;
                return Some(StoreRequest::Check { id });
            }
            NextAction::Following => {}
            _ => return None,
        }
        if stream.flight.is_none() {
            if stream.pending.is_empty() || stream.needs_copy {
                return None;
            }
            match stream.file_state {
                FileState::Stored(_) => {}
                FileState::Sending => return None,
                FileState::Wanted { renews } => return self.send_files(id, renews, now),
            }
            let held = stream.held();
            stream.begin_flight(self.instance, now);
            self.held = self.held - held + stream.held();
        }
        let expected = stream.last_sequence;
        let flight = stream.flight.as_mut().filter(|flight| !flight.is_sent)?;
        self.serial += 1;
        (flight.is_sent, flight.serial) = (true, self.serial);
        let payload = flight.payload.clone();
        Some(StoreRequest::Publish {
            id,
            serial: self.serial,
            expected,
            payload,
        })
    }
}

impl Replicator {
    /// The request to store a stream's files, if not too many are being sent.
    fn send_files(&mut self, id: u128, renews: bool, now: Instant) -> Option<StoreRequest> {
        let stream = self.streams.get_mut(&id)?;
        if self.sending >= FILES_AT_ONCE {
            self.schedule.set(&mut stream.due, id, now + FILES_PAUSE);
            return None;
        }
        stream.file_state = FileState::Sending;
        self.sending += 1;
        let files = stream.files.clone();
        Some(StoreRequest::Files { id, files, renews })
    }
}

mod answers;
mod watching;

/// Bytes of records in one message. A NATS server takes 1 MiB by default.
pub(super) const RECORDS_BYTES_MAX: usize = 512 << 10;

/// Settings of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsConfig {
    /// Bytes of records that are not stored yet, of all streams: 15 s at 4 MiB/s, or 300,000 tokens a second.
    /// One stream that is written once more may exceed the bound.
    pub behind_bytes: usize,
    /// Shortest time between two messages of a stream.
    pub batch_interval: Duration,
    /// How many servers store each message; 1, 3 or 5.
    pub replicas: usize,
    /// Bytes of all streams in JetStream.
    pub store_bytes: u64,
    /// Age at which JetStream removes messages that no owner has purged. Streams that live are written once more at half
    /// of it.
    pub age_max: Duration,
}

impl Default for RecordsConfig {
    fn default() -> Self {
        Self {
            behind_bytes: 64 << 20,
            batch_interval: Duration::from_millis(50),
            replicas: 1,
            store_bytes: 4 << 30,
            age_max: Duration::from_secs(24 * 3600),
        }
    }
}
