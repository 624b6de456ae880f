//! Keep-alives of idle streams.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// The keep-alive timer of one stream. A frame only records the time; the timer is moved only when due. So a busy
/// stream costs one timer operation per period instead of one per token.
pub(crate) struct KeepAlive {
    timer: Pin<Box<Sleep>>,
    period: Duration,
    last: Instant,
}

impl KeepAlive {
    /// A timer that starts now.
    pub(crate) fn new(period: Duration) -> Self {
        Self {
            timer: Box::pin(tokio::time::sleep(period)),
            period,
            last: Instant::now(),
        }
    }

    /// Records that a frame was written.
    pub(crate) fn note_frame(&mut self) {
        self.last = Instant::now();
    }

    /// Ready after a period without a frame; then the next period begins.
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
