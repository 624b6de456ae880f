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
pub(crate) enum Standstill {
    Paused,
    Credit,
}

/// The place of one run, and its permit.
pub(crate) struct RunPlace {
    work: PermitHolder,
    claim: Claim,
}

enum Claim {
    None,
    Wanted,
    Held,
    /// The run stands still for its reader and keeps its place until then.
    Kept(Pin<Box<Sleep>>),
}

impl RunPlace {
    /// The place of a run that begins. `waker` is woken when it gets a place.
    pub(crate) fn new(work: PermitHolder, waker: Waker) -> Self {
        work.permit().wake_by(waker);
        Self {
            work,
            claim: Claim::None,
        }
    }

    /// Ready when a run that does not stand still has its place; pending when it stands still.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, still: Option<Standstill>) -> Poll<()> {
        let permit = self.work.permit();
        match (still, &mut self.claim) {
            (None, Claim::Held | Claim::Kept(_)) => self.claim = Claim::Held,
            (None, Claim::None | Claim::Wanted) => {
                if matches!(self.claim, Claim::None) {
                    permit.want();
                }
                self.claim = match permit.take() {
                    true => Claim::Held,
                    false => Claim::Wanted,
                };
            }
            (Some(Standstill::Credit), Claim::Held) => {
                self.claim = Claim::Kept(Box::pin(sleep(PERMIT_KEPT)));
                return self.poll(cx, still);
            }
            (Some(Standstill::Credit), Claim::Kept(until)) => {
                if until.as_mut().poll(cx).is_ready() {
                    self.give_back();
                }
            }
            (Some(_), _) => self.give_back(),
        }
        match (still, &self.claim) {
            (None, Claim::Held) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    fn give_back(&mut self) {
        match std::mem::replace(&mut self.claim, Claim::None) {
            Claim::None => {}
            Claim::Wanted => self.work.permit().want_not(),
            Claim::Held | Claim::Kept(_) => self.work.permit().give_back(false),
        }
    }
}
