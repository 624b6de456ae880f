//! Ctrl-C (SIGINT) ends the current answer and not the program.
//!
//! States: idle, answering, interrupted. A thread waits for the signal. While the model answers, the signal marks the
//! answer as interrupted and unparks the thread that reads the answer, which then cancels the request. A second signal
//! before the answer has ended exits the program. [`WhenIdle`] defines the effect of a signal between answers.

use crate::failure::Failure;
use crate::signals::Interrupt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, Thread};

const IDLE: u8 = 0;
const ANSWERING: u8 = 1;
const INTERRUPTED: u8 = 2;
/// The exit code after an interrupt: 128 and SIGINT.
const INTERRUPT_EXIT: i32 = 128 + 2;

/// Effect of a signal between answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhenIdle {
    /// None: a line editor reads Ctrl-C as a key.
    Continue,
    /// The program exits, as without a handler.
    Exit,
}

/// The handler of SIGINT, for the rest of the process.
pub(crate) struct Interrupts {
    state: Arc<AtomicU8>,
}

/// The state while the model answers.
pub(crate) struct Answering<'a>(&'a AtomicU8);

impl Interrupts {
    /// Installs the handler. The current thread is the one that reads answers.
    ///
    /// # Errors
    /// The system has no thread, or rejects the handler.
    pub(crate) fn start(when_idle: WhenIdle) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let context = runtime.enter();
        let signals = Interrupt::new()?;
        drop(context);
        let state = Arc::new(AtomicU8::new(IDLE));
        let (watched, reader) = (Arc::clone(&state), thread::current());
        let watch = move || runtime.block_on(watch_signals(signals, &watched, &reader, when_idle));
        thread::Builder::new()
            .name("interrupts".to_owned())
            .spawn(watch)
            .map_err(|why| Failure::no_thread("interrupts", &why))?;
        Ok(Self { state })
    }

    /// Marks the beginning of an answer; dropping the value marks the end.
    pub(crate) fn answering(&self) -> Answering<'_> {
        self.state.store(ANSWERING, Ordering::Release);
        Answering(&self.state)
    }
}

impl Answering<'_> {
    /// Whether the answer shall end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.0.load(Ordering::Acquire) == INTERRUPTED
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.store(IDLE, Ordering::Release);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the process ends as without a handler: at once, from any thread"
)]
async fn watch_signals(
    mut signals: Interrupt,
    state: &AtomicU8,
    reader: &Thread,
    when_idle: WhenIdle,
) {
    while signals.next().await.is_some() {
        let (from, to) = (ANSWERING, INTERRUPTED);
        match state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => reader.unpark(),
            Err(IDLE) if when_idle == WhenIdle::Continue => {}
            Err(_) => std::process::exit(INTERRUPT_EXIT),
        }
    }
}
