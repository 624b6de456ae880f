//! From a ticket to a running generation: wait, prepare, update the estimate, launch.

use crate::described_images::ImageDescriber;
use crate::generation::Generation;
use crate::handles::GenerationHandles;
use crate::media::ImageShare;
use crate::metrics::MeteredRequest;
use crate::models::ReadyModel;
use crate::records::{RecordedPrompts, StreamDescription};
use crate::requested_images::RequestedImages;
use crate::streams::{
    self, CancelOnDrop, Claim, DetachedDriver, DurableStream, PermitHolder, Started, StreamRecord,
    StreamRegistry, StreamRun, Subscriber,
};
use crate::workflows;
use admission::{AdmissionRequest, Permit, Priority, QueuePosition, RequestedChoices, Ticket};
use engine::{Policy, Progress, SequencePermits, Terms};
use futures_util::future::Either;
use futures_util::{FutureExt, TryFutureExt};
use generate::constraint::compiler::{ConstraintOptions, OutputConstraints};
use generate::error::ApiError;
use generate::images::{DescriptionUsage, put_descriptions};
use generate::output::choice_reader::LogReaders;
use generate::output::parser_config::ParseOptions;
use generate::prompt::{PreparedPrompt, PromptEncoder};
use generate::prompt_limit::PromptTruncation;
use generate::request::GenerateRequest;
use generate::submit::{ResumedGeneration, Submission, SubmissionHost};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;
use stream::Owner;
use tokio::task::JoinSet;
use wire::clock;

/// A parsed request before the start. The value owns all parts of the request, so that the request can wait inside
/// a response body, or without a client.
pub(crate) struct PendingGeneration {
    pub(crate) handles: GenerationHandles,
    pub(crate) serving: Arc<ReadyModel>,
    pub(crate) ask: GenerateRequest,
    /// A workflow run in place of a generation.
    pub(crate) program: Option<workflows::Program>,
    /// Images of the prompts.
    pub(crate) images: Option<RequestedImages>,
    /// Work of the model that has described images of the prompts.
    pub(crate) described: Option<Box<DescriptionUsage>>,
    /// The description of a recorded stream, without prompts.
    pub(crate) description: Option<StreamDescription>,
    /// The model's context length when the stream was opened.
    pub(crate) context_max: usize,
    /// Length of the request's body, which bounds the work of preparing prompts.
    pub(crate) body_bytes: usize,
    pub(crate) run: StreamRun,
    pub(crate) deadline: Option<Instant>,
    pub(crate) class: Priority,
    pub(crate) measured: MeteredRequest,
    /// Number of the attempt of a recovered stream without prepared prompts; `None` in the process that opened it.
    pub(crate) attempt: Option<u32>,
}

/// How a pending generation gets its permit.
pub(crate) enum Entrance {
    /// With a place in the queue.
    Queued(Ticket),
    /// With a request that is made when another model has described the images.
    AfterImages(Box<AdmissionRequest>),
}

impl Entrance {
    /// The place in the queue; `None`: the request has a permit, or no place yet.
    pub(crate) fn queue_position(&self) -> Option<QueuePosition> {
        match self {
            Self::Queued(ticket) => ticket.queue_position(),
            Self::AfterImages(_) => None,
        }
    }
}

/// Reason of a claim: the stream is continued after a restart.
const CLAIM_RESTART: u32 = 1;

impl PendingGeneration {
    /// Waits for the permit and starts the generation for the stream's client; dropping the future ends the wait. To be
    /// called inside a runtime.
    ///
    /// The start does not depend on polls of the future: where a client does not read, nothing polls it, and a permit that
    /// is granted then would hold its slot without any work. A stream that may continue without the
    /// client is also run by that task.
    pub(crate) fn run_for_client(
        self,
        entrance: Entrance,
    ) -> impl Future<Output = Result<Generation, ApiError>> + Send + use<> {
        let (metrics, opened) = (Arc::clone(&self.handles.metrics), self.measured);
        let record = Arc::clone(self.run.record());
        let reader = if record.terms().resumable || record.terms().detachable {
            let cancel_on_drop = (!record.terms().resumable).then(|| CancelOnDrop::new(&record));
            let reader = self.run_in_task(entrance);
            Either::Left(reader.map_ok(|generation| match cancel_on_drop {
                Some(guard) => generation.with_cancel_on_drop(guard),
                None => generation,
            }))
        } else {
            Either::Right(self.begin_in_task(entrance))
        };
        reader.map_ok(move |generation| generation.with_metrics(&metrics, opened))
    }

