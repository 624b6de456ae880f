//! Looking again soon, at what changes without waking anybody.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Time between two looks. What is looked for comes once in a stream's life, within a step or two
/// unless the server is busy.
const LOOK_EACH: Duration = Duration::from_millis(20);

/// A timer that exists only as long as there is something to look for.
#[derive(Default)]
pub(crate) struct Look(Option<Pin<Box<Sleep>>>);

impl Look {
    /// Wakes the task before long, if there is something to look for.
    pub(crate) fn again(&mut self, cx: &mut Context<'_>, something: bool) {
        if !something {
            self.0 = None;
            return;
        }
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep(LOOK_EACH)));
        while timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(Instant::now() + LOOK_EACH);
        }
    }
}
