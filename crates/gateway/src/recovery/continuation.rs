//! The continuation of one recovered stream from the recorded tokens: without a queue, a tokenizer or a template.
//!
//! Streams without further tokens, because they had ended or cannot be continued, become readable again in every wire
//! protocol, with the recorded ends.
//!
//! Poison: requests with which the process dies again and again; and the order in which recovered streams are submitted.
//!
//! A process claims a recovered stream, with a number of tokens, before it does any work for the stream: before prompts are
//! prepared and constraints are compiled. So the next process knows which streams were in work when the process died, and
//! whether a stream has got new tokens since. A stream with new tokens is not the reason of the death, or not at this
//! place: the count begins anew.
//!
//! A stream that was in work at one death may be the reason or a neighbor. After the restart such streams run one at a
//! time, each until its first new token, so that a second death names the reason: that stream fails, and neighbors, whose
//! turn had not come or who have new tokens, continue.

use super::recovered_state::{self, WallTime, lost_error};
use super::stream_recovery::StreamRecovery;
use crate::handles::GenerationHandles;
use crate::metrics::{MeteredProtocol, MeteredRequest};
use crate::models::ReadyModel;
use crate::pending_generation::{self, PendingGeneration, claim_recovered, requested_choices};
use crate::records::{ControlState, RecordedPrompts};
use crate::streams::stream_logs::NO_TOKEN;
use crate::streams::{DetachedDriver, StreamRecord, StreamRun};
use admission::{AdmissionRequest, Permit};
use engine::Token;
use futures_util::StreamExt;
use generate::constraint::compiler::OutputConstraints;
use generate::error::{ApiError, ErrorKind};
use generate::output::choice_reader::LogReaders;
use generate::prompt::{IMAGE_CHANGED, PreparedPrompt, PromptEncoder};
use generate::request::GenerateRequest;
use generate::request::Priority;
use generate::request_record::PromptRecord;
use generate::stream_source::Change;
use generate::submit::ResumedGeneration;
use journal::{Integrity, RecoveredStream};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use stream::{End, Read, Reader};

/// Pause before a stream is submitted again for which the engine or the token pools had no room.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A stream with prepared prompts and a ready model.
pub(crate) struct Continuation {
    pending: PendingGeneration,
    prompts: Arc<[PromptRecord]>,
    records: Arc<RecoveredStream>,
    control: ControlState,
}

impl Continuation {
    /// A continuation of a stream with prepared prompts; `Err` for a stream that waited for a permit.
    pub(crate) fn new(
        handles: &GenerationHandles,
        serving: &Arc<ReadyModel>,
        stream: StreamRecovery,
        attempt: Attempt,
    ) -> Result<Self, Box<PendingGeneration>> {
        let StreamRecovery {
            run,
            mut description,
            records,
            control,
            deadline,
            ..
        } = stream;
        let (requested, prepared) = match std::mem::take(&mut description.prompts) {
            RecordedPrompts::Requested(prompts) => (prompts, None),
            RecordedPrompts::Prepared(prompts) => (Vec::new(), Some(prompts.into())),
        };
        let meta = run.record().meta();
        let measured = MeteredRequest {
            protocol: MeteredProtocol::Wire(description.protocol),
            stream: meta.stream_options.stream,
            attached: false,
            arrived: meta.arrived,
        };
        let pending = PendingGeneration {
            handles: handles.clone(),
            serving: Arc::clone(serving),
            ask: GenerateRequest {
                images: Vec::new(),
                prompts: requested,
                n: description.n,
                params: description.params.clone(),
                stream_options: description.stream_options.clone(),
            },
            program: None,
            images: None,
            context_max: description.context_max,
            body_bytes: description.body_bytes,
            deadline,
            class: description.priority,
            measured,
            description: Some(description),
            run,
            attempt: Some(attempt.number()),
        };
        let Some(prompts) = prepared else {
            return Err(Box::new(pending));
        };
        Ok(Self {
            pending,
            prompts,
            records,
            control,
        })
    }

    pub(crate) fn pending(&self) -> &PendingGeneration {
        &self.pending
    }

    fn into_run(self) -> StreamRun {
        self.pending.run
    }