    /// Starts the generation at once where nothing is to be waited for, else in a task that ends with the future; the future
    /// is the only reader's.
    fn begin_in_task(
        self,
        entrance: Entrance,
    ) -> impl Future<Output = Result<Generation, ApiError>> + Send + use<> {
        // In a box, so that a task that has ended keeps no memory for the request.
        let mut start = Box::pin(self.wait_and_begin(entrance));
        let begun = match start.as_mut().now_or_never() {
            Some(begun) => Either::Left(std::future::ready(begun)),
            None => {
                // The drop of the set aborts the task, and a stream that was started ends with the task's result.
                let mut task = JoinSet::new();
                task.spawn(start);
                Either::Right(async move {
                    let begun = task.join_next().await.and_then(Result::ok);
                    begun.unwrap_or_else(|| Err(unprepared_error()))
                })
            }
        };
        async move {
            let (run, readers) = begun.await?;
            Generation::for_client(run, readers).ok_or_else(unprepared_error)
        }
    }

    /// Starts and runs the generation in a task, with or without a client; the future is the first reader's. To be
    /// called inside a runtime.
    pub(crate) fn run_in_task(
        self,
        entrance: Entrance,
    ) -> impl Future<Output = Result<Generation, ApiError>> + Send + use<> {
        let record = Arc::clone(self.run.record());
        let limits = self.handles.limits.now();
        let (limits, patience) = (limits.streams, limits.clocks.reader_patience());
        let subscriber = Subscriber::opening(&record);
        tokio::spawn(async move {
            if let Ok((run, readers)) = self.wait_and_begin(entrance).await {
                DetachedDriver::new(run, readers)
                    .run_stream(limits, patience)
                    .await;
            }
        });
        async move {
            if let Err(error) = record.wait_for_start().await {
                // The client gets the error.
                record.note_end_read();
                return Err(error);
            }
            Generation::attach(subscriber, None).ok_or_else(unprepared_error)
        }
    }

    /// Waits for the permit and launches. A panic on the way is this request's failure alone.
    async fn wait_and_begin(
        mut self,
        entrance: Entrance,
    ) -> Result<(StreamRun, Vec<LogReaders>), ApiError> {
        let record = Arc::clone(self.run.record());
        let began = tokio::select! {
            // A stream that is canceled while waiting must not be started first and canceled afterwards: the engine
            // may have ended the stream by then.
            biased;
            () = record.cancelled_waiting() => Err(streams::cancelled_error()),
            began = AssertUnwindSafe(self.begin_generation(entrance)).catch_unwind() => {
                began.unwrap_or_else(|_| Err(unprepared_error()))
            }
        };
        match began {
            Ok(readers) => Ok((self.run, readers)),
            Err(error) => {
                self.run.reject_stream(&error);
                Err(error)
            }
        }
    }

    async fn begin_generation(&mut self, entrance: Entrance) -> Result<Vec<LogReaders>, ApiError> {
        let permit = self.enter(entrance).await?;
        if let Some(attempt) = self.attempt {
            claim_recovered(self.run.record(), attempt, 0).await;
        }
        if let Some(program) = self.program.take() {
            return self.begin_program(program, permit).await;
        }
        self.recover_images().await?;
        self.describe_images().await?;
        let mut prompts = self.prepare_prompts().await?;
        if let Some(first) = prompts.first_mut() {
            first.described = self.described.take();
        }
        let constraints = self.output_constraints(&prompts).await?;
        let lengths = || prompts.iter().map(|prompt| prompt.ids.len());
        let prompt_tokens: usize = lengths().sum();
        self.handles.metrics.prompt_tokenized(prompt_tokens);
        self.run
            .key()
            .charge_prompt(prompt_tokens as u64, clock::now())?;
        let sizing = self.serving.resource_estimator(&self.handles.limits.now());
        let need = sizing.exact_estimate(lengths(), requested_choices(&self.ask))?;
        let permit = permit.update_estimate(need).await?;
        let pixels = self.attach_images(&mut prompts).await?;
        self.record_prompts(&prompts);
        let reporter = permit.latency_reporter();
        let stream = (&*self.handles.streams, self.run.record());
        let submission = self.submission(&constraints);
        let (started, readers) = start_stream(&submission, prompts, (permit, pixels), stream)?;
        self.run.start_stream(started, reporter);
        tracing::debug!(
            choices = readers.len(),
            stream = self.ask.stream_options.stream,
            "submitted"
        );
        Ok(readers)
    }

