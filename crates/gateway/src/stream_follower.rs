//! State changes of a stream, put in order with the tokens that a reader reads.

use crate::generation::Generation;
use crate::streams::Changes;
use generate::stream_change::Change;
use std::task::{Context, Poll};

/// Follows the state changes of a stream beside the stream's logs.
///
/// State changes and tokens arrive on separate paths. A change belongs after the tokens generated before the change:
/// so a change is taken when there is nothing to read, and held until there is nothing to read once more; earlier
/// tokens are in the log by then.
#[derive(Default)]
pub struct StreamFollower {
    changes: Option<Changes>,
    held: Option<Change>,
}

/// Result of polling for a change.
pub enum FollowEvent {
    /// No change; the task is woken by the next change.
    Nothing,
    /// A change that may have unread tokens before: read the logs again.
    Held,
    /// A change to be emitted now.
    Due(Change),
}

impl StreamFollower {
    /// To be called when there is nothing to read. `wanted`: whether the reader still emits state changes.
    pub fn poll_change(
        &mut self,
        generation: &Generation,
        wanted: bool,
        cx: &mut Context<'_>,
    ) -> FollowEvent {
        if !wanted {
            *self = Self::default();
            return FollowEvent::Nothing;
        }
        if let Some(change) = self.held.take() {
            return FollowEvent::Due(change);
        }
        let changes = self
            .changes
            .get_or_insert_with(|| generation.state_changes());
        match changes.as_mut().poll_next(cx) {
            Poll::Ready(Some(change)) => {
                self.held = Some(change);
                FollowEvent::Held
            }
            Poll::Ready(None) | Poll::Pending => FollowEvent::Nothing,
        }
    }
}
