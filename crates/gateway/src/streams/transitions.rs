//! State changes of a stream: published to the feed, and the last one kept for followers of the stream.
//!
//! The engine reports to the [`Follower`] of each request, on the engine's thread, once per transition and never per
//! token. The server reports the opening, and an end before the engine had a request. Two threads may report at one
//! time; the lock of the `watch` orders their changes, and the feed is written under the same lock. A report holds
//! the lock for one slot of the ring and a few wakers, a reader for a copy. The end is the last change, once: later
//! changes are dropped.

use super::feed::{FeedEvent, StreamFeed};
use crate::records::end_name;
use engine::{Follower, ParkReason, Transition};
use futures_util::stream::{Stream, unfold};
use generate::stream_source::Change;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;
use stream::{Owner, StreamId};
use tokio::sync::watch;

/// The last changes of a stream, one after another; changes between two polls are skipped.
pub(crate) type Changes = Pin<Box<dyn Stream<Item = Change> + Send>>;

/// Publishes the state changes of one stream.
#[derive(Debug)]
pub(crate) struct Transitions {
    id: StreamId,
    owner: Owner,
    prompts: usize,
    feed: StreamFeed,
    now: watch::Sender<CurrentState>,
}

#[derive(Clone, Copy, Debug)]
struct CurrentState {
    change: Change,
    started: bool,
    /// Whether another gateway continues the stream, and publishes what becomes of it.
    has_left: bool,
    /// Requests that have not ended: one per prompt, or of a resumed stream one per choice.
    open: usize,
}

impl Transitions {
    /// Of a stream with this many prompts, that is about to be opened.
    pub(crate) fn new(
        (id, owner): (StreamId, Owner),
        prompts: usize,
        feed: StreamFeed,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            owner,
            prompts,
            feed,
            now: watch::Sender::new(CurrentState {
                change: Change::Opened,
                started: false,
                has_left: false,
                open: prompts,
            }),
        })
    }

    /// The stream was registered. To be called once, before anything else.
    pub(crate) fn publish_opened(&self, at: Instant) {
        self.publish_change(Change::Opened, None, at);
    }

    /// The stream of an earlier process, or of another gateway, was registered. To be called once, before anything else.
    pub(crate) fn publish_recovered(&self, is_taken_over: bool, at: Instant) {
        let change = if is_taken_over {
            Change::Claimed
        } else {
            Change::Recovered
        };
        self.publish_if_changed(None, at, |_| Some(change));
    }

    /// The engine's follower for the request of this prompt.
    pub(crate) fn engine_follower(self: &Arc<Self>, prompt: usize) -> Box<dyn Follower> {
        Box::new(PromptFollower {
            all: Arc::clone(self),
            // The index is left out with a single prompt. A request has fewer prompts than 32 bits count.
            prompt: u32::try_from(prompt).ok().filter(|_| self.prompts > 1),
        })
    }

    /// A resumed stream has this many requests: the stream ends with the last of them. To be called before the first
    /// of them is submitted.
    pub(crate) fn set_requests(&self, count: usize) {
        self.now.send_if_modified(|now| {
            now.open = count;
            false
        });
    }

    /// Another gateway continues the stream: nothing further is published, least of all that the stream has ended.
    pub(crate) fn leave(&self) {
        self.now.send_if_modified(|now| {
            now.has_left = true;
            false
        });
    }

    /// The last state change.
    pub(crate) fn last_change(&self) -> Change {
        self.now.borrow().change
    }

    /// The last state change, and all later ones.
    pub(crate) fn follow_changes(&self) -> Changes {
        let mut now = self.now.subscribe();
        now.mark_changed();
        Box::pin(unfold(now, |mut now| async move {
            now.changed().await.ok()?;
            let change = now.borrow_and_update().change;
            Some((change, now))
        }))
    }

    /// All requests have ended; ignored after the first end.
    pub(crate) fn publish_ended(
        &self,
        how: &'static str,
        detail: Option<&'static str>,
        at: Instant,
    ) {
        self.publish_if_changed(None, at, |_| Some(Change::Ended { how, detail }));
    }

    fn publish_change(&self, change: Change, prompt: Option<u32>, at: Instant) {
        self.feed.publish(FeedEvent::Change {
            stream: self.id,
            owner: self.owner,
            change,
            prompt,
            at,
        });
    }

    /// Publishes that a request runs on another engine; the state stays as it is.
    fn publish_moved(&self, prompt: Option<u32>, at: Instant) {
        self.now.send_if_modified(|now| {
            if !matches!(now.change, Change::Ended { .. }) && !now.has_left {
                self.publish_change(Change::Moved, prompt, at);
            }
            false
        });
    }

    /// Publishes the state change that `change` makes, unless the stream has ended.
    fn publish_if_changed(
        &self,
        prompt: Option<u32>,
        at: Instant,
        change: impl FnOnce(&mut CurrentState) -> Option<Change>,
    ) {
        self.now.send_if_modified(|now| {
            if matches!(now.change, Change::Ended { .. }) {
                return false;
            }
            let Some(change) = change(now) else {
                return false;
            };
            now.change = change;
            if !now.has_left {
                self.publish_change(change, prompt, at);
            }
            true
        });
    }
}

/// One prompt's part.
#[derive(Debug)]
struct PromptFollower {
    all: Arc<Transitions>,
    prompt: Option<u32>,
}

