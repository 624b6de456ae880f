//! Images that another model describes, for a model that reads text only: each description is a generation of the same
//! account and priority, or a request to another server, before the prompt is prepared.
//!
//! Such a generation has no stream of its own: its tokens are read here, and its drop cancels it. So a request that is
//! canceled, or whose client leaves, takes the descriptions with it.

mod inner_generation;

use crate::handles::GenerationHandles;
use crate::keys::KeyPermit;
use crate::media::{
    DescriptionKey, DescriptionRequest, Elapsed, ImageShare, MadeDescription, OnFailure,
    VisionProxy, bounded,
};
use crate::models::{ModelLease, ReadyModel};
use crate::requested_images::SizedImages;
use crate::streams::{PermitHolder, StreamRecord, StreamRegistry};
use ::stream::{End, Owner};
use admission::{AdmissionRequest, BYTES_PER_TOKEN, Permit, Priority, RequestedChoices};
use engine::{CacheSalt, Policy, Progress, SamplingParams, SequencePermits, Terms};
use futures_util::future::{BoxFuture, try_join_all};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use futures_util::{FutureExt, TryFutureExt};
use generate::constraint::compiler::OutputConstraints;
use generate::error::{ApiError, Blame, ErrorKind};
use generate::images::{DescriptionState, DescriptionUsage, ImagePart, Vision, question_about};
use generate::output::generation_reader::GenerationReader;
use generate::output::parser_config::ParseOptions;
use generate::prompt::{PreparedPrompt, PromptEncoder};
use generate::request::{GenerationParams, Prompt};
use generate::stream_source::{StreamMeta, StreamSource};
use generate::submit::{Submission, SubmissionHost};
use inner_generation::InnerGeneration;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, UNIX_EPOCH};
use text::{Message, image_part, text_part};
use tokio::time::timeout_at;
use wire::clock;
use wire::shared::finish_reason;

/// Seed of descriptions: an image is described alike each time.
const SEED: u64 = 0;

/// Has images described for one request.
pub(crate) struct ImageDescriber<'a> {
    pub(crate) handles: &'a GenerationHandles,
    pub(crate) proxy: &'a VisionProxy,
    /// The model of the request, which stays loaded meanwhile.
    pub(crate) serving: &'a Arc<ReadyModel>,
    /// The request's stream, whose readers see the progress.
    pub(crate) record: &'a StreamRecord,
    /// The key that is charged.
    pub(crate) key: &'a KeyPermit,
    pub(crate) class: Priority,
    pub(crate) salt: CacheSalt,
    pub(crate) deadline: Option<Instant>,
}

/// The texts in place of the images of a request.
pub(crate) struct DescribedImages {
    /// By the numbers of the images.
    pub(crate) texts: Vec<String>,
    pub(crate) usage: DescriptionUsage,
}

/// An image to be described.
struct DescriptionJob {
    index: usize,
    part: ImagePart,
    digest: [u8; 32],
    prompt: String,
    key: DescriptionKey,
}

/// The text in place of one image.
struct DescribedImage {
    text: String,
    usage: DescriptionUsage,
}

/// Why an image was not described.
enum DescribeError {
    /// The request: a broken image, a limit of the key.
    Request(ApiError),
    /// The model, or the way to it.
    Model(ApiError),
    /// The deadline of the request passed.
    Deadline,
}

