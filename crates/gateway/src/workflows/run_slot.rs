//! A run's place: given back while the run stands still, asked for again when it goes on.
//!
//! As for the engine's sequences ([`engine::SequencePermits`]): a run that is paused gives its place back at once, one that waits
//! for its reader after [`PERMIT_KEPT`]. What it has at the engine then goes on to the end of its window.

use crate::streams::PermitHolder;
use engine::PERMIT_KEPT;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::time::{Sleep, sleep};

/// Why a run stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunParkReason {
    Paused,
    Credit,
}

/// The place of one run, and its permit.
pub(crate) struct RunSlot {
    work: PermitHolder,
    state: SlotState,
}

enum SlotState {
    None,
    Wanted,
    Held,
    /// The run stands still for its reader and keeps its place until then.
    Kept(Pin<Box<Sleep>>),
}

impl RunSlot {
    /// The place of a run that begins. `waker` is woken when it gets a place.
    pub(crate) fn new(work: PermitHolder, waker: Waker) -> Self {
        work.permit().wake_on_slot(waker);
        Self {
            work,
            state: SlotState::None,
        }
    }

    /// Ready when a run that does not stand still has its place; pending when it stands still.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, still: Option<RunParkReason>) -> Poll<()> {
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
                return self.poll(cx, still);
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
