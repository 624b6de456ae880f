//! Telling a client that nothing is wrong while there is nothing to tell.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// One coarse timer per stream. A frame only notes its time; the timer itself is moved when it
/// fires, so a busy stream costs one timer operation per period, not one per token.
pub(crate) struct KeepAlive {
    timer: Pin<Box<Sleep>>,
    period: Duration,
    last: Instant,
}

impl KeepAlive {
    /// Starts counting now.
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            timer: Box::pin(tokio::time::sleep(period)),
            period,
            last: Instant::now(),
        }
    }

    /// A frame was given.
    pub(crate) fn spoke(&mut self) {
        self.last = Instant::now();
    }

    /// Ready when nothing was said for a period; then the next period begins.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let due = self.last + self.period;
            let now = Instant::now();
            if due <= now {
                self.last = now;
                self.timer.as_mut().reset(now + self.period);
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}
