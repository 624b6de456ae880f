//! Readers attached to a stream, from before the first read until they leave, and what is noted of the end: whether it was
//! read.
//!
//! Drives a resumable stream, or a stream that may become resumable, with or without a client.
//!
//! One task per stream. The driver reads every choice to the end, like the subscribers (so that no log is abandoned,
//! and the key is charged once, not per subscriber), grants `detached_tokens` when the client is gone, and retains the
//! stream at the stream's end. The driver returns no credit.

use super::DurableStream;
use super::stream_credit::SubscriberId;
use super::stream_logs::NO_TOKEN;
use super::stream_record::StreamRecord;
use super::stream_run::StreamRun;
use super::undelivered::StreamLimits;
use crate::locks::lock;
use crate::records::NotedEnd;
use engine::Token;
use generate::output::choice_reader::LogReaders;
use generate::output::generation_reader::is_good;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;
use stream::{End, Read, Reader};
use tokio::time::{Instant, MissedTickBehavior};
use wire::clock;

/// A reader attached to a stream; the drop detaches the reader.
pub struct Subscriber {
    record: Arc<StreamRecord>,
    id: SubscriberId,
}

impl Subscriber {
    /// The subscriber of the client that opens the stream. The subscriber owns the credit from now on, also before
    /// the start: a stream without a credit owner gets `detached_tokens`.
    pub fn opening(record: &Arc<StreamRecord>) -> Self {
        let subscriber = Self::joining(record);
        subscriber.take_credit();
        subscriber
    }

    /// A later subscriber, which becomes the credit owner by reading while there is no owner.
    pub fn joining(record: &Arc<StreamRecord>) -> Self {
        record.attendance.enter();
        Self {
            record: Arc::clone(record),
            id: record.credit_owner.next_id(),
        }
    }

    /// The record of the stream.
    pub(crate) fn record(&self) -> &Arc<StreamRecord> {
        &self.record
    }

    /// Takes the credit from the current owner.
    pub(crate) fn take_credit(&self) {
        self.record.credit_owner.take_credit(self.id);
    }

    /// Whether this subscriber owns the credit; without an owner, the subscriber becomes the owner.
    pub(crate) fn owns_credit(&self) -> bool {
        self.record.credit_owner.owns_credit(self.id)
    }
}

impl Drop for Subscriber {
    /// If this subscriber owns the credit, gives the credit up; the stream then gets `detached_tokens`.
    fn drop(&mut self) {
        if self.record.credit_owner.detach_subscriber(self.id) {
            self.record.detach_client();
        }
        self.record.attendance.leave();
    }
}

/// The readers of one stream, and the notes on its end.
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    present: AtomicUsize,
    noted: Mutex<NotedEnd>,
}

impl Attendance {
    pub(crate) fn enter(&self) {
        self.present.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        self.present.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_empty(&self) -> bool {
        self.present.load(Ordering::SeqCst) == 0
    }

    fn noted(&self) -> MutexGuard<'_, NotedEnd> {
        lock(&self.noted)
    }
}

impl StreamRecord {
    /// Whether the stream has ended, its readers have left, and none of them has the end. `false` once a client has
    /// acknowledged the end.
    pub fn is_unread(&self) -> bool {
        // In this order: the last reader notes that it has the end before it leaves.
        let is_left = self.is_kept() && self.is_over() && self.attendance.is_empty();
        is_left && !self.noted_end().read
    }

    /// A reader has the end (to be called while that reader is present), or a client has acknowledged it. Recorded for a
    /// later process, if the stream is durable.
    pub fn note_end_read(&self) {
        self.note_end(|noted| noted.read = true);
    }

    /// Changes the notes on the end, and records them.
    pub(crate) fn note_end(&self, change: impl FnOnce(&mut NotedEnd)) {
        if !self.is_kept() || self.is_left_to_others() {
            return;
        }
        let mut noted = self.attendance.noted();
        let before = *noted;
        change(&mut noted);
        // Under the lock: the last record has all notes.
        if let Some(durable) = self.durable().filter(|_| *noted != before) {
            durable.note_end(self.rejection(), *noted);
        }
    }

    /// The notes on the end.
    pub(crate) fn noted_end(&self) -> NotedEnd {
        *self.attendance.noted()
    }

    /// The notes of an earlier process.
    pub(crate) fn restore_noted_end(&self, noted: NotedEnd) {
        *self.attendance.noted() = noted;
    }

    /// Whether another process ends the stream: another gateway, or the next process of this one, which starts what has not
    /// started yet.
    pub(crate) fn is_left_to_others(&self) -> bool {
        let is_left = || {
            let durable = self.durable();
            durable.is_some_and(DurableStream::is_left_to_next)
        };
        self.has_left() || (self.rejection().is_some() && is_left())
    }

    /// Wall time of the end, in microseconds since the Unix epoch: the place of an ended stream in the order of ends.
    pub(crate) fn ended_unix_us(&self) -> u64 {
        self.source().ended_time().recorded_or(clock::unix_us())
    }
}

/// The end of a stream on the way to a reader, who is present until the drop.
pub struct EndReceipt(Arc<StreamRecord>);

impl EndReceipt {
    pub(crate) fn new(record: &Arc<StreamRecord>) -> Self {
        record.attendance.enter();
        Self(Arc::clone(record))
    }

    /// The reader has the end.
    pub fn confirm(self) {
        self.0.note_end_read();
    }
}

impl Drop for EndReceipt {
    fn drop(&mut self) {
        self.0.attendance.leave();
    }
}

/// Guard of a detachable stream's client: the drop of the guard cancels the stream, unless the client's credit was
/// revoked before. Such a stream continues as a resumable stream.
pub(crate) struct CancelOnDrop(Arc<StreamRecord>);

impl CancelOnDrop {
    /// A guard for this stream.
    pub(crate) fn new(record: &Arc<StreamRecord>) -> Self {
        Self(Arc::clone(record))
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.0.credit_owner.was_revoked() && !self.0.is_over() {
            self.0.cancel();
        }
    }
}

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
            record.credit_owner.revoke_credit();
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