impl Follower for PromptFollower {
    fn transition(&self, what: Transition, at: Instant) {
        if what == Transition::Moved {
            return self.all.publish_moved(self.prompt, at);
        }
        self.all
            .publish_if_changed(self.prompt, at, |now| stream_change(now, what));
    }
}

/// The stream's state change for a transition of one request.
fn stream_change(now: &mut CurrentState, what: Transition) -> Option<Change> {
    let parked = |reason| Some(Change::Parked { reason });
    match what {
        Transition::Queued | Transition::FirstToken | Transition::Moved => None,
        Transition::Started if now.started => None,
        Transition::Started => {
            now.started = true;
            Some(Change::Started)
        }
        Transition::Backpressure => Some(Change::Backpressure),
        Transition::SlowConsumer => Some(Change::SlowConsumer),
        Transition::Parked {
            reason: ParkReason::Paused,
        } => parked("paused"),
        Transition::Parked {
            reason: ParkReason::Detached,
        } => parked("detached"),
        Transition::Parked {
            reason: ParkReason::NoPermit,
        } => parked("place"),
        Transition::Preempted => parked("pages"),
        Transition::Resumed => Some(Change::Resumed),
        Transition::Ended(end) => {
            now.open = now.open.saturating_sub(1);
            let (how, detail) = end_name(end);
            (now.open == 0).then_some(Change::Ended { how, detail })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt};
    use stream::{End, Stop};
    use wire::clock;

    const LENGTH: Change = Change::Ended {
        how: "length",
        detail: None,
    };

    fn opened(prompts: usize) -> Arc<Transitions> {
        let id = StreamId::from_random([7; 16]);
        Transitions::new((id, Owner(1)), prompts, StreamFeed::new())
    }

    #[test]
    fn stream_starts_once_and_ends_with_the_last_prompt() {
        let all = opened(2);
        let mut changes = all.follow_changes();
        let mut next = || changes.next().now_or_never().flatten();
        assert_eq!(next(), Some(Change::Opened));
        assert_eq!(next(), None);
        let (a, b) = (all.engine_follower(0), all.engine_follower(1));
        let now = clock::now();
        a.transition(Transition::Queued, now);
        assert_eq!(next(), None, "not a change of the stream");
        a.transition(Transition::Started, now);
        assert_eq!(next(), Some(Change::Started));
        a.transition(Transition::Backpressure, now);
        b.transition(Transition::Started, now);
        assert_eq!(next(), Some(Change::Backpressure));
        a.transition(Transition::Ended(End::Stop(Stop::Eos)), now);
        assert_eq!(next(), None, "one of two");
        b.transition(Transition::Resumed, now);
        b.transition(Transition::Ended(End::Length), now);
        assert_eq!(
            next(),
            Some(LENGTH),
            "the last, what was before is passed over"
        );
        all.publish_ended("lost", None, now);
        b.transition(Transition::Resumed, now);
        assert_eq!(next(), None, "nothing follows the ending");
        assert_eq!(
            all.follow_changes().next().now_or_never().flatten(),
            Some(LENGTH)
        );
    }

    #[test]
    fn resumed_stream_ends_with_the_last_of_its_requests() {
        let all = opened(1);
        all.set_requests(2);
        let now = clock::now();
        let (a, b) = (all.engine_follower(0), all.engine_follower(0));
        a.transition(Transition::Ended(End::Stop(Stop::Eos)), now);
        assert_eq!(all.last_change(), Change::Opened, "one of two");
        b.transition(Transition::Ended(End::Length), now);
        assert_eq!(all.last_change(), LENGTH);
    }

    #[test]
    fn request_that_moves_is_told_to_the_feed_and_changes_no_state() {
        let feed = StreamFeed::new();
        let mut ring = feed.subscribe();
        let all = Transitions::new((StreamId::from_random([7; 16]), Owner(1)), 1, feed);
        let (now, follower) = (clock::now(), all.engine_follower(0));
        all.publish_recovered(true, now);
        follower.transition(Transition::Moved, now);
        assert_eq!(all.last_change(), Change::Claimed);
        follower.transition(Transition::Ended(End::Length), now);
        follower.transition(Transition::Moved, now);
        let mut told = Vec::new();
        while let Ok(FeedEvent::Change { change, .. }) = ring.try_recv() {
            told.push(change);
        }
        assert_eq!(told, [Change::Claimed, Change::Moved, LENGTH]);
    }

    #[test]
    fn stream_of_another_gateway_ends_for_its_followers_and_not_in_the_feed() {
        let feed = StreamFeed::new();
        let mut ring = feed.subscribe();
        let all = Transitions::new((StreamId::from_random([7; 16]), Owner(1)), 1, feed);
        let (now, follower) = (clock::now(), all.engine_follower(0));
        all.publish_opened(now);
        all.leave();
        follower.transition(Transition::Moved, now);
        follower.transition(Transition::Ended(End::Cancelled), now);
        assert!(matches!(all.last_change(), Change::Ended { .. }));
        let mut told = Vec::new();
        while let Ok(FeedEvent::Change { change, .. }) = ring.try_recv() {
            told.push(change);
        }
        assert_eq!(told, [Change::Opened]);
    }

    #[test]
    fn stream_that_never_started_ends_too() {
        let all = opened(1);
        all.publish_ended("refused", Some("queue_timeout"), clock::now());
        all.engine_follower(0)
            .transition(Transition::Started, clock::now());
        let refused = Change::Ended {
            how: "refused",
            detail: Some("queue_timeout"),
        };
        assert_eq!(
            all.follow_changes().next().now_or_never().flatten(),
            Some(refused)
        );
    }
}