    /// Submits the stream and waits for a new token; the driver runs the stream from then on.
    pub(crate) async fn submit(mut self, attempt: Attempt) {
        let record = Arc::clone(self.pending.run.record());
        let tokens = recovered_state::token_count(&self.records.choices);
        // Before anything that could end the process.
        claim_recovered(&record, attempt.number(), tokens).await;
        let readers = loop {
            match self.try_submit().await {
                Err(error) if error.kind == ErrorKind::Unavailable => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                outcome => break outcome,
            }
        };
        match readers {
            Ok(readers) => {
                self.drive(readers);
                wait_for_news(&record).await;
            }
            Err(error) => {
                let (stream, code) = (record.id(), error.code);
                tracing::error!(%stream, code, "a recovered stream cannot be continued");
                self.give_up(error, tokens).await;
            }
        }
    }

    /// Ends a stream that cannot be continued: with `Lost` after the tokens that were recorded, if that is the reason, else
    /// with the error.
    async fn give_up(self, error: ApiError, tokens: u64) {
        let ended_at = wire::clock::now();
        let is_lost = [lost_error().code, IMAGE_CHANGED].contains(&error.code);
        let is_readable = tokens > 0 && is_lost;
        if is_readable && try_settle(&self, End::Lost, ended_at).await.is_ok() {
            self.into_run().finish_recovered(ended_at);
        } else {
            self.into_run().reject_stream(&error);
        }
    }

    async fn try_submit(&mut self) -> Result<Vec<LogReaders>, ApiError> {
        let mut prompts = self.restore_prompts().await?;
        let pixels = self.pending.attach_images(&mut prompts).await?;
        let constraints = self.pending.output_constraints(&prompts).await?;
        let permit = (self.readmit(&prompts)?, pixels);
        let (resumed, reporter) = (self.resumed(), permit.0.latency_reporter());
        let (run, streams) = (&self.pending.run, &*self.pending.handles.streams);
        let (started, readers) = pending_generation::resume_stream(
            &self.pending.submission(&constraints),
            (&prompts, resumed),
            permit,
            (streams, run.record()),
        )?;
        let has_requests = !started.generation.requests.is_empty();
        self.pending.run.start_stream(started, reporter);
        let record = self.pending.run.record();
        if !has_requests {
            // The last recorded tokens had ended every choice.
            record.publish_written_end();
        }
        if !self.control.pending.is_empty() {
            for update in &self.control.pending {
                // The first process had accepted the update, and the engine has no others.
                let _ = record.update_request(update);
            }
            record.pause(self.records.is_paused);
        }
        Ok(readers)
    }

    fn readmit(&self, prompts: &[PreparedPrompt]) -> Result<Permit, ApiError> {
        let (pending, limits) = (&self.pending, self.pending.handles.limits.now());
        let sizing = pending.serving.resource_estimator(&limits);
        let lengths = prompts.iter().map(|prompt| prompt.ids.len());
        let mut need = sizing.exact_estimate(lengths, requested_choices(&pending.ask))?;
        let answered = recovered_state::token_count(&self.records.choices);
        need.prompt_tokens += usize::try_from(answered).unwrap_or(usize::MAX);
        Ok(pending.serving.admission.readmit(AdmissionRequest {
            class: pending.class,
            account: pending.run.key().account(),
            need,
            is_recallable: true,
            deadline: pending.deadline,
            who: 0,
        }))
    }

    /// The generation as it was before the restart.
    pub(crate) fn resumed(&self) -> ResumedGeneration {
        let (recovered, meta) = (&self.records, self.pending.run.record().meta());
        let wall = WallTime::now();
        ResumedGeneration {
            choices: recovered_state::resumed_choices(&recovered.choices, meta),
            cached_tokens: recovered.started.map_or(0, |started| started.cached_tokens),
            started: recovered
                .started
                .map(|started| wall.past_instant(started.at_unix_us)),
            ended: None,
            // Updates that were accepted are in effect from the first new token on.
            paused: recovered.is_paused || !self.control.pending.is_empty(),
            updates: vec![self.control.in_effect.clone()],
        }
    }

