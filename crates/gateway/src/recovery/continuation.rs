//! The continuation of one recovered stream from the recorded tokens: without a queue, a tokenizer or a template.
//!
//! Streams without further tokens, because they had ended or cannot be continued, become readable again in every wire
//! protocol, with the recorded ends.

use super::attempt::Attempt;
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
            described: None,
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
    let mut changes = record.transitions.follow_changes();
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
