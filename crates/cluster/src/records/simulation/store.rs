//! A model of the JetStream stream: one log, a subject for each stream, compare-and-set for each subject.

use crate::messages::RecordsHead;
use crate::records::{LastMessage, SubjectMessage};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Default)]
pub(super) struct SimStore {
    subjects: BTreeMap<u128, Vec<SubjectMessage>>,
    pub(super) last_sequence: u64,
    /// Grows when the store is made again.
    pub(super) created: i128,
    /// No request is answered before; some are carried out.
    pub(super) leaderless_until: Option<Instant>,
    /// The owner with the highest generation of each stream.
    owners: BTreeMap<u128, RecordsHead>,
    pub(super) rejected: u64,
}

impl SimStore {
    pub(super) fn has_leader(&self, now: Instant) -> bool {
        self.leaderless_until.is_none_or(|until| until <= now)
    }

    /// The sequence of the message, or `None` where another one is the last.
    pub(super) fn publish(&mut self, id: u128, expected: u64, payload: Bytes) -> Option<u64> {
        let messages = self.subjects.entry(id).or_default();
        if messages.last().map_or(0, |last| last.sequence) != expected {
            self.rejected += 1;
            return None;
        }
        let (head, _) = RecordsHead::decode(&payload).unwrap();
        let owner = self.owners.entry(id).or_insert(head);
        assert!(
            head.generation > owner.generation || head.has_owner_of(*owner),
            "an owner that was replaced has appended: {head:?} after {owner:?}"
        );
        *owner = head;
        self.last_sequence += 1;
        let sequence = self.last_sequence;
        messages.push(SubjectMessage { sequence, payload });
        Some(sequence)
    }

    pub(super) fn last(&self, id: u128) -> Option<LastMessage> {
        let message = self.subjects.get(&id)?.last()?;
        let (head, _) = RecordsHead::decode(&message.payload).unwrap();
        let sequence = message.sequence;
        Some(LastMessage { sequence, head })
    }

    pub(super) fn read(&self, id: u128) -> Vec<SubjectMessage> {
        self.subjects.get(&id).cloned().unwrap_or_default()
    }

    pub(super) fn purge(&mut self, id: u128, below: u64) {
        if let Some(messages) = self.subjects.get_mut(&id) {
            messages.retain(|message| message.sequence >= below);
        }
    }

    pub(super) fn streams(&self) -> Vec<u128> {
        let filled = self.subjects.iter().filter(|(_, m)| !m.is_empty());
        filled.map(|(id, _)| *id).collect()
    }

    /// Loses everything, as a store that is made again.
    pub(super) fn wipe(&mut self) {
        self.subjects.clear();
        self.owners.clear();
        self.last_sequence = 0;
        self.created += 1;
    }
}
