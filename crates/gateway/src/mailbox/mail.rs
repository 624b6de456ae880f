//! An event in a mailbox.

use super::cursor::Place;
use crate::durability::{DescriptionError, StoredBlob};
use crate::ended::EventRecord;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// An event in a mailbox, with its copy in the journal.
pub(super) struct Mail {
    pub(super) place: Place,
    pub(super) record: Arc<EventRecord>,
    /// The drop ends the retention in the journal.
    pub(super) blob: Option<Arc<StoredBlob>>,
}

/// The part of a recorded event that changes when another process takes the event over: the outcome of the object in the
/// journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MailState {
    origin: u64,
    sequence: u64,
    /// Events that the mailbox had dropped when this one came.
    pub(super) dropped: u64,
}

impl MailState {
    pub(super) fn new(place: Place, dropped: u64) -> Self {
        Self {
            origin: place.origin,
            sequence: place.sequence,
            dropped,
        }
    }

    pub(super) fn place(self) -> Place {
        Place {
            origin: self.origin,
            sequence: self.sequence,
        }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        // Numbers are always JSON.
        serde_json::to_vec(&self).unwrap_or_default()
    }

    pub(super) fn decode(outcome: Option<&[u8]>) -> Result<Self, DescriptionError> {
        let read = serde_json::from_slice(outcome.unwrap_or_default());
        read.map_err(|error| DescriptionError::Invalid(error.to_string()))
    }
}

/// An event on the way to a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MailboxEntry {
    origin: u64,
    sequence: u64,
    created_unix_us: u64,
    /// Type of the event.
    pub kind: String,
    /// The event as webhooks send it.
    pub event: Box<RawValue>,
}

impl MailboxEntry {
    /// `None` for an event that is no JSON, as only a damaged record has.
    pub(super) fn new(mail: &Mail) -> Option<Self> {
        Some(Self {
            origin: mail.place.origin,
            sequence: mail.place.sequence,
            created_unix_us: mail.record.created_unix_us,
            kind: mail.record.event.clone(),
            event: RawValue::from_string(mail.record.body.clone()).ok()?,
        })
    }

    pub(super) fn place(&self) -> Place {
        Place {
            origin: self.origin,
            sequence: self.sequence,
        }
    }

    pub(super) fn created_unix_us(&self) -> u64 {
        self.created_unix_us
    }
}
