//! The mailboxes of all keys, with the journal.

use super::MailboxSettings;
use super::cursor::{MailboxCursor, Place};
use super::key_mailbox::KeyMailbox;
use super::mail::{Mail, MailState};
use super::page::MailboxPage;
use crate::durability::{
    AdoptedStream, DescriptionError, DescriptionKind, ForgottenRecords, JournalSlot, StoredBlob,
};
use crate::ended::{EndedStream, EventRecord};
use crate::id_generator::IdGenerator;
use crate::metrics::count::Counter;
use crate::streams::StreamRecord;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;
use stream::{Owner, StreamId};
use tokio::sync::{Notify, mpsc};
use wire::clock;

/// Pause between two searches for events that are too old.
const SWEEP: Duration = Duration::from_secs(30);

/// The mailboxes of all keys.
pub struct Mailboxes {
    settings: RwLock<MailboxSettings>,
    table: Mutex<MailboxTable>,
    /// Origin of the events that come from now on.
    origin: u64,
    journal: Arc<JournalSlot>,
    ids: Arc<IdGenerator>,
    metrics: MailboxMetrics,
    /// Numbers of keys whose mailboxes here have a new event, for the other gateways; empty in a process without others.
    arrivals: OnceLock<mpsc::Sender<u64>>,
}

/// Counts of events.
#[derive(Debug, Default)]
pub struct MailboxMetrics {
    /// Events that were put into a mailbox.
    pub added: Counter,
    /// Events that were acknowledged.
    pub acknowledged: Counter,
    /// Events that were removed without an acknowledgement, by number or age.
    pub dropped: Counter,
}

#[derive(Default)]
struct MailboxTable {
    /// At most one for each key.
    mailboxes: HashMap<Owner, KeyMailbox>,
    /// Events of all mailboxes.
    total: usize,
    /// Sequence of the last event of this process.
    sequence: u64,
}

impl Mailboxes {
    pub(crate) fn new(journal: Arc<JournalSlot>, ids: Arc<IdGenerator>) -> Self {
        Self {
            settings: RwLock::default(),
            table: Mutex::default(),
            origin: ids.next_seed(),
            journal,
            ids,
            metrics: MailboxMetrics::default(),
            arrivals: OnceLock::new(),
        }
    }

    /// Tells the number of the key of each event that comes into a mailbox, as far as there is room. To be called once,
    /// where there are other gateways.
    pub fn set_arrivals(&self, arrivals: mpsc::Sender<u64>) {
        let _ = self.arrivals.set(arrivals);
    }

    /// Wakes the readers of a key: another gateway has a new event.
    pub fn wake_readers(&self, owner: Owner) {
        if let Some(mailbox) = self.lock().mailboxes.get(&owner) {
            mailbox.news.notify_waiters();
        }
    }

    /// Replaces the bounds. Events beyond them are removed at once.
    pub fn set_settings(&self, settings: MailboxSettings) {
        let now = self.settings.write();
        *now.unwrap_or_else(PoisonError::into_inner) = settings;
        let mut table = self.lock();
        let keys: Vec<Owner> = table.mailboxes.keys().copied().collect();
        for owner in keys {
            self.enforce_bounds(&mut table, owner);
        }
    }

    /// Whether ends are put into mailboxes.
    pub(crate) fn is_on(&self) -> bool {
        self.settings().is_on()
    }

    /// Counts of events.
    pub fn metrics(&self) -> &MailboxMetrics {
        &self.metrics
    }

    /// Events of all mailboxes.
    pub fn len(&self) -> usize {
        self.lock().total
    }

    /// Whether all mailboxes are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the event of a stream is in the owner's mailbox.
    pub(crate) fn has(&self, owner: Owner, stream: StreamId) -> bool {
        let table = self.lock();
        let mailbox = table.mailboxes.get(&owner);
        mailbox.is_some_and(|mailbox| mailbox.has(stream))
    }

