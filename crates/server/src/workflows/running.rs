//! A run, seen from outside: what may be told it, and what it came to.

use crate::streams::spell;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Wake, Waker};
use stream::End;
use stream::ring::{Refused, Writer};
use tokio::sync::Notify;
use workflow::{Outcome, Value};

/// A run, seen from outside.
#[derive(Default)]
pub(crate) struct Running {
    /// Rung with news for whoever drives it.
    bell: Arc<Bell>,
    cancelled: AtomicBool,
    paused: AtomicBool,
    /// The channels it reads, as many as its document opens.
    channels: Mutex<BTreeMap<Arc<str>, Writer<u32>>>,
    outcome: OnceLock<Json>,
}

impl Running {
    /// Ends it at its last token told.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.bell.0.notify_one();
    }

    /// Has it stand still, or go on.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
        self.bell.0.notify_one();
    }

    /// Writes ids into a channel: how many it had room for.
    ///
    /// # Errors
    /// It has no channel of this name now.
    pub(super) fn write(&self, channel: &str, ids: &[u32]) -> Result<usize, NoChannel> {
        let mut channels = self.channels();
        let writer = channels.get_mut(channel).ok_or(NoChannel)?;
        match writer.push_slice(ids) {
            Ok(count) => Ok(count),
            Err(Refused::Full) => Ok(0),
            Err(Refused::Closed) => Err(NoChannel),
        }
    }

    /// Closes a channel: the run hears that nothing will come.
    ///
    /// # Errors
    /// It has no channel of this name now.
    pub(super) fn close(&self, channel: &str) -> Result<(), NoChannel> {
        let closed = self.channels().remove(channel);
        closed.map(drop).ok_or(NoChannel)
    }

    /// What it came to; `None` while it goes on.
    pub(super) fn outcome(&self) -> Option<&Json> {
        self.outcome.get()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Returns when there was news since the last time.
    pub(super) async fn news(&self) {
        self.bell.0.notified().await;
    }

    /// Rings the bell.
    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.bell))
    }

    pub(super) fn opened(&self, channel: Arc<str>, writer: Writer<u32>) {
        self.channels().insert(channel, writer);
    }

    pub(super) fn ended(&self, outcome: &Outcome) {
        self.channels().clear();
        let (end, detail) = match outcome.end {
            End::Stop(_) => ("stop", None), // a program's own end is no token's
            end => spell(end),
        };
        let _ = self.outcome.set(json!({
            "end": end,
            "detail": detail,
            "value": outcome.value.as_ref().map(Value::to_json),
            "fault": outcome.fault.as_ref().map(ToString::to_string),
        }));
    }

    fn channels(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Writer<u32>>> {
        // Nothing that may panic happens while it is held.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no such channel, or none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoChannel;

#[derive(Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}
