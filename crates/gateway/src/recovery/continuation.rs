//! The submission of one recovered stream: without a queue, a tokenizer or a template, from the recorded tokens.

use super::attempt::Attempt;
use super::first_news::wait_for_news;
use super::recorded_choices;
use super::restored_stream::RestoredStream;
use super::stream_plan::lost_error;
use super::wall_time::WallTime;
use crate::admission::{AdmissionRequest, Permit};
use crate::durability::{ControlState, RecordedPrompts};
use crate::handles::GenerationHandles;
use crate::launch;
use crate::metrics::{MeteredProtocol, MeteredRequest};
use crate::models::ReadyModel;
use crate::pending_generation::{PendingGeneration, claim_recovered, requested_choices};
use crate::streams::{DetachedDriver, StreamRun};
use generate::error::{ApiError, ErrorKind};
use generate::output::choice_reader::LogReaders;
use generate::prompt::{PreparedPrompt, PromptEncoder};
use generate::prompt_record::PromptRecord;
use generate::request::GenerateRequest;
use generate::submit::ResumedGeneration;
use journal::RecoveredStream;
use std::sync::Arc;
use std::time::Duration;

/// Pause before a stream is submitted again for which the engine or the token pools had no room.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A stream with prepared prompts and a ready model.
pub(crate) struct Continuation {
    pending: PendingGeneration,
    prompts: Arc<[PromptRecord]>,
    recovered: Arc<RecoveredStream>,
    control: ControlState,
}

impl Continuation {
    /// A continuation of a stream with prepared prompts; `Err` for a stream that waited for a permit.
    pub(crate) fn new(
        handles: &GenerationHandles,
        serving: &Arc<ReadyModel>,
        stream: RestoredStream,
        attempt: Attempt,
    ) -> Result<Self, Box<PendingGeneration>> {
        let RestoredStream {
            run,
            mut description,
            recovered,
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
                prompts: requested,
                n: description.n,
                params: description.params.clone(),
                stream_options: description.stream_options.clone(),
            },
            program: None,
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
            recovered,
            control,
        })
    }

    pub(crate) fn pending(&self) -> &PendingGeneration {
        &self.pending
    }

    pub(crate) fn recovered(&self) -> &RecoveredStream {
        &self.recovered
    }

    pub(crate) fn into_run(self) -> StreamRun {
        self.pending.run
    }

    /// Submits the stream and waits for a new token; the driver runs the stream from then on.
    pub(crate) async fn submit(mut self, attempt: Attempt) {
        let record = Arc::clone(self.pending.run.record());
        let tokens = recorded_choices::token_count(&self.recovered.choices);
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
                self.pending.run.reject_stream(&error);
            }
        }
    }

    async fn try_submit(&mut self) -> Result<Vec<LogReaders>, ApiError> {
        let prompts = self.restore_prompts().await?;
        let constraints = self.pending.output_constraints(&prompts).await?;
        let permit = self.readmit(&prompts)?;
        let (resumed, reporter) = (self.resumed(), permit.latency_reporter());
        let (run, streams) = (&self.pending.run, &*self.pending.handles.streams);
        let (started, readers) = launch::resume_stream(
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
            record.pause(self.recovered.is_paused);
        }
        Ok(readers)
    }

    fn readmit(&self, prompts: &[PreparedPrompt]) -> Result<Permit, ApiError> {
        let (pending, limits) = (&self.pending, self.pending.handles.limits.now());
        let sizing = pending.serving.resource_estimator(&limits);
        let lengths = prompts.iter().map(|prompt| prompt.ids.len());
        let mut need = sizing.exact_estimate(lengths, requested_choices(&pending.ask))?;
        let answered = recorded_choices::token_count(&self.recovered.choices);
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
        let (recovered, meta) = (&self.recovered, self.pending.run.record().meta());
        let wall = WallTime::now();
        ResumedGeneration {
            choices: recorded_choices::resumed_choices(&recovered.choices, meta),
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
    pub(crate) async fn restore_prompts(&self) -> Result<Vec<PreparedPrompt>, ApiError> {
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
