//! How much of a choice has been emitted to a client.
//!
//! A position counts steps. A step is the echo text, where there is one; each token; the rest that the output pipeline
//! held back when the tokens were over (a step also if that rest is empty); the end. A step may have several parts (the
//! last text before a tool call, and the name of the call).
//!
//! Steps count decoded input, not frames, so a position means the same in every wire protocol.

/// How much of one choice a client has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Whole steps.
    pub steps: u64,
    /// Parts of the step after those.
    pub parts: u64,
}

impl Position {
    /// The position after so many whole steps.
    pub fn whole(steps: u64) -> Self {
        Self { steps, parts: 0 }
    }

    /// Steps of which the client has at least a part.
    pub fn begun(self) -> u64 {
        self.steps.saturating_add(u64::from(self.parts > 0))
    }
}
