//! One choice between its submission and its end.

use crate::model_probe::UpstreamKind;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Identifies a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallKey {
    pub(crate) handle: u64,
    pub(crate) choice: usize,
    /// Reports of earlier calls are left out.
    pub(crate) call: u32,
}

/// A choice.
#[derive(Debug)]
pub(super) struct ChoiceRun {
    pub(super) call: Option<RunningCall>,
    /// Number of the last call.
    pub(super) calls: u32,
    /// The upstream of the last call.
    pub(super) last_upstream: Option<usize>,
    /// Tokens in the log since the submission.
    pub(super) generated: usize,
    /// The kind of upstream that has computed tokens since the submission.
    pub(super) source: Option<UpstreamKind>,
    /// Some tokens are not an upstream's own: they only have its text.
    pub(super) has_cover: bool,
    /// Since when the choice has no upstream.
    pub(super) unplaced_since: Instant,
    /// Before this time, there is no next call.
    pub(super) not_before: Instant,
    /// Failed calls since the last token.
    pub(super) failures: u32,
    /// Accepted calls that were cut since the last token.
    pub(super) crashes: u32,
}

/// A call of an upstream; its drop closes the connection.
#[derive(Debug)]
pub(super) struct RunningCall {
    pub(super) upstream: usize,
    pub(super) kind: UpstreamKind,
    pub(super) credit: watch::Sender<u64>,
    /// Tokens of this call that were received.
    pub(super) received: u64,
    pub(super) is_accepted: bool,
    pub(super) task: AbortHandle,
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ChoiceRun {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            call: None,
            calls: 0,
            last_upstream: None,
            generated: 0,
            source: None,
            has_cover: false,
            unplaced_since: now,
            not_before: now,
            failures: 0,
            crashes: 0,
        }
    }

    /// A call failed: the next one begins after a pause.
    pub(super) fn note_failure(&mut self, was_accepted: bool, retry: Duration, now: Instant) {
        self.failures += 1;
        self.crashes += u32::from(was_accepted);
        self.unplaced_since = if was_accepted {
            now
        } else {
            self.unplaced_since
        };
        let doubled = retry.saturating_mul(1 << (self.failures - 1).min(16));
        self.not_before = now + doubled.min(retry.saturating_mul(10));
        if self.failures == 1 && was_accepted {
            // A stream that was running goes on at once.
            self.not_before = now;
        }
    }

    /// A token arrived.
    pub(super) fn note_token(&mut self) {
        self.generated += 1;
        (self.failures, self.crashes) = (0, 0);
    }
}
