//! A waker that notifies a task through [`Notify`].

use std::sync::Arc;
use std::task::Wake;
use tokio::sync::Notify;

/// A [`Notify`] as the target of a waker.
#[derive(Default)]
pub(crate) struct NotifyWaker(pub(crate) Notify);

impl Wake for NotifyWaker {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}