    /// Puts the event about a stream's end into the owner's mailbox. Returns the event's object in the journal.
    pub(crate) fn add(&self, stream: &StreamRecord, end: &EndedStream) -> Option<Weak<StoredBlob>> {
        let names = (stream.id(), stream.terms().owner);
        let kind = DescriptionKind::MailboxEvent;
        let record = EventRecord::new(kind, names, end, clock::unix_us());
        self.add_record(record, stream.durable().is_some())
    }

    fn add_record(&self, record: EventRecord, is_durable: bool) -> Option<Weak<StoredBlob>> {
        let owner = record.owner();
        let mut table = self.lock();
        let place = self.next_place(&mut table);
        let mailbox = table.mailboxes.entry(owner).or_default();
        if mailbox.has(record.stream) {
            return None;
        }
        let state = MailState::new(place, mailbox.dropped).encode();
        let blob = is_durable
            .then(|| record.store((&self.journal, &self.ids), state))
            .flatten();
        let object = blob.as_ref().map(Arc::downgrade);
        let mail = Mail {
            place,
            record: Arc::new(record),
            blob,
        };
        self.metrics.added.add(1);
        self.push(&mut table, owner, mail);
        object
    }

    fn push(&self, table: &mut MailboxTable, owner: Owner, mail: Mail) {
        table.mailboxes.entry(owner).or_default().push(mail);
        table.total += 1;
        self.enforce_bounds(table, owner);
        if let Some(arrivals) = self.arrivals.get() {
            // Readers elsewhere look again after some seconds, too.
            let _ = arrivals.try_send(owner.0);
        }
    }

    fn next_place(&self, table: &mut MailboxTable) -> Place {
        table.sequence += 1;
        Place {
            origin: self.origin,
            sequence: table.sequence,
        }
    }

    /// Restores the events among the objects of the journal, which all were events of earlier processes of this gateway:
    /// their cursors stay valid.
    pub(crate) fn restore(&self, adopted: Vec<AdoptedStream>) {
        let mut restored: Vec<(MailState, EventRecord, AdoptedStream)> = Vec::new();
        for adopted in adopted {
            match read_event(&adopted) {
                Ok((record, state)) => restored.push((state, record, adopted)),
                Err(error) => {
                    tracing::warn!(%error, "an event in a mailbox of an earlier process cannot be read");
                }
            }
        }
        // Processes came one after another, and so did their first events.
        let mut begun: BTreeMap<u64, u64> = BTreeMap::new();
        for (state, record, _) in &restored {
            let first = begun.entry(state.place().origin).or_insert(u64::MAX);
            *first = record.created_unix_us.min(*first);
        }
        restored.sort_by_key(|(state, ..)| (begun.get(&state.place().origin), state.place()));
        let mut table = self.lock();
        for (state, record, adopted) in restored {
            let owner = record.owner();
            let mailbox = table.mailboxes.entry(owner).or_default();
            mailbox.dropped = mailbox.dropped.max(state.dropped);
            let mail = Mail {
                place: state.place(),
                record: Arc::new(record),
                blob: Some(Arc::new(adopted.durable.into())),
            };
            self.push(&mut table, owner, mail);
        }
    }

    /// Puts an event of another gateway, which is gone, into the owner's mailbox. The event gets a place of this process:
    /// events of one gateway may be taken over in any order, and a cursor would cover those that come late. One that the
    /// client has acknowledged here, when the other gateway did not answer, is forgotten.
    pub(crate) fn take_over(&self, adopted: AdoptedStream) {
        let (record, state) = match read_event(&adopted) {
            Ok(read) => read,
            Err(error) => {
                return tracing::warn!(%error, "an event in a mailbox of another gateway cannot be read");
            }
        };
        let owner = record.owner();
        let mut table = self.lock();
        let place = self.next_place(&mut table);
        let mailbox = table.mailboxes.entry(owner).or_default();
        if mailbox.has(record.stream) || mailbox.has_acknowledged(state.place()) {
            return;
        }
        let blob = StoredBlob::from(adopted.durable);
        blob.replace_outcome(MailState::new(place, mailbox.dropped).encode());
        let mail = Mail {
            place,
            record: Arc::new(record),
            blob: Some(Arc::new(blob)),
        };
        self.push(&mut table, owner, mail);
    }

