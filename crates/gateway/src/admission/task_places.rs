//! Places of a request whose work is done by tasks, one place each, rather than by sequences of the engine.

use super::permit::Permit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use tokio::sync::Notify;

/// A permit, shared by its request's tasks.
pub struct TaskPlaces {
    permit: Permit,
    /// Tasks that have not asked for their place yet.
    to_come: AtomicUsize,
    bell: Arc<Bell>,
}

/// One task's place; free again with its drop.
pub struct TaskPlace(Arc<TaskPlaces>);

/// A task that waits for its place.
struct Claim<'a> {
    places: &'a TaskPlaces,
    taken: bool,
}

#[derive(Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl TaskPlaces {
    /// Places for so many tasks.
    pub fn new(permit: Permit, tasks: usize) -> Arc<Self> {
        let bell: Arc<Bell> = Arc::default();
        permit.wake_by(Waker::from(Arc::clone(&bell)));
        Arc::new(Self {
            permit,
            to_come: AtomicUsize::new(tasks),
            bell,
        })
    }

    /// Tells admission how quick its request is.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// Waits for a place. To be called once by each task.
    pub async fn place(self: &Arc<Self>) -> TaskPlace {
        self.permit.want();
        self.to_come.fetch_sub(1, Ordering::Relaxed);
        let mut claim = Claim {
            places: self,
            taken: false,
        };
        loop {
            // Heard from here on: what is given between the look and the wait rings too.
            let given = self.bell.0.notified();
            claim.taken = self.permit.take();
            if claim.taken {
                return TaskPlace(Arc::clone(self));
            }
            given.await;
        }
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.taken {
            self.places.permit.want_not();
        }
    }
}

impl Drop for TaskPlace {
    fn drop(&mut self) {
        let more = self.0.to_come.load(Ordering::Relaxed) > 0;
        self.0.permit.give_back(more);
    }
}
