//! Control of a run from other tasks: cancel, pause, channels, result.

use crate::locks::lock;
use crate::records::end_name;
use admission::NotifyWaker;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use stream::End;
use stream::ring::{Refused, RingWriter};
use workflow::{Outcome, Value};

/// A run, seen from outside.
#[derive(Default)]
pub struct RunControl {
    /// Wakes the run's driver.
    waker_target: Arc<NotifyWaker>,
    cancelled: AtomicBool,
    paused: AtomicBool,
    /// Open input channels, as many as the document opens.
    channels: Mutex<BTreeMap<Arc<str>, RingWriter<u32>>>,
    outcome: OnceLock<RunResult>,
}

/// Result of a workflow run.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "WorkflowOutcome")]
pub struct RunResult {
    /// Reason for the end of the run.
    end: &'static str,
    /// The timeout that fired, or the error code of the failure; `null` otherwise.
    detail: Option<&'static str>,
    /// The value that the program returned; `null` without a value.
    #[schemars(with = "Option<serde_json::Value>")]
    value: Option<Box<RawValue>>,
    /// The error of the program; `null` without an error.
    fault: Option<String>,
}

impl RunControl {
    /// Ends the run after the last written token.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.waker_target.0.notify_one();
    }

    /// Pauses or continues the run.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
        self.waker_target.0.notify_one();
    }

    /// Writes ids into a channel, and returns how many the channel took.
    ///
    /// # Errors
    /// The run has no channel of this name now.
    pub fn write_channel(&self, channel: &str, ids: &[u32]) -> Result<usize, UnknownChannel> {
        let mut channels = lock(&self.channels);
        let writer = channels.get_mut(channel).ok_or(UnknownChannel)?;
        match writer.push_slice(ids) {
            Ok(count) => Ok(count),
            Err(Refused::Full) => Ok(0),
            Err(Refused::Closed) => Err(UnknownChannel),
        }
    }

    /// Closes a channel: the run sees the end of the channel's input.
    ///
    /// # Errors
    /// The run has no channel of this name now.
    pub fn close_channel(&self, channel: &str) -> Result<(), UnknownChannel> {
        let closed = lock(&self.channels).remove(channel);
        closed.map(drop).ok_or(UnknownChannel)
    }

    /// The result; `None` before the end.
    pub fn run_result(&self) -> Option<&RunResult> {
        self.outcome.get()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Returns when there was news since the last time.
    pub(crate) async fn wait_for_change(&self) {
        self.waker_target.0.notified().await;
    }

    /// Wakes the run's driver.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.waker_target))
    }

    pub(crate) fn channel_opened(&self, channel: Arc<str>, writer: RingWriter<u32>) {
        lock(&self.channels).insert(channel, writer);
    }

    pub(crate) fn set_result(&self, outcome: &Outcome) {
        lock(&self.channels).clear();
        let (end, detail) = match outcome.end {
            End::Stop(_) => ("stop", None), // a program's own end is no token's
            end => end_name(end),
        };
        let _ = self.outcome.set(RunResult {
            end,
            detail,
            value: outcome.value.as_ref().and_then(raw_json),
            fault: outcome.fault.as_ref().map(ToString::to_string),
        });
    }

    /// Bytes of the stored result.
    pub(crate) fn result_bytes(&self) -> usize {
        let value = self.outcome.get().and_then(|ended| ended.value.as_ref());
        value.map_or(0, |value| value.get().len())
    }
}

/// As JSON, without a tree of JSON values for long results.
fn raw_json(value: &Value) -> Option<Box<RawValue>> {
    let written = match value {
        Value::Text(text) => to_raw_value(&**text),
        Value::Tokens(ids) => to_raw_value(&**ids),
        Value::Tensor(entries) => to_raw_value(&**entries),
        Value::Array(items) => to_raw_value(&**items),
        small => to_raw_value(&small.to_json()),
    };
    written.ok()
}

/// There is no such channel, or none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChannel;