    /// Restores the prompts from their records: on this thread, or on one that may block if they are long.
    async fn restore_prompts(&self) -> Result<Vec<PreparedPrompt>, ApiError> {
        let (pending, records) = (&self.pending, Arc::clone(&self.prompts));
        let served = Arc::clone(&pending.serving.model);
        let now_unix_s = pending.run.record().meta().created_unix_s;
        let options = pending.parse_options();
        let restore = move || {
            let encoder = PromptEncoder::new(&served.handle, now_unix_s);
            let restored = records.iter().cloned();
            restored
                .map(|record| encoder.restore(record, options))
                .collect()
        };
        if pending.body_bytes <= pending.handles.limits.now().inline_prompt_bytes_max {
            return restore();
        }
        tokio::task::spawn_blocking(restore)
            .await
            .unwrap_or_else(|_| Err(lost_error()))
    }

    fn drive(self, readers: Vec<LogReaders>) {
        let limits = self.pending.handles.limits.now();
        let (streams, patience) = (limits.streams, limits.clocks.reader_patience());
        let driver = DetachedDriver::new(self.pending.run, readers);
        tokio::spawn(driver.run_stream(streams, patience));
    }
}

/// Makes the tokens of a stream readable. Choices without a recorded end get `end`.
pub(crate) async fn settle_stream(
    handles: &GenerationHandles,
    serving: &Arc<ReadyModel>,
    stream: StreamRecovery,
    end: End,
) {
    let ended_at = if has_ended(&stream) {
        let ended_unix_us = recovered_state::ended_unix_us(&stream.records);
        let source = stream.run.record().source();
        source.ended_time().record(ended_unix_us);
        WallTime::now().past_instant(ended_unix_us)
    } else {
        wire::clock::now()
    };
    let Ok(continuation) =
        Continuation::new(handles, serving, stream, Attempt::Normal { number: 1 })
    else {
        // Only streams with prompts can be readable.
        return;
    };
    match try_settle(&continuation, end, ended_at).await {
        Ok(()) => continuation.into_run().finish_recovered(ended_at),
        Err(error) => {
            tracing::error!(code = error.code, "a recovered stream cannot be read");
            continuation.into_run().reject_recovered(error);
        }
    }
}

async fn try_settle(
    continuation: &Continuation,
    end: End,
    ended_at: Instant,
) -> Result<(), ApiError> {
    let (pending, recovered) = (continuation.pending(), &continuation.records);
    let mut resumed = continuation.resumed();
    resumed.paused = false;
    resumed.ended = Some(ended_at);
    let is_damaged = matches!(recovered.integrity, Integrity::Lost(_));
    for choice in &mut resumed.choices {
        choice.end = choice.end.filter(|_| !is_damaged).or(Some(end));
    }
    let broke = recovered.broke.map(|choice| choice as usize);
    let broke = broke.and_then(|choice| resumed.choices.get(choice)?.end);
    let prompts = continuation.restore_prompts().await?;
    let constraints = OutputConstraints::default();
    let submission = pending.submission(&constraints);
    let streams = &*pending.handles.streams;
    pending_generation::restore_ended(&submission, (&prompts, resumed), (streams, &pending.run))?;
    if let Some(broke) = broke {
        pending.run.record().record_failure(broke);
    }
    Ok(())
}

fn has_ended(stream: &StreamRecovery) -> bool {
    let ended = stream.records.choices.iter();
    let ended = ended.filter(|choice| choice.end.is_some()).count();
    ended == stream.run.record().meta().choices
}

