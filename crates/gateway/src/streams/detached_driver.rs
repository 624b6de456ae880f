//! Drives a resumable stream, or a stream that may become resumable, with or without a client.
//!
//! One task per stream. The driver reads every choice to the end, beside the subscribers (so that no log is abandoned,
//! and the key is charged once, not per subscriber), grants `detached_tokens` when the client is gone, and retains the
//! stream at the stream's end. The driver returns no credit.

use super::stream_logs::NO_TOKEN;
use super::stream_run::StreamRun;
use super::undelivered::StreamLimits;
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
/// Checks of a stream per `detached_wait`, or per `reader_patience`; at least one check a second.
const LOOKS_PER_WAIT: u32 = 8;

/// The number of tokens that a reader has taken, and since when that number has not grown.
#[derive(Clone, Copy)]
struct ReaderProgress {
    since: Instant,
    taken: u64,
}

/// The driver of one stream.
pub(crate) struct DetachedDriver {
    run: StreamRun,
    /// By choice; `None` after the choice has ended.
    choices: Vec<Option<LogReaders>>,
    read: u64,
}

impl DetachedDriver {
    /// A driver of a stream that was just started, with the first readers of the stream's logs.
    pub(crate) fn new(run: StreamRun, readers: Vec<LogReaders>) -> Self {
        Self {
            run,
            choices: readers.into_iter().map(Some).collect(),
            read: 0,
        }
    }

    /// Drives the stream until all choices have ended. The credit of a subscriber that takes nothing for `patience` is
    /// revoked.
    pub(crate) async fn run_stream(mut self, limits: StreamLimits, patience: Option<Duration>) {
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
                    self.watch_reader(patience, &mut silent, now);
                    self.check_credit(&limits, &mut stranded, now);
                }
            }
        }
        // A plain stream is removed at the end, unless credit was revoked.
        if self.run.record().is_kept() {
            self.run.finish_stream();
        }
    }

    /// Reads the tokens that are there; ready when all choices have ended.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for choice in &mut self.choices {
            let Some(readers) = choice else { continue };
            match drain_logs(&mut readers.tokens, cx, &mut self.read) {
                Poll::Pending => {}
                Poll::Ready(end) => {
                    *choice = None;
                    if !is_good(end) {
                        self.run.record().record_failure(end);
                        self.run.record().cancel();
                    }
                }
            }
        }
        let open = self.choices.iter().flatten().count();
        self.run.tokens_read(self.read, open);
        if open == 0 {
            return Poll::Ready(());
        }
        self.run.reader_waits();
        Poll::Pending
    }

    /// Revokes the credit of a subscriber that blocks the stream and has taken nothing for `patience`.
    fn watch_reader(
        &self,
        patience: Option<Duration>,
        silent: &mut Option<ReaderProgress>,
        now: Instant,
    ) {
        let record = self.run.record();
        let (Some(patience), Some(taken)) = (patience, record.tokens_awaited()) else {
            *silent = None;
            return;
        };
        let before = silent.filter(|silence| silence.taken == taken);
        let silence = *silent.insert(before.unwrap_or(ReaderProgress { since: now, taken }));
        if now.saturating_duration_since(silence.since) >= patience {
            tracing::debug!("a stream was detached from its client, which did not read");
            record.credit_owner().revoke_credit();
            *silent = None;
        }
    }

    /// Grants `detached_tokens` to a stream that waits for credit without a client, and cancels a stream that still
    /// waits after `detached_wait`.
    fn check_credit(&self, limits: &StreamLimits, stranded: &mut Option<Instant>, now: Instant) {
        let record = self.run.record();
        if !record.is_stranded() {
            *stranded = None;
            return;
        }
        record.detach_client();
        let since = *stranded.get_or_insert(now);
        if now.saturating_duration_since(since) >= limits.detached_wait {
            tracing::debug!("a detached stream was ended: no client returned in time");
            record.cancel();
        }
    }
}

/// Reads all tokens; ready at the end.
fn drain_logs(tokens: &mut Reader<Token>, cx: &mut Context<'_>, read: &mut u64) -> Poll<End> {
    let mut buffer = [NO_TOKEN; TOKENS_PER_READ];
    loop {
        match tokens.poll_read(cx, &mut buffer) {
            Poll::Ready(Read::Items(n)) => *read += n as u64,
            Poll::Ready(Read::Ended(end)) => return Poll::Ready(end),
            Poll::Ready(Read::Empty) | Poll::Pending => return Poll::Pending,
        }
    }
}