    /// Removes an event that another gateway has taken over. False: the object is no event in a mailbox.
    pub(crate) fn remove_object(&self, id: u128) -> bool {
        let mut table = self.lock();
        let mut mailboxes = table.mailboxes.values_mut();
        let was_removed = mailboxes.any(|mailbox| mailbox.remove_object(id));
        table.total -= usize::from(was_removed);
        was_removed
    }

    /// At most `limit` events after a cursor, of the events at this gateway.
    pub fn read(&self, owner: Owner, after: &MailboxCursor, limit: usize) -> MailboxPage {
        let mut table = self.lock();
        self.drop_old(&mut table, owner);
        let mailbox = table.mailboxes.get(&owner);
        mailbox.map_or_else(MailboxPage::default, |mailbox| mailbox.page(after, limit))
    }

    /// Notified of events that come into the owner's mailbox.
    pub fn news(&self, owner: Owner) -> Arc<Notify> {
        let mut table = self.lock();
        Arc::clone(&table.mailboxes.entry(owner).or_default().news)
    }

    /// Removes the events up to the cursor from the owner's mailbox; returns how many, and their records. Where there are other gateways, the
    /// cursor is remembered: one of them may be gone, and this one take its events over.
    pub fn acknowledge(&self, owner: Owner, cursor: &MailboxCursor) -> (usize, ForgottenRecords) {
        let mut table = self.lock();
        if self.arrivals.get().is_some() {
            let mailbox = table.mailboxes.entry(owner).or_default();
            mailbox.remember_acknowledged(cursor, clock::unix_us());
        }
        let mailbox = table.mailboxes.get_mut(&owner);
        let (removed, forgotten) =
            mailbox.map_or_else(Default::default, |mailbox| mailbox.acknowledge(cursor));
        table.total -= removed;
        self.metrics.acknowledged.add(removed as u64);
        (removed, forgotten)
    }

    /// Removes events that are too old, forever.
    pub async fn sweep_expired(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let mut table = self.lock();
            let keys: Vec<Owner> = table.mailboxes.keys().copied().collect();
            for owner in keys {
                self.drop_old(&mut table, owner);
            }
            table.mailboxes.retain(|_, mailbox| !mailbox.is_idle());
        }
    }

    fn drop_old(&self, table: &mut MailboxTable, owner: Owner) {
        let age_max = u64::try_from(self.settings().age_max.as_micros()).unwrap_or(u64::MAX);
        let oldest_unix_us = clock::unix_us().saturating_sub(age_max);
        let mailbox = table.mailboxes.get_mut(&owner);
        let dropped = mailbox.map_or(0, |mailbox| mailbox.drop_older(oldest_unix_us));
        table.total -= dropped;
        self.metrics.dropped.add(dropped as u64);
    }

    /// Removes the oldest events beyond the bounds: of the key's own mailbox, then of the fullest one.
    fn enforce_bounds(&self, table: &mut MailboxTable, owner: Owner) {
        let settings = self.settings();
        self.drop_old(table, owner);
        let mut dropped = 0;
        if let Some(mailbox) = table.mailboxes.get_mut(&owner) {
            while mailbox.len() > settings.events_max && mailbox.drop_oldest() {
                dropped += 1;
            }
        }
        while table.total - dropped > settings.total_max {
            let mailboxes = table.mailboxes.values_mut();
            let fullest = mailboxes.max_by_key(|one| (one.len(), Reverse(one.oldest())));
            if !fullest.is_some_and(KeyMailbox::drop_oldest) {
                break;
            }
            dropped += 1;
        }
        table.total -= dropped;
        self.metrics.dropped.add(dropped as u64);
    }

    fn settings(&self) -> MailboxSettings {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, MailboxTable> {
        // Nothing panics half-way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_event(adopted: &AdoptedStream) -> Result<(EventRecord, MailState), DescriptionError> {
    let recovered = &adopted.recovered;
    let record = EventRecord::decode(DescriptionKind::MailboxEvent, &recovered.description)?;
    Ok((record, MailState::decode(recovered.outcome.as_deref())?))
}

#[cfg(test)]
#[path = "mailboxes_tests.rs"]
mod tests;