/// Waits until a choice has a token that was not recovered, or the stream has ended or computes nothing.
pub(crate) async fn wait_for_news(record: &StreamRecord) {
    let Some(started) = record.started() else {
        return;
    };
    let mut changes = record.transitions().follow_changes();
    let attach = |log: &generate::stream_source::ChoiceLog| log.tokens.attach(log.tokens.len());
    let open = started
        .choices
        .iter()
        .filter(|log| log.tokens.end().is_none());
    let mut readers: Vec<_> = open.filter_map(|log| attach(log).ok()).collect();
    if readers.is_empty() {
        return;
    }
    poll_fn(|cx| {
        if readers.iter_mut().any(|reader| has_news(reader, cx)) {
            return Poll::Ready(());
        }
        loop {
            match changes.poll_next_unpin(cx) {
                Poll::Ready(Some(change)) if !computes(change) => return Poll::Ready(()),
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
}

fn has_news(reader: &mut Reader<Token>, cx: &mut Context<'_>) -> bool {
    let mut token = [NO_TOKEN];
    match reader.poll_read(cx, &mut token) {
        Poll::Ready(Read::Items(_) | Read::Ended(_)) => true,
        Poll::Ready(Read::Empty) | Poll::Pending => false,
    }
}

/// Whether the engine may work for a stream after this change.
fn computes(change: Change) -> bool {
    match change {
        Change::Opened
        | Change::Recovered
        | Change::Claimed
        | Change::Moved
        | Change::Started
        | Change::Resumed => true,
        Change::Backpressure
        | Change::SlowConsumer
        | Change::Parked { .. }
        | Change::Ended { .. } => false,
    }
}

/// Deaths in a row after which a stream runs alone.
const DEATHS_ALONE: u32 = 1;
/// Deaths in a row after which a stream does not run again.
const DEATHS_MAX: u32 = 2;

/// The last submission of a stream, as the journal has recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastSubmission {
    /// Whether the stream was submitted in any process. The process that opened a stream records nothing before.
    pub(crate) is_submitted: bool,
    /// Whether a client had paused the stream, so that no step contained it.
    pub(crate) is_paused: bool,
    /// The last claim.
    pub(crate) claim: Option<LastClaim>,
    /// Tokens of all choices.
    pub(crate) tokens: u64,
}

/// The parts of a recorded claim that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastClaim {
    /// Number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// Tokens of all choices at the claim.
    pub(crate) tokens: u64,
}

/// How a recovered stream is submitted. The number of the attempt is one more than the deaths in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Together with other streams.
    Normal { number: u32 },
    /// While no other recovered stream is submitted.
    Alone { number: u32 },
    /// The stream ends.
    Fail,
}

impl Attempt {
    /// Number of the attempt, for the record of the claim.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Normal { number } | Self::Alone { number } => number,
            Self::Fail => DEATHS_MAX + 1,
        }
    }
}

/// The attempt of this process. `is_sealed`: the last process shut down in order.
pub(crate) fn attempt_of(last: LastSubmission, is_sealed: bool) -> Attempt {
    let deaths = consecutive_deaths(last, is_sealed);
    let number = deaths + 1;
    match deaths {
        _ if last.is_paused => Attempt::Normal { number },
        DEATHS_MAX.. => Attempt::Fail,
        DEATHS_ALONE.. => Attempt::Alone { number },
        _ => Attempt::Normal { number },
    }
}

fn consecutive_deaths(last: LastSubmission, is_sealed: bool) -> u32 {
    let (before, tokens_then) = match last.claim {
        Some(claim) => (claim.attempt.saturating_sub(1), claim.tokens),
        // The process that opened the stream makes no claim.
        None => (0, 0),
    };
    let was_in_work = last.is_submitted || last.claim.is_some();
    if last.tokens > tokens_then || !was_in_work {
        return 0;
    }
    let deaths = before.saturating_add(u32::from(!is_sealed && !last.is_paused));
    deaths.min(DEATHS_MAX)
}

/// The properties of a stream that decide when the stream is submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Whether a client waits for the stream's next token.
    pub(crate) has_reader: bool,
    pub(crate) class: Priority,
    /// Tokens to be computed before the next token: of the prompts and of the unfinished answers.
    pub(crate) tokens_to_compute: usize,
    pub(crate) attempt: Attempt,
    /// Place in the order of opening.
    pub(crate) place: usize,
}

/// Index of the next stream: those that run alone come last; then readers count, the class, and the work.
pub(crate) fn next_candidate(candidates: impl IntoIterator<Item = Candidate>) -> Option<usize> {
    let ranked = candidates.into_iter().enumerate();
    let first = ranked.min_by_key(|(_, candidate)| {
        (
            matches!(candidate.attempt, Attempt::Alone { .. }),
            !candidate.has_reader,
            candidate.class.index(),
            candidate.tokens_to_compute,
            candidate.place,
        )
    });
    first.map(|(index, _)| index)
}

#[cfg(test)]
mod continuation_order_tests {
    use super::*;

