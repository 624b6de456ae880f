//! Runs a resumable stream, or one that may become so, whether its client is there or not.
//!
//! One task per stream. It reads every choice to its end beside the clients (so that no log is
//! abandoned, and the key is charged once, not per reader), gives what is due when the client is gone,
//! and tells the registry when all is over. It returns no credit.

use super::run::Run;
use super::settings::StreamLimits;
use engine::Token;
use generate::output::choice_reader::LogReaders;
use generate::output::generation_reader::is_good;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;
use stream::{End, Read, Reader};
use tokio::time::{Instant, MissedTickBehavior};

/// Tokens read at a time.
const TOKENS_PER_READ: usize = 32;
/// How often a stream is looked at, in parts of `detached_wait` or of what its reader has; at most a second.
const LOOKS_PER_WAIT: u32 = 8;

/// Since when a reader has taken no more than this.
#[derive(Clone, Copy)]
struct Silence {
    since: Instant,
    taken: u64,
}

/// Runs one stream.
pub(crate) struct Keeper {
    run: Run,
    /// `None` after its end.
    choices: Vec<Option<LogReaders>>,
    read: u64,
}

impl Keeper {
    /// Of a stream that was just started, with the first readers of its logs.
    pub(crate) fn new(run: Run, readers: Vec<LogReaders>) -> Self {
        Self {
            run,
            choices: readers.into_iter().map(Some).collect(),
            read: 0,
        }
    }

    /// Returns when all choices have ended.
    /// A reader that is there and takes nothing for `patience` is let go of.
    pub(crate) async fn run(mut self, limits: StreamLimits, patience: Option<Duration>) {
        let shortest = patience.map_or(limits.detached_wait, |p| p.min(limits.detached_wait));
        let period = shortest / LOOKS_PER_WAIT;
        let period = period.clamp(Duration::from_millis(1), Duration::from_secs(1));
        let mut looks = tokio::time::interval(period);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut stranded, mut silent) = (None, None);
        loop {
            tokio::select! {
                () = poll_fn(|cx| self.poll_end(cx)) => break,
                now = looks.tick() => {
                    self.listen(patience, &mut silent, now);
                    self.look(&limits, &mut stranded, now);
                }
            }
        }
        // A plain stream that was never let go of is forgotten at its end.
        if self.run.entry().is_kept() {
            self.run.finish();
        }
    }

    /// Reads what is there; ready when all has ended.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for choice in &mut self.choices {
            let Some(readers) = choice else { continue };
            match drain(&mut readers.tokens, cx, &mut self.read) {
                Poll::Pending => {}
                Poll::Ready(end) => {
                    *choice = None;
                    if !is_good(end) {
                        self.run.entry().broke(end);
                        self.run.entry().cancel();
                    }
                }
            }
        }
        let open = self.choices.iter().flatten().count();
        self.run.read(self.read, open);
        if open == 0 {
            return Poll::Ready(());
        }
        self.run.waits();
        Poll::Pending
    }

    /// A reader that is there and has taken nothing since it was first seen to hold the stream up.
    fn listen(&self, patience: Option<Duration>, silent: &mut Option<Silence>, now: Instant) {
        let entry = self.run.entry();
        let (Some(patience), Some(taken)) = (patience, entry.awaited()) else {
            *silent = None;
            return;
        };
        let before = silent.filter(|silence| silence.taken == taken);
        let silence = *silent.insert(before.unwrap_or(Silence { since: now, taken }));
        if now.saturating_duration_since(silence.since) >= patience {
            tracing::debug!("a stream was detached from its client, which did not read");
            entry.governor().let_go();
            *silent = None;
        }
    }

    /// A stream that waits for credit without a client gets its extra, and when that is spent too,
    /// some time.
    fn look(&self, limits: &StreamLimits, stranded: &mut Option<Instant>, now: Instant) {
        let entry = self.run.entry();
        if !entry.is_stranded() {
            *stranded = None;
            return;
        }
        entry.detach();
        let since = *stranded.get_or_insert(now);
        if now.saturating_duration_since(since) >= limits.detached_wait {
            tracing::debug!("a detached stream was ended: no client returned in time");
            entry.cancel();
        }
    }
}

/// Reads on; ready at the end.
fn drain(tokens: &mut Reader<Token>, cx: &mut Context<'_>, read: &mut u64) -> Poll<End> {
    let nothing = Token {
        id: 0,
        logprob: 0.0,
    };
    let mut buffer = [nothing; TOKENS_PER_READ];
    loop {
        match tokens.poll_read(cx, &mut buffer) {
            Poll::Ready(Read::Items(n)) => *read += n as u64,
            Poll::Ready(Read::Ended(end)) => return Poll::Ready(end),
            Poll::Ready(Read::Empty) | Poll::Pending => return Poll::Pending,
        }
    }
}
