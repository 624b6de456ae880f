//! Slots of a request that is computed by tasks, one slot each, instead of by sequences of the engine.

use super::permit::Permit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use tokio::sync::Notify;

/// A permit that the tasks of a request share.
pub struct TaskSlots {
    permit: Permit,
    /// Tasks that have not requested a slot yet.
    to_come: AtomicUsize,
    waker_target: Arc<NotifyWaker>,
}

/// The slot of one task; released on drop.
pub struct TaskSlot(Arc<TaskSlots>);

/// A task's pending request of a slot.
struct SlotRequest<'a> {
    slots: &'a TaskSlots,
    taken: bool,
}

impl TaskSlots {
    /// Slots for so many tasks.
    pub fn new(permit: Permit, tasks: usize) -> Arc<Self> {
        let waker_target: Arc<NotifyWaker> = Arc::default();
        permit.wake_on_slot(Waker::from(Arc::clone(&waker_target)));
        Arc::new(Self {
            permit,
            to_come: AtomicUsize::new(tasks),
            waker_target,
        })
    }

    /// The shared permit, to report latencies.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// Waits for a slot. To be called once by each task.
    pub async fn acquire_slot(self: &Arc<Self>) -> TaskSlot {
        self.permit.request_slot();
        self.to_come.fetch_sub(1, Ordering::Relaxed);
        let mut claim = SlotRequest {
            slots: self,
            taken: false,
        };
        loop {
            // Registered before the check: a grant between the check and the wait is noticed.
            let given = self.waker_target.0.notified();
            claim.taken = self.permit.take_slot();
            if claim.taken {
                return TaskSlot(Arc::clone(self));
            }
            given.await;
        }
    }
}

impl Drop for SlotRequest<'_> {
    fn drop(&mut self) {
        if !self.taken {
            self.slots.permit.cancel_slot_request();
        }
    }
}

impl Drop for TaskSlot {
    fn drop(&mut self) {
        let more = self.0.to_come.load(Ordering::Relaxed) > 0;
        self.0.permit.return_slot(more);
    }
}

/// A [`Notify`] as the target of a waker.
#[derive(Default)]
pub struct NotifyWaker(pub Notify);

impl Wake for NotifyWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}
