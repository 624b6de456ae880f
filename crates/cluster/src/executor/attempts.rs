//! All attempts of an engine process, and the load that its heartbeats report.
//!
//! A gateway that is not heard for [`GATEWAY_SILENCE`] has died, or cannot reach this process: its attempts are cancelled. The
//! gateway that continues a stream submits the stored tokens as a request of its own; one that is heard again finds that its
//! attempts are unknown, and does the same.

use super::outgoing::{CopyBuffers, Outgoing};
use super::running::{RunningAttempt, queued};
use super::submission::{STARTING_MAX, StartingRequests, bytes_of, rejected};
use crate::messages::{
    Attempt, Order, OrderKind, ReadRequest, Rejection, ReportedLoad, Run, RunReply, TokenBatch,
};
use crate::names::InstanceId;
use engine::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time that an ended attempt is kept for reads.
pub const ENDED_WAIT: Duration = Duration::from_secs(60);
/// A gateway that was not heard for so long is gone: its attempts are cancelled.
pub const GATEWAY_SILENCE: Duration = Duration::from_secs(10);
/// Attempts that have not ended.
pub const OPEN_ATTEMPTS_MAX: usize = 4096;
/// Ended attempts that are kept for reads.
pub const ENDED_KEPT_MAX: usize = 1024;
/// An open attempt of which nothing was sent for so long reports its progress again, so that its gateway sees attempts that
/// it has given up.
pub const REPORT_AFTER: Duration = Duration::from_secs(3);
/// Repeated requests that wait for the answer to one attempt.
const WAITING_MAX: usize = 8;
/// Bytes that an answer to a read keeps free for each entry that follows.
const ENTRY_RESERVE: usize = 48;

/// Fate of a request that arrived.
#[derive(Debug, PartialEq)]
pub enum Admission {
    /// The request is to be submitted ([`super::start`]), and the outcome reported to [`Attempts::settle`].
    Start(Box<Run>),
    /// The request is answered now.
    Answer(RunReply),
    /// The request is answered when the attempt is submitted; or never, where a later attempt has replaced it.
    Wait,
}

/// The outcome of a submission, and where it is to be sent.
#[derive(Debug, PartialEq)]
pub struct Settled {
    /// Subjects of the answers.
    pub answers: Vec<String>,
    /// The answer.
    pub reply: RunReply,
}

/// All attempts, by gateway and request. `now` never decreases.
pub struct Attempts {
    pub(super) entries: BTreeMap<(InstanceId, u64), Entry>,
    pub(super) starting: StartingRequests,
    /// When the gateways of the entries were heard last. A gateway without entries is forgotten at once, or at the next
    /// [`Attempts::expire`].
    pub(super) heard: BTreeMap<InstanceId, Instant>,
    batch: TokenBatch,
    buffers: CopyBuffers,
    is_leaving: bool,
}

/// One attempt. Without `running` it is being submitted.
pub(super) struct Entry {
    pub(super) attempt: u32,
    /// Subjects of the answers, until the attempt is submitted.
    answers: Vec<String>,
    pub(super) running: Option<Box<RunningAttempt>>,
    /// When something was sent last.
    sent: Instant,
    /// When all ends were sent.
    pub(super) ended: Option<Instant>,
}

impl Attempts {
    /// No attempts of this engine.
    pub fn new(engine: InstanceId) -> Self {
        Self {
            entries: BTreeMap::new(),
            starting: StartingRequests::default(),
            heard: BTreeMap::new(),
            batch: TokenBatch::new(engine),
            buffers: CopyBuffers::new(),
            is_leaving: false,
        }
    }