impl ImageDescriber<'_> {
    /// Describes the images of these prompts. Dropping the future ends the work.
    ///
    /// # Errors
    /// Too many images have no description, one is broken, a limit of the key is reached, or, unless a note is to take the
    /// place, the model failed.
    pub(crate) async fn describe(
        &self,
        parts: &[ImagePart],
        prompts: &[Prompt],
    ) -> Result<DescribedImages, ApiError> {
        let jobs = self.jobs(parts, prompts).await?;
        let images = jobs.iter().map(|job| (&job.part, job.key));
        let known = &self.handles.images.media.descriptions;
        self.proxy.expect_few(images, known)?;
        if self.proxy.server.is_some() {
            self.expect_whole(&jobs).await?;
        }
        // In boxes, so that the type of the whole does not depend on the lifetimes inside.
        let jobs = jobs.into_iter().map(|job| self.describe_image(job).boxed());
        let jobs: Vec<BoxFuture<'_, _>> = jobs.collect();
        let described: Vec<DescribedImage> = stream::iter(jobs)
            .buffered(self.proxy.concurrency.max(1))
            .try_collect()
            .await?;
        let mut usage = DescriptionUsage {
            model: self.proxy.model.clone(),
            ..DescriptionUsage::default()
        };
        for image in &described {
            usage.prompt_tokens += image.usage.prompt_tokens;
            usage.completion_tokens += image.usage.completion_tokens;
            usage.cached += image.usage.cached;
        }
        let texts = described.into_iter().map(|image| image.text);
        Ok(DescribedImages {
            texts: texts.collect(),
            usage,
        })
    }

    async fn jobs(
        &self,
        parts: &[ImagePart],
        prompts: &[Prompt],
    ) -> Result<Vec<DescriptionJob>, ApiError> {
        let files = parts.to_vec();
        let hash =
            move |_: Elapsed<'_>| Ok(files.iter().map(ImagePart::digest).collect::<Vec<_>>());
        let digests = self
            .handles
            .images
            .media
            .threads
            .run((0, u64::MAX), hash)
            .await?;
        let fingerprint = self.fingerprint().await?;
        let jobs = parts.iter().zip(&digests).enumerate();
        let jobs = jobs.map(|(index, (part, digest))| {
            let question = if self.proxy.asks() {
                question_about(prompts, index)
            } else {
                String::new()
            };
            let prompt = self.proxy.prompt_about(&question);
            let image = (part, digest);
            let key = self.proxy.key_of(&fingerprint, image, &prompt, self.salt);
            DescriptionJob {
                index,
                part: part.clone(),
                digest: *digest,
                prompt,
                key,
            }
        });
        Ok(jobs.collect())
    }

    /// Decodes the images that another server is to describe, each once: it is sent no broken ones.
    async fn expect_whole(&self, jobs: &[DescriptionJob]) -> Result<(), ApiError> {
        let (media, bounds) = (&self.handles.images.media, self.proxy.bounds);
        let is_new = |job: &&DescriptionJob| !media.prepared.was_examined(&job.digest);
        let new = jobs.iter().rev().filter(is_new);
        let new: BTreeMap<_, _> = new.map(|job| (job.digest, job.part.clone())).collect();
        let decode_bytes_max = self.handles.limits.now().decode_bytes_max;
        let checks = new.into_iter().map(|(digest, part)| {
            let room = (bounds.decode_bytes(&part), decode_bytes_max);
            let kept = Arc::clone(&media.prepared);
            let check = move |elapsed: Elapsed<'_>| {
                bounds.decode(&part, elapsed)?;
                kept.keep_examined(digest);
                Ok(())
            };
            media.threads.run(room, check)
        });
        let checked = try_join_all(checks).map_ok(drop);
        let late = |_| Err(finish_reason::end_error(End::Deadline));
        match self.deadline {
            Some(end) => timeout_at(end.into(), checked).await.unwrap_or_else(late),
            None => checked.await,
        }
    }

    /// Names the model that describes: by its files, so that it need not be loaded, or by its server.
    async fn fingerprint(&self) -> Result<[u8; 32], ApiError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.proxy.model.as_bytes()).update(&[0]);
        if let Some(server) = &self.proxy.server {
            hasher.update(server.url().as_bytes());
            return Ok(*hasher.finalize().as_bytes());
        }
        let listed = self
            .handles
            .images
            .models
            .listed_model(Some(&self.proxy.model));
        let listed = listed.await.map_err(|why| self.failure(&why))?;
        if let Some(facts) = &listed.facts {
            hasher.update(facts.digest().as_bytes());
            let modified = facts.modified.duration_since(UNIX_EPOCH);
            let modified_ns = modified.map_or(0, |since| since.as_nanos());
            hasher.update(&modified_ns.to_le_bytes());
            if let Some(tower) = &facts.tower {
                hasher.update(tower.projector.as_bytes()).update(&[0]);
                hasher.update(tower.file.as_bytes()).update(&[0]);
                hasher.update(&tower.file_bytes.to_le_bytes());
            }
        }
        Ok(*hasher.finalize().as_bytes())
    }

    async fn describe_image(&self, job: DescriptionJob) -> Result<DescribedImage, ApiError> {
        let (media, index) = (&self.handles.images.media, job.index);
        if let Some(text) = media.descriptions.find(job.key) {
            media.described.cached.fetch_add(1, Ordering::Relaxed);
            let state = DescriptionState::Described { cached: true };
            self.record.set_image(index, state);
            let usage = DescriptionUsage {
                cached: 1,
                ..DescriptionUsage::default()
            };
            let text = self.proxy.described(index, &text);
            return Ok(DescribedImage { text, usage });
        }
        match self.make(&job).await {
            Ok(made) => {
                media.described.described.fetch_add(1, Ordering::Relaxed);
                let text: Arc<str> = bounded(&made.text, made.is_cut).into();
                let entries_max = self.proxy.cache_entries;
                media
                    .descriptions
                    .keep(job.key, Arc::clone(&text), entries_max);
                let state = DescriptionState::Described { cached: false };
                self.record.set_image(index, state);
                let usage = DescriptionUsage {
                    prompt_tokens: made.prompt_tokens,
                    completion_tokens: made.completion_tokens,
                    ..DescriptionUsage::default()
                };
                let text = self.proxy.described(index, &text);
                Ok(DescribedImage { text, usage })
            }
            Err(why) => {
                media.described.failed.fetch_add(1, Ordering::Relaxed);
                self.record.set_image(index, DescriptionState::Failed);
                self.without_description(index, why)
            }
        }
    }

    /// The note in place of a description, or the error of the request.
    fn without_description(
        &self,
        index: usize,
        why: DescribeError,
    ) -> Result<DescribedImage, ApiError> {
        match why {
            DescribeError::Request(error) => Err(error),
            DescribeError::Deadline => Err(finish_reason::end_error(End::Deadline)),
            DescribeError::Model(error) => {
                tracing::warn!(
                    model = self.proxy.model,
                    code = error.code,
                    "an image was not described: {}",
                    error.message
                );
                match self.proxy.on_failure {
                    OnFailure::Error => Err(self.failure(&error)),
                    OnFailure::Note => Ok(DescribedImage {
                        text: self.proxy.note(index),
                        usage: DescriptionUsage::default(),
                    }),
                }
            }
        }
    }

    /// The error of a request whose image the model has not described. One for want of capacity can be tried again.
    fn failure(&self, why: &ApiError) -> ApiError {
        let message = format!("vision model {} failed: {}", self.proxy.model, why.message);
        match why.kind {
            ErrorKind::Unavailable => ApiError {
                message,
                ..why.clone()
            },
            _ => ApiError::new(
                ErrorKind::Upstream,
                Blame::Ours,
                "vision_model_failed",
                message,
            ),
        }
    }

    /// Has an image described within the time for that.
    async fn make(&self, job: &DescriptionJob) -> Result<MadeDescription, DescribeError> {
        let until = clock::now() + self.proxy.timeout;
        let is_deadline = self.deadline.is_some_and(|deadline| deadline < until);
        let until = self.deadline.map_or(until, |deadline| deadline.min(until));
        let too_late = || {
            if is_deadline {
                return DescribeError::Deadline;
            }
            let ms = self.proxy.timeout.as_millis();
            let why = format!("no description within {ms} ms (vision.proxy.timeout_ms)");
            DescribeError::Model(ApiError::ours("timeout", why))
        };
        let made = async {
            match &self.proxy.server {
                Some(_) => self.make_there(job).await,
                None => self.make_here(job, until).await,
            }
        };
        let made = timeout_at(until.into(), made).await;
        let made = made.unwrap_or_else(|_| Err(too_late()));
        match made {
            Err(DescribeError::Deadline) => Err(too_late()),
            Ok(made) if made.text.trim().is_empty() => {
                let why = ApiError::ours("vision_model_failed", "the description is empty");
                Err(DescribeError::Model(why))
            }
            made => made,
        }
    }

    /// Has another server describe an image. The key is charged when the counts are known.
    async fn make_there(&self, job: &DescriptionJob) -> Result<MadeDescription, DescribeError> {
        let Some(server) = &self.proxy.server else {
            return Err(DescribeError::Model(no_eyes()));
        };
        self.record
            .set_image(job.index, DescriptionState::Describing);
        let request = DescriptionRequest {
            model: &self.proxy.model,
            prompt: &job.prompt,
            part: &job.part,
            max_tokens: self.proxy.max_tokens,
            temperature: self.proxy.temperature,
            // The time for the whole is over before.
            timeout: self.proxy.timeout.saturating_mul(2),
        };
        let made = server
            .describe(&request)
            .await
            .map_err(DescribeError::Model)?;
        let tokens = made.prompt_tokens.saturating_add(made.completion_tokens);
        self.key.token_charge().charge(tokens, clock::now());
        Ok(made)
    }

    /// Has a model of this server describe an image.
    async fn make_here(
        &self,
        job: &DescriptionJob,
        until: Instant,
    ) -> Result<MadeDescription, DescribeError> {
        let lease = self.lease().await.map_err(DescribeError::Model)?;
        let serving = &lease.serving;
        let vision = serving.model.vision().cloned();
        let vision = vision.ok_or_else(|| DescribeError::Model(no_eyes()))?;
        let images = self.measure(job, vision)?;
        let permit = self.permit(serving, (job, &images), until).await?;
        self.record
            .set_image(job.index, DescriptionState::Describing);
        let mut prompts = self
            .prepare(serving, job, &images)
            .map_err(DescribeError::Model)?;
        let tokens: usize = prompts.iter().map(|prompt| prompt.ids.len()).sum();
        let charged = self.key.charge_prompt(tokens as u64, clock::now());
        charged.map_err(|over| DescribeError::Request(over.into()))?;
        let estimator = serving.resource_estimator(&self.handles.limits.now());
        let lengths = std::iter::once(tokens);
        let need = estimator.exact_estimate(lengths, self.choices());
        let need = need.map_err(|why| DescribeError::Model(why.into()))?;
        let permit = permit.update_estimate(need).await;
        let permit = permit.map_err(|why| DescribeError::Model(why.into()))?;
        // The files have their share in the request whose images these are.
        let (files, place) = (Arc::new(()), (&*serving.model, self.handles));
        let share = images.attach(&mut prompts, files, place).await;
        let share = share.map_err(DescribeError::of_image)?;
        let generation = self.start(serving, prompts, (permit, share), until);
        let generation = generation.map_err(DescribeError::Model)?;
        generation.read(tokens as u64).await
    }

    async fn lease(&self) -> Result<ModelLease, ApiError> {
        let models = &self.handles.images.models;
        models.lease_beside(&self.proxy.model, self.serving).await
    }

    fn measure(
        &self,
        job: &DescriptionJob,
        vision: Arc<Vision>,
    ) -> Result<SizedImages, DescribeError> {
        SizedImages::measure(vec![job.part.clone()], vision).map_err(DescribeError::Request)
    }

    fn choices(&self) -> RequestedChoices {
        RequestedChoices {
            n: 1,
            max_tokens: Some(self.proxy.max_tokens),
        }
    }

    async fn permit(
        &self,
        serving: &ReadyModel,
        (job, images): (&DescriptionJob, &SizedImages),
        until: Instant,
    ) -> Result<Permit, DescribeError> {
        let estimator = serving.resource_estimator(&self.handles.limits.now());
        let bytes = job.prompt.len() + images.measured().rows() * BYTES_PER_TOKEN;
        let request = AdmissionRequest {
            class: self.class,
            account: self.key.account(),
            need: estimator.estimate_bytes(bytes, 1, self.choices()),
            is_recallable: true,
            deadline: Some(until),
            who: 0,
        };
        let ticket = serving.admission.request_permit(request);
        let ticket = ticket.map_err(|why| DescribeError::Model(why.into()))?;
        ticket.await.map_err(|why| DescribeError::Model(why.into()))
    }

    /// The prompt about one image, without reasoning where the template has a switch for that.
    fn prepare(
        &self,
        serving: &ReadyModel,
        job: &DescriptionJob,
        images: &SizedImages,
    ) -> Result<Vec<PreparedPrompt>, ApiError> {
        let content = Value::Array(vec![image_part(0), text_part(&*job.prompt)]);
        let message = Message {
            role: "user".to_owned(),
            content,
            rest: Map::new(),
        };
        let mut kwargs = Map::new();
        kwargs.insert("enable_thinking".to_owned(), json!(false));
        let prompt = Prompt::Conversation {
            field: "messages",
            messages: vec![message],
            tools: Vec::new(),
            continues: false,
            kwargs,
        };
        let now_unix_s = self.record.meta().created_unix_s;
        PromptEncoder::new(&serving.model.handle, now_unix_s)
            .with_images(images.measured())
            .prepare(vec![prompt], false, ParseOptions::default())
    }

    fn start(
        &self,
        serving: &ReadyModel,
        prompts: Vec<PreparedPrompt>,
        permit: (Permit, ImageShare),
        until: Instant,
    ) -> Result<InnerGeneration, ApiError> {
        let (handles, handle) = (self.handles, &serving.model.handle);
        let limits = handles.limits.now();
        let mut params = GenerationParams {
            sampling: SamplingParams {
                temperature: self.proxy.temperature,
                ..SamplingParams::default()
            },
            max_tokens: Some(self.proxy.max_tokens),
            seed: Some(SEED),
            ..GenerationParams::default()
        };
        params.add_stops(handle.template.stops());
        let constraints = OutputConstraints::default();
        let submission = Submission {
            model: handle,
            params: &params,
            constraints: &constraints,
            n: 1,
            context_max: handle.context_max,
            seed: SEED,
            deadline: Some(until),
            terms: Terms {
                priority: self.class.into(),
                account: self.key.account(),
                clocks: limits.clocks.of_engine(),
                salt: self.salt,
                policy: Policy::Keep,
                since: None,
            },
            credit_window: 0,
            reports_prompt: false,
            retry_after: limits.retry_after,
        };
        let host = InnerHost::new(permit, self, handle.engine.epoch());
        let (generation, readers) = submission.start(prompts, &host)?;
        let mut meta = StreamMeta::unopened(&self.proxy.model, clock::now());
        meta.stops = params.stops;
        let source = Arc::new(StreamSource::new(meta));
        source.settle(Ok(generation));
        let reader = GenerationReader::new(&source, readers, None);
        let reader = reader.ok_or_else(|| ApiError::ours("internal_error", "no generation"))?;
        Ok(InnerGeneration {
            source,
            reader,
            charge: self.key.token_charge(),
            charged: 0,
        })
    }
}

