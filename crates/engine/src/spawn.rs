//! The engine thread: the only place in this crate that reads the clock or parks.

use crate::{Engine, Handle, Next};
use std::time::Instant;

/// Waits for the engine thread. Dropping the value detaches the thread.
pub struct EngineThread {
    thread: std::thread::JoinHandle<()>,
}

/// The engine thread panicked, which is a bug; the engine's streams ended with `Lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnginePanicked;

impl EngineThread {
    /// Waits until the engine has left (after `Handle::shutdown`, or after the last handle's drop).
    ///
    /// # Errors
    /// The thread panicked.
    pub fn join(self) -> Result<(), EnginePanicked> {
        self.thread.join().map_err(|_| EnginePanicked)
    }

    /// Whether [`EngineThread::join`] would return at once.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Runs the engine on a new thread, named `engine`.
///
/// The thread parks while there is no work. Every call of a handle wakes the thread, and so does a reader that
/// returns credit or leaves; clocks that run meanwhile limit the park.
///
/// # Errors
/// The system cannot start a thread.
pub fn spawn(mut engine: Engine) -> std::io::Result<(Handle, EngineThread)> {
    let handle = engine.handle();
    let thread = std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || run_loop(engine))?;
    // Set before a caller has the handle: a call of the handle before the thread's own first line would wake nothing. The
    // wake is for calls of handles that were there before.
    handle.set_thread(thread.thread().clone());
    thread.thread().unpark();
    Ok((handle, EngineThread { thread }))
}

fn run_loop(mut engine: Engine) {
    engine.set_thread(std::thread::current());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineConfig;
    use crate::fake::{FakeConfig, FakeModel};

    #[test]
    fn handle_wakes_the_thread_as_soon_as_there_is_a_handle() {
        let model = Box::new(FakeModel::new(FakeConfig::default()));
        #[expect(clippy::disallowed_methods, reason = "a real thread")]
        let now = Instant::now();
        let engine = Engine::new(model, EngineConfig::default(), now).expect("valid");
        let (handle, thread) = spawn(engine).expect("a thread");
        assert_eq!(handle.woken_thread(), Some(thread.thread.thread().id()));
        handle.shutdown(now);
        thread.join().expect("no panic");
    }
}