    #[test]
    fn readers_precede_classes_and_classes_precede_work() {
        let stream = |has_reader, class, tokens_to_compute, place| Candidate {
            has_reader,
            class,
            tokens_to_compute,
            attempt: Attempt::Normal { number: 1 },
            place,
        };
        let mut left = vec![
            stream(false, Priority::Normal, 10, 0),
            stream(false, Priority::Background, 1, 1),
            Candidate {
                attempt: Attempt::Alone { number: 3 },
                ..stream(true, Priority::Critical, 1, 2)
            },
            stream(false, Priority::Critical, 900, 3),
            stream(true, Priority::Background, 500, 4),
            stream(true, Priority::Normal, 700, 5),
            stream(false, Priority::Normal, 9, 6),
            stream(false, Priority::Normal, 10, 7),
        ];
        let mut order = Vec::new();
        while let Some(next) = next_candidate(left.iter().copied()) {
            order.push(left.remove(next).place);
        }
        assert_eq!(order, [5, 4, 3, 6, 0, 7, 1, 2]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_kill_the_process_run_alone_and_then_fail() {
        let normal = |number| Attempt::Normal { number };
        let alone = |number| Attempt::Alone { number };
        let never = LastSubmission {
            is_submitted: false,
            is_paused: false,
            claim: None,
            tokens: 0,
        };
        let submitted = LastSubmission {
            is_submitted: true,
            ..never
        };
        let claimed = |attempt, tokens_then, tokens| LastSubmission {
            claim: Some(LastClaim {
                attempt,
                tokens: tokens_then,
            }),
            tokens,
            ..submitted
        };
        let queued = |attempt| LastSubmission {
            claim: Some(LastClaim { attempt, tokens: 0 }),
            ..never
        };
        let paused = |last| LastSubmission {
            is_paused: true,
            ..last
        };
        let with_tokens = LastSubmission {
            tokens: 7,
            ..submitted
        };
        let rows = [
            ("queued", never, false, normal(1)),
            ("first process, no token", submitted, false, alone(2)),
            ("first process, shut down", submitted, true, normal(1)),
            ("first process, tokens", with_tokens, false, normal(1)),
            ("no new token", claimed(1, 7, 7), false, alone(2)),
            (
                "no new token, twice",
                claimed(2, 7, 7),
                false,
                Attempt::Fail,
            ),
            ("queued, in work", queued(1), false, alone(2)),
            ("queued, in work twice", queued(2), false, Attempt::Fail),
            ("queued, shut down", queued(1), true, normal(1)),
            ("far beyond", claimed(u32::MAX, 7, 7), false, Attempt::Fail),
            ("new tokens", claimed(3, 7, 8), false, normal(1)),
            ("new tokens, shut down", claimed(3, 7, 8), true, normal(1)),
            ("shut down", claimed(1, 7, 7), true, normal(1)),
            ("shut down while alone", claimed(2, 7, 7), true, alone(2)),
            ("paused", paused(claimed(2, 7, 7)), false, normal(2)),
            ("paused at once", paused(submitted), false, normal(1)),
            ("attempt 0", claimed(0, 7, 7), false, alone(2)),
        ];
        for (case, last, is_sealed, attempt) in rows {
            assert_eq!(attempt_of(last, is_sealed), attempt, "{case}");
        }
    }

    #[test]
    fn stream_that_advances_survives_any_number_of_deaths() {
        let mut claim = None;
        for tokens in 1..100 {
            let last = LastSubmission {
                is_submitted: true,
                is_paused: false,
                claim,
                tokens,
            };
            let attempt = attempt_of(last, false).number();
            assert_eq!(attempt, 1);
            claim = Some(LastClaim { attempt, tokens });
        }
    }

    #[test]
    fn stream_that_never_advances_fails_after_two_deaths() {
        let mut claim = None;
        let mut attempts = Vec::new();
        for _ in 0..2 {
            let last = LastSubmission {
                is_submitted: true,
                is_paused: false,
                claim,
                tokens: 5 * u64::from(claim.is_some()),
            };
            let attempt = attempt_of(last, false);
            attempts.push(attempt);
            claim = Some(LastClaim {
                attempt: attempt.number(),
                tokens: 5,
            });
        }
        let expected = [Attempt::Alone { number: 2 }, Attempt::Fail];
        assert_eq!(attempts, expected);
    }
}
