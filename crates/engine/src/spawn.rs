//! The engine's thread: the one place of this crate that reads the clock, and where it parks.

use crate::{Engine, Handle, Next};
use std::time::Instant;

/// Waits for the engine's thread. Dropping it lets the thread go on by itself.
pub struct Joiner {
    thread: std::thread::JoinHandle<()>,
}

/// The engine's thread died of a bug; its streams ended with `Lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnginePanicked;

impl Joiner {
    /// Returns when the engine has left (after `Handle::shutdown`, or after the last handle's drop).
    ///
    /// # Errors
    /// The thread panicked.
    pub fn join(self) -> Result<(), EnginePanicked> {
        self.thread.join().map_err(|_| EnginePanicked)
    }

    /// Whether [`Joiner::join`] would return at once.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Runs the engine on a thread of its own, named `engine`.
///
/// The thread parks while there is nothing to do. Submitting, cancelling and shutting down wake
/// it, and so does a reader that returns credit or leaves; clocks that run meanwhile are its alarm.
///
/// # Errors
/// The system has no thread to give.
pub fn spawn(mut engine: Engine) -> std::io::Result<(Handle, Joiner)> {
    let handle = engine.handle();
    let thread = std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || run(engine))?;
    Ok((handle, Joiner { thread }))
}

fn run(mut engine: Engine) {
    engine.wake_this(std::thread::current());
    loop {
        #[expect(
            clippy::disallowed_methods,
            reason = "the engine loop's head: one of the two places"
        )]
        let now = Instant::now();
        match engine.step(now).next {
            Next::Step => {}
            Next::Wait(until) => std::thread::park_timeout(until.saturating_duration_since(now)),
            Next::Sleep => std::thread::park(),
            Next::Leave => return,
        }
    }
}
