//! What happens to a stream, for a reader that wants to say so: in its place among the tokens.

use crate::generation::Generation;
use crate::streams::Changes;
use generate::stream_change::Change;
use std::task::{Context, Poll};

/// Follows a stream beside its logs.
///
/// What happens and what is read come by two ways. A change is told after the tokens that were there
/// before it: so it is taken when there is nothing to read, and held until, once more, there is nothing
/// to read; the tokens that came before it are in the log by then.
#[derive(Default)]
pub struct StreamFollower {
    changes: Option<Changes>,
    held: Option<Change>,
}

/// What a look found, when there was nothing to read.
pub enum FollowEvent {
    /// Nothing; whoever looked is woken by the next change.
    Nothing,
    /// A change that may have tokens before it: read again.
    Held,
    /// A change whose turn it is to be told.
    Due(Change),
}

impl StreamFollower {
    /// There is nothing to read. `wanted`: whether the reader still wants to know.
    pub fn look(
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
        let changes = self.changes.get_or_insert_with(|| generation.changes());
        match changes.as_mut().poll_next(cx) {
            Poll::Ready(Some(change)) => {
                self.held = Some(change);
                FollowEvent::Held
            }
            Poll::Ready(None) | Poll::Pending => FollowEvent::Nothing,
        }
    }
}
