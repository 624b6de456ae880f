//! The prompt clock: the time that a prompt waits for tokens of other answers.
//!
//! Between admission and the first token, an engine computes the prompt, prompts before it, and tokens of answers. Fewer
//! running streams shorten the part of the tokens only: the prompts' time would be spent in the queue instead. So the
//! clock goes on while decode rows are computed, and the concurrency limit follows the time that it shows.
//!
//! Where the engine is another process, its decode rows are not known, and the clock is that of the machine.

use super::{Core, TicketState};
use std::time::{Duration, Instant};

impl Core {
    /// Sets the time that the engine has spent on decode rows so far.
    pub(crate) fn set_decode_time(&mut self, decode_time: Option<Duration>) {
        self.decode_time = decode_time;
    }

    /// The prompt clock, which only differences of count. `at` matters only where the decode time is not known.
    pub(crate) fn prompt_clock(&self, at: Instant) -> Duration {
        let since_epoch = || at.saturating_duration_since(self.epoch);
        self.decode_time.unwrap_or_else(since_epoch)
    }

    /// How long the ticket that waits longest for a first token has waited. Computed once per interval.
    pub(crate) fn longest_prompt_wait(&self, now: Instant) -> Option<Duration> {
        let pending = self
            .tickets
            .values()
            .filter_map(|ticket| match &ticket.state {
                TicketState::Running(run) if run.held > 0 && !run.first_token => Some(run.since),
                _ => None,
            });
        let since = pending.min()?;
        Some(self.prompt_clock(now).saturating_sub(since))
    }
}