impl DescribeError {
    /// The error of an image that was being decoded.
    fn of_image(error: ApiError) -> Self {
        match error.blame {
            Blame::Caller => Self::Request(error),
            Blame::Capacity | Blame::Ours => Self::Model(error),
        }
    }

    fn of_end(end: End) -> Self {
        match end {
            End::Deadline => Self::Deadline,
            end => Self::Model(finish_reason::end_error(end)),
        }
    }
}

/// The error of a model that was loaded without a tower.
fn no_eyes() -> ApiError {
    ApiError::ours(
        "vision_model_failed",
        "it reads text only (vision.proxy.model)",
    )
}

/// Additions to the requests of a description.
struct InnerHost<'a> {
    work: Arc<PermitHolder>,
    /// When the engine's timestamps begin.
    epoch: Instant,
    streams: &'a StreamRegistry,
    owner: Owner,
}

impl<'a> InnerHost<'a> {
    fn new(
        (permit, images): (Permit, ImageShare),
        describer: &ImageDescriber<'a>,
        epoch: Instant,
    ) -> Self {
        let streams = &*describer.handles.streams;
        let work = PermitHolder::without_stream(permit, &streams.undelivered);
        Self {
            work: Arc::new(work.with_images(Some(images))),
            epoch,
            streams,
            owner: describer.record.terms().owner,
        }
    }
}

impl SubmissionHost for InnerHost<'_> {
    fn permits(&self, progress: &Arc<Progress>) -> Option<Box<dyn SequencePermits>> {
        Some(self.work.sequence_permit(progress, self.epoch))
    }

    fn free_segments(&self) -> bool {
        self.streams.free_segments(self.owner)
    }
}
