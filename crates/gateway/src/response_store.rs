//! Stored responses, each visible to the owner only.
//!
//! The number of responses and the bytes of their input and output are bounded. Every use makes a response the most
//! recently used one. A full store removes the least recently used response of the owner with the most bytes;
//! running responses stay.

use crate::id_generator::IdGenerator;
use crate::keys::{Caller, Scope};
use crate::limits::LiveLimits;
use crate::response_limits::ResponseLimits;
use crate::response_record::{self, EndedResponse, ResponseLookup, ResponseRecord};
use crate::streams::StreamRecord;
use generate::error::{ApiError, ErrorKind};
use generate::request::MESSAGES_MAX;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stream::{Owner, StreamId};
use wire::responses::stored_request::{History, StoredRequest};
use wire::responses::{ID_PREFIX, stream_id};

/// Responses that are kept.
pub struct ResponseStore {
    kept: Mutex<StoredResponses>,
    limits: Arc<LiveLimits>,
}

#[derive(Default)]
struct StoredResponses {
    records: HashMap<StreamId, StoredRecord>,
    owners: HashMap<Owner, OwnerShare>,
    bytes: usize,
    /// Of the last use.
    stamp: u64,
}

struct StoredRecord {
    record: Arc<ResponseRecord>,
    bytes: usize,
    /// Stamp of the last use; `None` while running.
    used: Option<u64>,
}

/// Responses of one owner.
#[derive(Default)]
struct OwnerShare {
    bytes: usize,
    /// Ended responses by last use, the oldest first.
    ended: BTreeMap<u64, StreamId>,
    records: usize,
}

/// Input and output items up to and including a response; the oldest first.
pub struct StoredHistory(Vec<(Arc<ResponseRecord>, Arc<EndedResponse>)>);

impl History for StoredHistory {
    fn id(&self) -> Option<StreamId> {
        self.0.last().map(|(record, _)| record.id)
    }

    fn items(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.0.iter().flat_map(|(record, outcome)| {
            let asked = record.items.iter().map(|item| &*item.json);
            asked.chain(outcome.items.iter().map(|item| &**item))
        }))
    }
}

impl ResponseStore {
    /// None yet.
    pub(crate) fn new(limits: Arc<LiveLimits>) -> Self {
        Self {
            kept: Mutex::default(),
            limits,
        }
    }

    /// Applies changed limits: evicts responses above the bounds.
    pub(crate) fn apply_limits(&self) {
        let limits = self.response_limits();
        self.lock_stored().evict_to_fit(&limits);
    }

    /// Stores the response of a stream that was just opened. To be called inside a runtime.
    ///
    /// # Errors
    /// The store is full of running responses.
    pub(crate) fn store_response(
        self: &Arc<Self>,
        entry: &Arc<StreamRecord>,
        note: StoredRequest,
        idents: &IdGenerator,
    ) -> Result<(), ApiError> {
        let record = Arc::new(ResponseRecord::new(entry, note, || idents.prefixed_id("")));
        let limits = self.response_limits();
        let mut kept = self.lock_stored();
        kept.insert(Arc::clone(&record));
        if !kept.evict_to_fit(&limits) {
            kept.remove(record.id);
            let words = "there is no room to keep another response: send \"store\": false";
            return Err(ApiError::capacity(
                "response_store_full",
                words,
                self.limits.now().retry_after,
            ));
        }
        drop(kept);
        let (store, entry) = (Arc::clone(self), Arc::clone(entry));
        tokio::spawn(async move {
            response_record::wait_for_end(&entry).await;
            drop(entry);
            store.look_up(&record);
        });
        Ok(())
    }

    /// Where a response is.
    pub fn look_up(&self, record: &Arc<ResponseRecord>) -> ResponseLookup {
        let (look, has_just_ended) = record.look_up();
        if let (ResponseLookup::Ended(outcome), true) = (&look, has_just_ended) {
            let limits = self.response_limits();
            let mut kept = self.lock_stored();
            match outcome.is_unknown {
                true => kept.remove(record.id),
                false => kept.mark_ended(record.id, outcome.response_bytes()),
            }
            kept.evict_to_fit(&limits);
        }
        look
    }

    /// The response of this id, if visible to the caller.
    ///
    /// # Errors
    /// The caller has no such response.
    pub fn find_response(
        &self,
        id: &str,
        caller: &Caller,
    ) -> Result<Arc<ResponseRecord>, ApiError> {
        let found = stream_id(id).and_then(|id| self.lock_stored().mark_used(id));
        let is_theirs = |record: &Arc<ResponseRecord>| {
            record.owner == caller.owner || caller.scopes.has(Scope::Admin)
        };
        found.filter(is_theirs).ok_or_else(unknown_response)
    }

    /// Forgets one.
    pub fn remove(&self, id: StreamId) {
        self.lock_stored().remove(id);
    }

