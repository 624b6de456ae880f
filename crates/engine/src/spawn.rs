//! The engine's thread. (Stub.)

use crate::{Engine, Handle};

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
}

/// Runs the engine on a thread of its own, named `engine`.
///
/// # Errors
/// The system has no thread to give.
pub fn spawn(_engine: Engine) -> std::io::Result<(Handle, Joiner)> {
    todo!()
}