    /// Decides about a request; `answer` is the subject of the answer. A repeated one is answered as the first; an earlier
    /// attempt of the same request is cancelled.
    pub fn admit(&mut self, run: Box<Run>, answer: String, now: Instant) -> Admission {
        let key = (run.gateway, run.handle);
        if let Some(entry) = self.entries.get_mut(&key) {
            if entry.attempt > run.attempt {
                return Admission::Wait;
            }
            if entry.attempt == run.attempt {
                return entry.repeat(answer);
            }
            self.entries.remove(&key);
        }
        if self.is_leaving {
            let message = "the engine shuts down";
            return Admission::Answer(rejected(Rejection::Leaving, message));
        }
        let bytes = bytes_of(&run);
        if self.open() >= OPEN_ATTEMPTS_MAX || !self.starting.has_room(bytes) {
            let message = format!("at most {OPEN_ATTEMPTS_MAX} requests, {STARTING_MAX} new ones");
            return Admission::Answer(rejected(Rejection::Full, message));
        }
        let entry = Entry {
            attempt: run.attempt,
            answers: vec![answer],
            running: None,
            sent: now,
            ended: None,
        };
        let attempt = Attempt {
            handle: run.handle,
            attempt: run.attempt,
        };
        self.starting.begin((run.gateway, attempt), bytes);
        self.entries.insert(key, entry);
        self.heard.insert(run.gateway, now);
        Admission::Start(run)
    }

    /// Takes the outcome of a submission. An attempt that was replaced, forgotten or cancelled meanwhile is dropped, and
    /// nobody waits for its answer.
    pub fn settle(
        &mut self,
        (gateway, attempt): (InstanceId, Attempt),
        outcome: Result<RunningAttempt, RunReply>,
    ) -> Settled {
        self.starting.end((gateway, attempt));
        let key = (gateway, attempt.handle);
        let is_awaited =
            |entry: &&mut Entry| entry.attempt == attempt.attempt && entry.running.is_none();
        let Some(entry) = self.entries.get_mut(&key).filter(is_awaited) else {
            let answers = Vec::new();
            let reply = outcome.err().unwrap_or(RunReply::Accepted);
            return Settled { answers, reply };
        };
        let answers = std::mem::take(&mut entry.answers);
        let reply = match outcome {
            Ok(running) => {
                entry.running = Some(Box::new(running));
                RunReply::Accepted
            }
            Err(reply) => {
                self.entries.remove(&key);
                self.forget_without_entries(gateway);
                if matches!(
                    &reply,
                    RunReply::Rejected {
                        code: Rejection::Full,
                        ..
                    }
                ) {
                    self.drop_ended(0);
                }
                reply
            }
        };
        Settled { answers, reply }
    }

    /// Applies the orders of a gateway.
    pub fn apply_orders(&mut self, gateway: InstanceId, orders: &[Order], now: Instant) {
        self.hear(gateway, now);
        for order in orders {
            let key = (gateway, order.handle);
            let entry = self.entries.get_mut(&key);
            let Some(entry) = entry.filter(|entry| entry.attempt == order.attempt) else {
                continue;
            };
            if order.kind == OrderKind::Forget {
                self.entries.remove(&key);
            } else if let Some(running) = &mut entry.running {
                running.apply(order);
            }
        }
    }

    /// The answer to a read: what was sent of each attempt and did not arrive, as far as there is room.
    pub fn read(&mut self, request: &ReadRequest, now: Instant) -> &TokenBatch {
        self.hear(request.gateway, now);
        self.batch.clear();
        for (i, wanted) in request.entries.iter().enumerate() {
            let attempt = Attempt {
                handle: wanted.handle,
                attempt: wanted.attempt,
            };
            let entry = self.entries.get(&(request.gateway, wanted.handle));
            let entry = entry.filter(|entry| entry.attempt == wanted.attempt);
            // Each of the entries that follow needs room at least for its progress.
            let reserve = (request.entries.len() - i) * ENTRY_RESERVE;
            let _ = match entry.map(|entry| &entry.running) {
                None => self.batch.push_unknown(attempt),
                Some(None) => self.batch.push_progress(queued(attempt)),
                Some(Some(running)) => {
                    running.send_again(&wanted.have, &mut self.batch, &mut self.buffers, reserve);
                    Ok(())
                }
            };
        }
        &self.batch
    }

    /// Sends what is new since the last call, one message for each gateway where one has room for all.
    pub fn send_news(&mut self, now: Instant, send: &mut dyn FnMut(InstanceId, &TokenBatch)) {
        self.batch.clear();
        let mut entries = self.entries.iter_mut().peekable();
        while let Some((&(gateway, _), entry)) = entries.next() {
            let mut outgoing = Outgoing {
                batch: &mut self.batch,
                buffers: &mut self.buffers,
                send: &mut |batch| send(gateway, batch),
            };
            entry.send_news(&mut outgoing, now);
            let is_last = entries.peek().is_none_or(|(key, _)| key.0 != gateway);
            if is_last {
                outgoing.send();
            }
        }
    }

