//! Requests for engines of other processes.
//!
//! A remote handle takes requests like any other. Its inbox is emptied by a relay, which sends each request's record to an
//! engine of another process and appends the tokens that come back. What holds for requests of an engine holds here: the
//! caller's resources are released before the last log ends, each choice ends once, and a request that is dropped ends
//! with [`stream::End::Lost`].
//!
//! A request waits for the permit of a choice before it is sent; its other choices take theirs as they become free. A choice
//! that waits for its reader gives the permit back.

mod relayed_permits;
mod relayed_request;
#[cfg(test)]
mod tests;

pub use crate::inbox::RecordRefusal;
pub use crate::remote_record::{RemoteFile, RemoteFiles, RemoteRecord};
pub use relayed_request::{AppendError, RelayedProgress, RelayedRequest};

use crate::inbox::{Inbox, SubmittedRequest};
use crate::{ConfigError, EngineConfig, Handle, RequestId, RequestUpdate};
use model::Dims;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Instant;

/// A model on engines of other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteModel {
    /// Sizes.
    pub dims: Dims,
    /// Entries of a hidden state; 0: there are no embeddings.
    pub hidden_dim: usize,
    /// Whether tokens attend to earlier tokens only; see [`model::Capabilities::is_causal`].
    pub is_causal: bool,
}

impl From<Dims> for RemoteModel {
    /// A model that generates text, without embeddings.
    fn from(dims: Dims) -> Self {
        Self {
            dims,
            hidden_dim: 0,
            is_causal: true,
        }
    }
}

/// Opens a handle whose requests a relay takes. Times in [`crate::Progress`] count from `epoch`.
///
/// # Errors
/// A bound of `config`, or of the model's sizes, is too small.
pub fn remote_handle(
    model: impl Into<RemoteModel>,
    config: EngineConfig,
    epoch: Instant,
) -> Result<(Handle, RemoteInbox), ConfigError> {
    let model = model.into();
    config.check(&model.dims)?;
    let mut inbox = Inbox::new(model.dims, None, config, epoch);
    inbox.is_remote = true;
    inbox.hidden_dim = model.hidden_dim;
    inbox.is_causal = model.is_causal;
    inbox.adapters = usize::MAX;
    let inbox = Arc::new(inbox);
    let handle = Handle::reuse_or_open(&mut Weak::new(), &inbox);
    let remote = RemoteInbox {
        inbox,
        submitted: VecDeque::with_capacity(config.inbox_max),
    };
    Ok((handle, remote))
}

/// The relay's side of a remote handle. Dropped, it rejects later requests, and queued ones end with `Lost`.
pub struct RemoteInbox {
    inbox: Arc<Inbox>,
    /// Between the queue and the relay.
    submitted: VecDeque<Box<SubmittedRequest>>,
}

/// Requests of a relay by state, for [`crate::Stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayedCounts {
    /// Not started.
    pub queued: usize,
    /// Started and not parked.
    pub running: usize,
    /// Parked for credit.
    pub parked: usize,
    /// Paused.
    pub paused: usize,
}

impl RemoteInbox {
    /// Sets the waker that is called after each call of a handle, and when a reader returns credit or leaves. Only the
    /// first call counts.
    pub fn wake_by(&self, waker: Waker) {
        self.inbox.set_relay(waker);
    }

    /// Rejects requests by their records, and all updates of running requests. Only the first call counts.
    pub fn refuse_by(&self, refusal: RecordRefusal) {
        let _ = self.inbox.refusal.set(refusal);
    }

    /// Moves new requests into `into`, in order of submission. Returns whether there are still handles.
    pub fn take_requests(&mut self, into: &mut Vec<RelayedRequest>, now: Instant) -> bool {
        let state = self
            .inbox
            .take_requests(&mut self.submitted, &mut Vec::new());
        for submitted in self.submitted.drain(..) {
            into.push(RelayedRequest::new(*submitted, &self.inbox, now));
        }
        !state.closed
    }

    /// Moves control updates of running requests into `into`, in order.
    pub fn take_updates(&self, into: &mut Vec<(RequestId, RequestUpdate)>) {
        self.inbox.take_updates(into);
    }

    /// When all requests have to be done because the process shuts down; `None`: it does not.
    pub fn drain_deadline(&self) -> Option<Instant> {
        self.inbox.drain_deadline()
    }

    /// Shows the number of requests in each state in the handle's [`crate::Stats`].
    pub fn publish_counts(&self, counts: RelayedCounts) {
        let stats = &self.inbox.stats;
        let gauges = [
            (&stats.queued, counts.queued),
            (&stats.running, counts.running),
            (&stats.parked, counts.parked),
            (&stats.paused, counts.paused),
        ];
        for (gauge, value) in gauges {
            gauge.store(value as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for RemoteInbox {
    fn drop(&mut self) {
        self.inbox.abandon();
    }
}