    /// Waits for the permit.
    async fn enter(&mut self, entrance: Entrance) -> Result<Permit, ApiError> {
        let (asked, ticket) = match entrance {
            Entrance::Queued(ticket) => (clock::now(), ticket),
            Entrance::AfterImages(request) => {
                self.describe_images().await?;
                let asked = clock::now();
                (asked, self.serving.admission.request_permit(*request)?)
            }
        };
        let permit = ticket.await?;
        self.handles.metrics.record_admission(clock::now() - asked);
        Ok(permit)
    }

    /// Has another model describe the images of a model that sees none. The descriptions take their places in the prompts.
    async fn describe_images(&mut self) -> Result<(), ApiError> {
        let images = self.images.as_ref().and_then(RequestedImages::to_describe);
        let Some((parts, proxy)) = images else {
            return Ok(());
        };
        let record = self.run.record();
        record.expect_images(parts.len());
        let terms = self.engine_terms();
        let describer = ImageDescriber {
            handles: &self.handles,
            proxy,
            serving: &self.serving,
            record,
            key: self.run.key(),
            class: self.class,
            salt: terms.salt,
            deadline: self.deadline,
        };
        // In a box: the tasks of all streams are as large as their largest future.
        let described = Box::pin(describer.describe(parts, &self.ask.prompts)).await?;
        self.body_bytes += described.texts.iter().map(String::len).sum::<usize>();
        put_descriptions(&mut self.ask.prompts, &described.texts);
        self.described = Some(Box::new(described.usage));
        self.images = None;
        Ok(())
    }

    /// Reads the images of a recovered stream from the journal.
    async fn recover_images(&mut self) -> Result<(), ApiError> {
        let description = self.description.as_ref();
        let records = description.map_or(&[][..], |description| &description.images);
        // What was described is text by now.
        let is_missing = self.images.is_none() && self.described.is_none();
        if is_missing && !records.is_empty() {
            let record = self.run.record();
            let blobs = record.durable().map_or(&[][..], |durable| durable.blobs());
            let place = (&*self.serving.model, &self.handles);
            let images = Box::pin(RequestedImages::recover(records, blobs, place));
            self.images = Some(images.await?);
        }
        Ok(())
    }

    /// Gives the prompts their images. Returns the share of memory.
    pub(crate) async fn attach_images(
        &mut self,
        prompts: &mut [PreparedPrompt],
    ) -> Result<Option<ImageShare>, ApiError> {
        if prompts.iter().all(|prompt| prompt.image_runs.is_empty()) {
            // Also where descriptions have taken the places of images.
            self.images = None;
            return Ok(None);
        }
        self.recover_images().await?;
        let place = (&*self.serving.model, &self.handles);
        Ok(match self.images.take() {
            Some(images) => Some(Box::pin(images.attach(prompts, place)).await?),
            None => None,
        })
    }

    /// The submission of the request, with these constraints.
    pub(crate) fn submission<'a>(&'a self, constraints: &'a OutputConstraints) -> Submission<'a> {
        let (handles, ask) = (&self.handles, &self.ask);
        Submission {
            model: &self.serving.model.handle,
            params: &ask.params,
            constraints,
            n: ask.n,
            context_max: self.context_max,
            seed: ask.params.seed.unwrap_or_else(|| handles.ids.next_seed()),
            deadline: self.deadline,
            terms: self.engine_terms(),
            credit_window: self.run.record().terms().credit_window,
            reports_prompt: ask.stream_options.return_context
                || ask.stream_options.return_token_ids,
            retry_after: handles.limits.now().retry_after,
        }
    }

    /// Records the prompts of a durable stream before the engine has them. Prompts that are too long make the stream not
    /// durable.
    fn record_prompts(&mut self, prompts: &[PreparedPrompt]) {
        let record = Arc::clone(self.run.record());
        let Some((durable, mut description)) = record.durable().zip(self.description.take()) else {
            return;
        };
        let prompts: Vec<_> = prompts.iter().map(PreparedPrompt::to_record).collect();
        let body = StreamDescription::encode_prepared(&prompts);
        description.prompts = RecordedPrompts::Prepared(prompts);
        match body.and_then(|body| Ok((body, description.encode()?))) {
            Ok((body, description)) => durable.record_prompts(body, description),
            Err(_) => durable.give_up(),
        }
    }