    /// Rejects further requests: the process shuts down.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Attempts whose ends were not sent.
    pub fn open(&self) -> usize {
        self.entries.values().filter(|e| e.ended.is_none()).count()
    }

    /// Attempts, with those that have ended and are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets a gateway that has no entries: any id may be in a message.
    fn forget_without_entries(&mut self, gateway: InstanceId) {
        let handles = (gateway, 0)..=(gateway, u64::MAX);
        if self.entries.range(handles).next().is_none() {
            self.heard.remove(&gateway);
        }
    }

    /// Drops the ended attempts but for the last `keep`. A gateway that reads one that was dropped places the request
    /// again.
    pub(super) fn drop_ended(&mut self, keep: usize) {
        let ended = self.entries.iter();
        let ended = ended.filter_map(|(key, entry)| Some((entry.ended?, *key)));
        let mut ended: Vec<_> = ended.collect();
        ended.sort_unstable();
        let count = ended.len().saturating_sub(keep);
        for (_, key) in &ended[..count] {
            self.entries.remove(key);
        }
    }

    /// Notes a sign of life of a gateway.
    pub fn hear(&mut self, gateway: InstanceId, now: Instant) {
        if let Some(heard) = self.heard.get_mut(&gateway) {
            *heard = now;
        }
    }

    /// Cancels the attempts of gateways that are gone, and forgets ended attempts after their time.
    pub fn expire(&mut self, now: Instant) {
        let is_over = |since: Instant, wait| now.saturating_duration_since(since) >= wait;
        let heard = self.heard.iter();
        let gone = heard.filter(|(_, heard)| is_over(**heard, GATEWAY_SILENCE));
        let gone: Vec<InstanceId> = gone.map(|(gateway, _)| *gateway).collect();
        for gateway in gone {
            let before = self.entries.len();
            self.entries.retain(|key, _| key.0 != gateway);
            let cancelled = before - self.entries.len();
            tracing::warn!(%gateway, cancelled, "the gateway is silent: its requests are cancelled");
        }
        self.entries.retain(|_, entry| {
            let ended = entry.ended;
            !ended.is_some_and(|ended| is_over(ended, ENDED_WAIT))
        });
        self.drop_ended(ENDED_KEPT_MAX);
        let gateways: BTreeSet<_> = self.entries.keys().map(|key| key.0).collect();
        self.heard.retain(|gateway, _| gateways.contains(gateway));
    }
}

impl Entry {
    /// Decides about a repeated request.
    fn repeat(&mut self, answer: String) -> Admission {
        if self.running.is_some() {
            return Admission::Answer(RunReply::Accepted);
        }
        if self.answers.len() < WAITING_MAX {
            self.answers.push(answer);
        }
        Admission::Wait
    }

    fn send_news(&mut self, outgoing: &mut Outgoing<'_>, now: Instant) {
        let Some(running) = &mut self.running else {
            return;
        };
        if self.ended.is_none() || running.has_unreported_orders() {
            let is_silent = now.saturating_duration_since(self.sent) >= REPORT_AFTER;
            if running.send_news(outgoing, is_silent) {
                self.sent = now;
            }
        }
        if self.ended.is_none() && running.is_sent() {
            self.ended = Some(now);
            running.release_images();
        }
    }
}

/// The load of a model's engine. `cache_epoch` changes when the prefix cache is emptied.
pub fn reported_load(engine: &Handle, cache_epoch: u64) -> ReportedLoad {
    let (stats, dims) = (engine.stats(), engine.dims());
    ReportedLoad {
        pages_total: stats.pages_free() + stats.pages_used() + stats.pages_cached(),
        pages_free: stats.pages_free(),
        pages_cached: stats.pages_cached(),
        page_tokens: dims.page_tokens as u64,
        slots: saturated(engine.sequences_max() as u64),
        queued: saturated(stats.queued()),
        running: saturated(stats.running()),
        step_us: stats.step_ns_last() / 1000,
        prefill_pending: None,
        prefill_tokens_per_s: None,
        cache_epoch,
    }
}

fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