    /// Input and output items up to the response of this id.
    ///
    /// # Errors
    /// The response, or an earlier one of the conversation, is not stored for this caller; or the response is
    /// running.
    pub fn history(&self, id: &str, caller: &Caller) -> Result<StoredHistory, ApiError> {
        let mut said = Vec::new();
        let mut next = Some(id.to_owned());
        while let Some(id) = next {
            let record = self
                .find_response(&id, caller)
                .map_err(|_| no_such_previous())?;
            let ResponseLookup::Ended(outcome) = self.look_up(&record) else {
                let words = "previous_response_id: that response is still in progress";
                return Err(previous_missing("previous_response_in_progress", words));
            };
            next = record.previous.map(|id| format!("{ID_PREFIX}{id}"));
            said.push((record, outcome));
            if said.len() > MESSAGES_MAX {
                let words = format!("previous_response_id: has more than {MESSAGES_MAX} before it");
                return Err(previous_missing("invalid_value", &words));
            }
        }
        said.reverse();
        Ok(StoredHistory(said))
    }

    fn response_limits(&self) -> ResponseLimits {
        self.limits.now().responses
    }

    fn lock_stored(&self) -> MutexGuard<'_, StoredResponses> {
        // Nothing panics half-way through a change.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredResponses {
    fn insert(&mut self, record: Arc<ResponseRecord>) {
        let bytes = record.record_bytes();
        let share = self.owners.entry(record.owner).or_default();
        share.bytes += bytes;
        share.records += 1;
        self.bytes += bytes;
        let slot = StoredRecord {
            bytes,
            used: None,
            record,
        };
        self.records.insert(slot.record.id, slot);
    }

    /// The response has ended and takes `bytes` more; counts as a use.
    fn mark_ended(&mut self, id: StreamId, bytes: usize) {
        let Some(slot) = self.records.get_mut(&id) else {
            return;
        };
        self.stamp += 1;
        slot.bytes += bytes;
        slot.used = Some(self.stamp);
        self.bytes += bytes;
        if let Some(share) = self.owners.get_mut(&slot.record.owner) {
            share.bytes += bytes;
            share.ended.insert(self.stamp, id);
        }
    }

    /// Marks a response as used.
    fn mark_used(&mut self, id: StreamId) -> Option<Arc<ResponseRecord>> {
        let slot = self.records.get_mut(&id)?;
        if let Some(used) = &mut slot.used
            && let Some(share) = self.owners.get_mut(&slot.record.owner)
        {
            self.stamp += 1;
            share.ended.remove(used);
            share.ended.insert(self.stamp, id);
            *used = self.stamp;
        }
        Some(Arc::clone(&slot.record))
    }

    fn remove(&mut self, id: StreamId) {
        let Some(slot) = self.records.remove(&id) else {
            return;
        };
        self.bytes -= slot.bytes;
        let owner = slot.record.owner;
        let Some(share) = self.owners.get_mut(&owner) else {
            return;
        };
        share.bytes -= slot.bytes;
        share.records -= 1;
        slot.used.map(|used| share.ended.remove(&used));
        if share.records == 0 {
            self.owners.remove(&owner);
        }
    }

    /// Makes room until all that is kept is within bounds; false where that cannot be.
    fn evict_to_fit(&mut self, limits: &ResponseLimits) -> bool {
        while self.records.len() > limits.stored_max || self.bytes > limits.stored_bytes {
            let with_ended = self.owners.values().filter(|share| !share.ended.is_empty());
            let most = with_ended.max_by_key(|share| share.bytes);
            let Some(oldest) = most.and_then(|share| share.ended.values().next().copied()) else {
                return false;
            };
            self.remove(oldest);
        }
        true
    }

    /// Whether all sums are right.
    #[cfg(test)]
    fn check_sums(&self) {
        let sum: usize = self.records.values().map(|slot| slot.bytes).sum();
        let shares: usize = self.owners.values().map(|share| share.bytes).sum();
        let records: usize = self.owners.values().map(|share| share.records).sum();
        let ended: usize = self.owners.values().map(|share| share.ended.len()).sum();
        let used = self.records.values().filter(|slot| slot.used.is_some());
        assert_eq!((sum, shares), (self.bytes, self.bytes));
        assert_eq!((records, ended), (self.records.len(), used.count()));
    }
}

fn unknown_response() -> ApiError {
    let words = "there is no response of this name, or it is no longer kept";
    ApiError::caller(ErrorKind::NotFound, "response_not_found", words)
}

fn no_such_previous() -> ApiError {
    let words = "previous_response_id: it, or a response before it, is not kept here (any more)";
    previous_missing("previous_response_not_found", words)
}

fn previous_missing(code: &'static str, words: &str) -> ApiError {
    ApiError::field("previous_response_id", code, words)
}

#[cfg(test)]
#[path = "response_store_tests.rs"]
mod tests;