    /// A program makes requests while running. Short inputs are checked on this thread, long inputs are
    /// offloaded.
    async fn begin_program(
        &mut self,
        program: workflows::Program,
        permit: Permit,
    ) -> Result<Vec<LogReaders>, ApiError> {
        let opening = self.run.record().terms();
        let limits = self.handles.limits.now();
        let launch = workflows::RunLauncher {
            served: &self.serving.model,
            streams: &self.handles.streams,
            deadline: self.deadline,
            terms: self.engine_terms(),
            credit_window: opening.credit_window,
            owner: opening.owner,
            retry_after: limits.retry_after,
            inline_bytes_max: limits.inline_prompt_bytes_max,
        };
        let (tokens_max, served) = (program.tokens_max, Arc::clone(&self.serving.model));
        let plan = launch.run_plan(tokens_max);
        let run = if self.body_bytes <= limits.inline_prompt_bytes_max {
            program.prepare_run(&served, plan)
        } else {
            tokio::task::spawn_blocking(move || program.prepare_run(&served, plan))
                .await
                .unwrap_or_else(|_| Err(unprepared_error()))
        };
        launch.start_run(run?, tokens_max, permit, &mut self.run)
    }

    /// The detached driver decides about a resumable stream without a client; a stream with explicit acknowledgements
    /// has the reader timeout in both cases.
    fn engine_terms(&self) -> Terms {
        let limits = self.handles.limits.now();
        let (clocks, sharing) = (limits.clocks, limits.prefix_sharing);
        let opening = self.run.record().terms();
        let salt = self
            .run
            .record()
            .meta()
            .stream_options
            .cache_salt
            .as_deref();
        Terms {
            priority: self.class.into(),
            account: self.run.key().account(),
            clocks: clocks.of_engine(),
            salt: self.run.key().cache_salt(sharing, salt),
            policy: match (opening.resumable, opening.detachable, clocks.policy) {
                // The detached driver revokes a silent reader's credit, with explicit acknowledgements and without.
                (true, ..) => Policy::Keep,
                (_, true, _) => Policy::Detach,
                // A non-streaming response has no slow reader: the response is collected as fast as generated. Or the
                // policy was another one at the opening.
                (.., Policy::Detach) => Policy::Keep,
                (.., policy) => policy,
            },
            since: Some(self.measured.arrived),
        }
    }

    /// Short prompts are prepared on this thread, long prompts are offloaded. The permit bounds the number of
    /// offloaded ones.
    async fn prepare_prompts(&mut self) -> Result<Vec<PreparedPrompt>, ApiError> {
        let (prompts, echo) = (
            std::mem::take(&mut self.ask.prompts),
            // The prompt's tokens are emitted as tokens of the answer when their log-probabilities are requested.
            self.ask.stream_options.echo && !self.ask.params.prompt_logprobs,
        );
        let served = Arc::clone(&self.serving.model);
        served.expect_text()?;
        let wanted = self.parse_options();
        let truncation = PromptTruncation::of(&self.ask.params);
        // The date that a template may show is the same after a restart.
        let now_unix_s = self.run.record().meta().created_unix_s;
        let images = self.images.as_ref().and_then(RequestedImages::measured);
        let images = images.cloned();
        let prepare = move || {
            let images = images.unwrap_or_default();
            let encoder = PromptEncoder::new(&served.handle, now_unix_s)
                .truncating(truncation)
                .with_images(&images);
            encoder.prepare(prompts, echo, wanted)
        };
        if self.body_bytes <= self.handles.limits.now().inline_prompt_bytes_max {
            return prepare();
        }
        tokio::task::spawn_blocking(prepare)
            .await
            .unwrap_or_else(|_| Err(unprepared_error()))
    }

    /// How the answer is parsed.
    pub(crate) fn parse_options(&self) -> ParseOptions {
        ParseOptions {
            tool_calling: self.ask.params.tool_calling,
            structured_output: self.ask.params.response_format.is_some(),
        }
    }

    /// Cached constraints at once; others are compiled on a thread that may block.
    pub(crate) async fn output_constraints(
        &self,
        prompts: &[PreparedPrompt],
    ) -> Result<OutputConstraints, ApiError> {
        let closed_objects = self.handles.limits.now().closed_objects;
        let options = ConstraintOptions::new(&self.ask.params, prompts, closed_objects);
        if let Some(cached) = self.serving.constraints.find_cached(&options) {
            return Ok(cached);
        }
        let compiler = Arc::clone(&self.serving.constraints);
        tokio::task::spawn_blocking(move || compiler.compile(&options))
            .await
            .unwrap_or_else(|_| Err(unprepared_error()))
    }
}

/// Records that this process works for a recovered stream, before it does.
pub(crate) async fn claim_recovered(record: &StreamRecord, attempt: u32, tokens: u64) {
    let Some(durable) = record.durable() else {
        return;
    };
    durable.claim(Claim {
        generation: record.recoveries,
        instance: 0,
        attempt,
        why: CLAIM_RESTART,
        tokens,
    });
    durable.written().await;
}

