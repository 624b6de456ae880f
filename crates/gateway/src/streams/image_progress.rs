//! How far the images of a waiting stream are on the way to their descriptions, for readers of the stream.
//!
//! A reader compares the states with those that it has reported: a state that lasts for less than a look is passed over, and
//! the last state of each image is always reported.

use super::stream_record::StreamRecord;
use futures_util::StreamExt;
use futures_util::stream::{Stream, unfold};
use generate::images::DescriptionState;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use tokio::sync::watch;

/// The states of the images that another model describes; nothing for other streams.
#[derive(Debug, Default)]
pub(crate) struct ImageProgress(OnceLock<watch::Sender<Vec<DescriptionState>>>);

/// A change of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageChange {
    /// Number of the image, from 0.
    pub index: usize,
    /// Images of the request.
    pub count: usize,
    /// The new state.
    pub state: DescriptionState,
}

impl StreamRecord {
    /// Another model is to describe so many images before the stream starts.
    pub(crate) fn expect_images(&self, count: usize) {
        let progress = &self.image_progress.0;
        // A recovered stream describes its images again.
        progress.get_or_init(|| watch::Sender::new(vec![DescriptionState::Waiting; count]));
    }

    /// Sets the state of an image.
    pub(crate) fn set_image(&self, index: usize, state: DescriptionState) {
        if let Some(states) = self.image_progress.0.get() {
            states.send_modify(|states| {
                if let Some(known) = states.get_mut(index) {
                    *known = state;
                }
            });
        }
    }

    /// Whether another model describes images before the stream starts.
    pub fn describes_images(&self) -> bool {
        self.image_progress.0.get().is_some()
    }

    /// Waits until a model works on an image; without end, if none has to.
    pub async fn description_begun(&self) {
        let Some(states) = self.image_progress.0.get() else {
            return std::future::pending().await;
        };
        let mut states = states.subscribe();
        // The sender lives as long as the record.
        let _ = states
            .wait_for(|states| states.contains(&DescriptionState::Describing))
            .await;
    }

    /// The changes of images from their beginning on; `None`: no image has to be described.
    pub fn follow_images(&self) -> Option<ImageFollower> {
        let states = self.image_progress.0.get()?;
        Some(ImageFollower::new(states.subscribe()))
    }
}

/// Follows the images of one stream.
pub struct ImageFollower {
    states: watch::Receiver<Vec<DescriptionState>>,
    changes: Pin<Box<dyn Stream<Item = ()> + Send>>,
    reported: Vec<DescriptionState>,
}

impl ImageFollower {
    fn new(states: watch::Receiver<Vec<DescriptionState>>) -> Self {
        let changes = unfold(states.clone(), |mut states| async move {
            states.changed().await.ok()?;
            Some(((), states))
        });
        let count = states.borrow().len();
        Self {
            states,
            // Polled again after the end, which comes with the drop of the record.
            changes: Box::pin(changes.fuse()),
            reported: vec![DescriptionState::Waiting; count],
        }
    }

    /// A change that was not reported yet, if there is one now.
    pub fn next_now(&mut self) -> Option<ImageChange> {
        let states = self.states.borrow();
        let count = states.len();
        let new = states.iter().zip(&mut self.reported).enumerate();
        let mut new = new.filter(|(_, (state, reported))| state != reported);
        let (index, (&state, reported)) = new.next()?;
        *reported = state;
        Some(ImageChange {
            index,
            count,
            state,
        })
    }

    /// The next change. `Pending` leaves the waker.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<ImageChange> {
        loop {
            if let Some(change) = self.next_now() {
                return Poll::Ready(change);
            }
            match self.changes.as_mut().poll_next(cx) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_state_of_each_image_is_reported_once() {
        let sender = watch::Sender::new(vec![DescriptionState::Waiting; 2]);
        let mut follower = ImageFollower::new(sender.subscribe());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut next = || match follower.poll_next(&mut cx) {
            Poll::Ready(change) => Some((change.index, change.state)),
            Poll::Pending => None,
        };
        assert_eq!(next(), None);
        let set = |index: usize, state| sender.send_modify(|states| states[index] = state);
        set(0, DescriptionState::Describing);
        assert_eq!(next(), Some((0, DescriptionState::Describing)));
        let described = DescriptionState::Described { cached: false };
        set(0, described);
        set(1, DescriptionState::Describing);
        set(1, DescriptionState::Failed);
        assert_eq!(next(), Some((0, described)));
        assert_eq!(
            next(),
            Some((1, DescriptionState::Failed)),
            "the state before is passed over"
        );
        assert_eq!(next(), None);
        drop(sender);
        assert_eq!((next(), next()), (None, None), "the stream is gone");
    }
}
