//! The slot of a run: returned while the run is parked, requested again to continue.
//!
//! As for the engine's sequences ([`engine::SequencePermits`]): a paused run returns the slot at once, a run that
//! waits for the reader after [`PERMIT_KEPT`]. Requests of the run in the engine then go on to the end of their
//! windows.

use crate::streams::PermitHolder;
use engine::PERMIT_KEPT;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::time::{Sleep, sleep};

/// Why a run is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunParkReason {
    Paused,
    Credit,
}

/// The slot of one run, and the permit.
pub(crate) struct RunSlot {
    work: PermitHolder,
    state: SlotState,
}

enum SlotState {
    None,
    Wanted,
    Held,
    /// The run waits for the reader and keeps the slot until this time.
    Kept(Pin<Box<Sleep>>),
}

impl RunSlot {
    /// The slot of a new run. `waker` is woken by a grant.
    pub(crate) fn new(work: PermitHolder, waker: Waker) -> Self {
        work.permit().wake_on_slot(waker);
        Self {
            work,
            state: SlotState::None,
        }
    }

    /// Ready when a run that is not parked has a slot; pending when parked.
    pub(crate) fn poll_slot(
        &mut self,
        cx: &mut Context<'_>,
        still: Option<RunParkReason>,
    ) -> Poll<()> {
        let permit = self.work.permit();
        match (still, &mut self.state) {
            (None, SlotState::Held | SlotState::Kept(_)) => self.state = SlotState::Held,
            (None, SlotState::None | SlotState::Wanted) => {
                if matches!(self.state, SlotState::None) {
                    permit.request_slot();
                }
                self.state = match permit.take_slot() {
                    true => SlotState::Held,
                    false => SlotState::Wanted,
                };
            }
            (Some(RunParkReason::Credit), SlotState::Held) => {
                self.state = SlotState::Kept(Box::pin(sleep(PERMIT_KEPT)));
                return self.poll_slot(cx, still);
            }
            (Some(RunParkReason::Credit), SlotState::Kept(until)) => {
                if until.as_mut().poll(cx).is_ready() {
                    self.return_slot();
                }
            }
            (Some(_), _) => self.return_slot(),
        }
        match (still, &self.state) {
            (None, SlotState::Held) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    fn return_slot(&mut self) {
        match std::mem::replace(&mut self.state, SlotState::None) {
            SlotState::None => {}
            SlotState::Wanted => self.work.permit().cancel_slot_request(),
            SlotState::Held | SlotState::Kept(_) => self.work.permit().return_slot(false),
        }
    }
}