/// The choices that a request generates.
pub(crate) fn requested_choices(ask: &GenerateRequest) -> RequestedChoices {
    RequestedChoices {
        n: ask.n,
        max_tokens: ask.params.max_tokens,
    }
}

fn unprepared_error() -> ApiError {
    ApiError::ours("internal_error", "the prompt could not be prepared")
}

/// The stream of a submission: splits the permit among requests, and removes ended streams when segments are short.
struct StreamHost<'a> {
    record: Arc<StreamRecord>,
    streams: &'a StreamRegistry,
    work: Arc<PermitHolder>,
    /// When the engine's timestamps begin.
    epoch: Instant,
    owner: Owner,
}

impl<'a> StreamHost<'a> {
    fn new(
        submission: &Submission<'_>,
        (permit, images): (Permit, Option<ImageShare>),
        streams: &'a StreamRegistry,
        record: &Arc<StreamRecord>,
    ) -> Self {
        let undelivered = &streams.undelivered;
        Self {
            record: Arc::clone(record),
            streams,
            work: Arc::new(PermitHolder::new(permit, record, undelivered).with_images(images)),
            epoch: submission.model.engine.epoch(),
            owner: record.terms().owner,
        }
    }
}

impl SubmissionHost for StreamHost<'_> {
    fn progress(&self, prompt: usize) -> Progress {
        Progress::followed(self.record.transitions.engine_follower(prompt))
    }

    fn permits(&self, progress: &Arc<Progress>) -> Option<Box<dyn SequencePermits>> {
        Some(self.work.sequence_permit(progress, self.epoch))
    }

    fn recorder(&self) -> Option<Waker> {
        self.record.durable().map(DurableStream::waker)
    }

    fn free_segments(&self) -> bool {
        self.streams.free_segments(self.owner)
    }

    fn set_requests(&self, count: usize) {
        self.record.transitions.set_requests(count);
    }
}

/// Submits all prompts of a stream, or none, for [`StreamRun::start_stream`]. The share of pixels is kept with the permit.
/// Returns the first readers of the logs, too.
///
/// # Errors
/// The token pools or the engine have no room.
pub(crate) fn start_stream(
    submission: &Submission<'_>,
    prompts: Vec<PreparedPrompt>,
    permit: (Permit, Option<ImageShare>),
    (streams, record): (&StreamRegistry, &Arc<StreamRecord>),
) -> Result<(Started, Vec<LogReaders>), ApiError> {
    let host = StreamHost::new(submission, permit, streams, record);
    let (generation, readers) = submission.start(prompts, &host)?;
    Ok((Started::of_generation(generation), readers))
}

/// Submits the rest of a stream of an earlier process, for [`StreamRun::start_stream`]. Returns the first readers of the
/// logs, too.
///
/// # Errors
/// As for [`start_stream`].
pub(crate) fn resume_stream(
    submission: &Submission<'_>,
    (prompts, resumed): (&[PreparedPrompt], ResumedGeneration),
    permit: (Permit, Option<ImageShare>),
    (streams, record): (&StreamRegistry, &Arc<StreamRecord>),
) -> Result<(Started, Vec<LogReaders>), ApiError> {
    let host = StreamHost::new(submission, permit, streams, record);
    let (generation, readers) = submission.resume(prompts, resumed, &host)?;
    Ok((Started::of_generation(generation), readers))
}

/// Makes the tokens of a stream readable whose choices have all ended.
///
/// # Errors
/// The token pools have no room.
pub(crate) fn restore_ended(
    submission: &Submission<'_>,
    (prompts, resumed): (&[PreparedPrompt], ResumedGeneration),
    (streams, run): (&StreamRegistry, &StreamRun),
) -> Result<(), ApiError> {
    let host = EndedHost {
        record: run.record(),
        streams,
    };
    let (generation, _) = submission.resume(prompts, resumed, &host)?;
    run.record().set_started(Started::of_generation(generation));
    run.record().publish_written_end();
    Ok(())
}

/// The host of a stream without engine requests.
struct EndedHost<'a> {
    record: &'a Arc<StreamRecord>,
    streams: &'a StreamRegistry,
}

impl SubmissionHost for EndedHost<'_> {
    fn recorder(&self) -> Option<Waker> {
        self.record.durable().map(DurableStream::waker)
    }

    fn free_segments(&self) -> bool {
        self.streams.free_segments(self.record.terms().owner)
    }
}
