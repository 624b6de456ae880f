//! Embeddings: OpenAI's `/v1/embeddings`, and Ollama's `/api/embed` and `/api/embeddings`. Scores of documents: `/v1/rerank`.
//!
//! ```text
//! mod      from texts to vectors: admission, tokenizing, submission, pooling
//! openai   `/v1/embeddings`
//! ollama   `/api/embed` and `/api/embeddings`
//! rerank   `/v1/rerank`: a query with each document, tokenized as the model was trained
//! ```
//!
//! Each text is a request to the engine, scheduled like any other prompt: chunked prefill beside the running streams,
//! in the fair share of the caller's key. The pooling of hidden states into one vector is a property of the model
//! (`pooling_type` in the model file): the mean, or the hidden state of the last token.

pub(crate) mod ollama;
pub(crate) mod openai;
pub(crate) mod rerank;

use crate::routes::responses::json_response;
use admission::{AdmissionRequest, Priority, RequestedChoices, TaskSlots};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::{Embedding, Policy, Pooling, Terms, Token};
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use gateway::handles::GenerationHandles;
use gateway::keys::{Caller, KeyPermit};
use gateway::limits::GatewayLimits;
use gateway::models::{ModelTask, ReadyModel, ServedModel};
use generate::embedding::{EmbeddingRequest, EmbeddingVector};
use generate::error::{ApiError, ErrorKind};
use generate::model_handle::AdapterUse;
use generate::prompt::PromptEncoder;
use generate::prompt_limit::PromptLimit;
use generate::request::{IgnoredFields, Prompt};
use generate::submit;
use schemars::JsonSchema;
use serde::Serialize;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use stream::{End, Owner, Read, Reader};
use wire::embeddings_request::EmbeddingModel;
use wire::shared::finish_reason;
use wire::{clock, field_table};

/// Texts of one request that the engine has at one time, so that prompts of other requests run between them.
pub(crate) const IN_FLIGHT_MAX: usize = 8;

/// The response of a request for embeddings.
pub(crate) struct EmbeddingsResponse {
    body: Bytes,
    ignored: IgnoredFields,
}

impl IntoResponse for EmbeddingsResponse {
    fn into_response(self) -> Response {
        let mut response = json_response(self.body);
        field_table::write_ignored(&self.ignored, response.headers_mut());
        response
    }
}

/// Tokens of the texts of a request.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "EmbeddingUsage")]
struct TextUsage {
    prompt_tokens: u64,
    total_tokens: u64,
}

impl TextUsage {
    fn of(tokens: u64) -> Self {
        Self {
            prompt_tokens: tokens,
            total_tokens: tokens,
        }
    }
}

/// The output of an embedding for the resource estimate.
const ANSWERS: RequestedChoices = RequestedChoices {
    n: 1,
    max_tokens: Some(1),
};

/// Error code of a text that is longer than the context.
const TOO_LONG: &str = "context_length_exceeded";

/// A request for embeddings.
struct EmbeddingsRequest {
    serving: Arc<ReadyModel>,
    lora: Vec<AdapterUse>,
    /// The field of the request with the texts.
    field: &'static str,
    texts: Vec<Prompt>,
    /// What the texts are scored for.
    query: Option<String>,
    /// Whether a text longer than the context is truncated instead of rejected.
    truncate: bool,
    body_bytes: usize,
    class: Priority,
    deadline: Option<Instant>,
}

/// The computed embeddings.
struct ComputedEmbeddings {
    /// In the order of the texts; not normalized.
    vectors: Vec<Box<[f32]>>,
    prompt_tokens: u64,
    /// Time of admission.
    admitted: Instant,
}

/// The pooling of the model, and the dimension of the vectors.
///
/// # Errors
/// The pooling of the model is not supported.
fn expect_pooling(model: &ServedModel) -> Result<(Pooling, usize), ApiError> {
    let dim = model.handle.engine.hidden_dim();
    match model.facts.pooling {
        Some(pooling) if dim > 0 => Ok((pooling, dim)),
        _ => Err(ApiError::caller(
            ErrorKind::NotSupported,
            "not_supported",
            "embeddings: this model's pooling type is not supported by this server",
        )),
    }
}

/// The properties of the model that bound the fields of a request.
///
/// # Errors
/// The pooling of the model is not supported.
fn embedding_model(model: &ServedModel) -> Result<EmbeddingModel, ApiError> {
    if model.facts.task == ModelTask::Ranking {
        let message = "model: is a reranker, which computes no embeddings (see /v1/rerank)";
        return Err(ApiError::field("model", "not_supported", message));
    }
    let (_, dimensions) = expect_pooling(model)?;
    Ok(EmbeddingModel {
        vocab_size: model.handle.tokenizer.vocab_size(),
        dimensions,
    })
}

/// The answer to a request without texts.
fn no_embeddings(admitted: Instant) -> ComputedEmbeddings {
    ComputedEmbeddings {
        vectors: Vec::new(),
        prompt_tokens: 0,
        admitted,
    }
}

/// The terms of texts in the engine, without their class and time.
fn engine_terms(key: &KeyPermit, limits: &GatewayLimits) -> Terms {
    Terms {
        account: key.account(),
        clocks: limits.clocks.of_engine(),
        salt: key.cache_salt(limits.prefix_sharing, None),
        policy: Policy::Keep,
        ..Terms::default()
    }
}

/// Computes the embeddings. Dropping the future (the client has disconnected) cancels the work.
async fn compute_embeddings(
    handles: &GenerationHandles,
    caller: &Caller,
    request: EmbeddingsRequest,
) -> Result<ComputedEmbeddings, ApiError> {
    let (arrived, limits) = (clock::now(), handles.limits.now());
    let serving = &request.serving;
    let (pooling, _) = expect_pooling(&serving.model)?;
    if request.texts.is_empty() {
        return Ok(no_embeddings(arrived));
    }
    let key = caller.open_streams_permit(1)?;
    // At most this many texts are in the engine; fewer where slots are short.
    let in_flight = request.texts.len().min(IN_FLIGHT_MAX);
    let sizing = serving.resource_estimator(&limits);
    let bytes = request.body_bytes * in_flight / request.texts.len().max(1);
    handles.metrics.record_request();
    let who = handles
        .ids
        .fingerprint_of(&(caller.owner.0, &request.texts));
    let ticket = serving.admission.request_permit(AdmissionRequest {
        class: request.class,
        account: key.account(),
        need: sizing.estimate_bytes(bytes, in_flight, ANSWERS),
        // A submitted text is computed to the end.
        is_recallable: false,
        deadline: request.deadline,
        who,
    })?;
    let permit = ticket.await?;
    handles.metrics.record_admission(clock::now() - arrived);
    let (class, deadline, admission) = (request.class, request.deadline, Arc::clone(serving));
    let (served, lora) = (Arc::clone(&serving.model), request.lora.clone());
    let prompts = tokenize_texts(request, limits.inline_prompt_bytes_max).await?;
    let prompt_tokens = prompts.iter().map(|ids| ids.len() as u64).sum();
    let counted = usize::try_from(prompt_tokens).unwrap_or(usize::MAX);
    handles.metrics.prompt_tokenized(counted);
    key.charge_prompt(prompt_tokens, clock::now())?;
    let sizing = admission.resource_estimator(&limits);
    let permit = permit
        .update_estimate(sizing.exact_estimate(longest_in_flight(&prompts), ANSWERS)?)
        .await?;
    let embedder = TextEmbedder {
        handles,
        served: &served,
        owner: caller.owner,
        slots: TaskSlots::new(permit, prompts.len()),
        pooling,
        deadline,
        lora,
        terms: Terms {
            priority: class.into(),
            since: Some(arrived),
            ..engine_terms(&key, &limits)
        },
    };
    let admitted = clock::now();
    let vectors = iter(prompts).map(|ids| embedder.embed_text(ids));
    Ok(ComputedEmbeddings {
        vectors: vectors.buffered(IN_FLIGHT_MAX).try_collect().await?,
        prompt_tokens,
        admitted,
    })
}

/// Tokens of the texts that may be in the engine at one time, at most.
fn longest_in_flight(prompts: &[Vec<u32>]) -> Vec<usize> {
    let mut longest: Vec<usize> = prompts.iter().map(Vec::len).collect();
    longest.sort_unstable_by(|a, b| b.cmp(a));
    longest.truncate(IN_FLIGHT_MAX);
    longest
}

/// Tokenizes the texts: short ones on this thread, long ones as offloaded work.
async fn tokenize_texts(
    request: EmbeddingsRequest,
    inline_max: usize,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let inline = request.body_bytes <= inline_max;
    let prepare = move || {
        let (model, field) = (&request.serving.model, request.field);
        if let Some(query) = &request.query {
            return rerank::tokenize_pairs(model, query, request.texts);
        }
        let texts = request.texts.into_iter().enumerate();
        let ids = texts.map(|(i, text)| tokenize_text(model, (field, i), text, request.truncate));
        ids.collect::<Result<Vec<_>, _>>()
    };
    if inline {
        return prepare();
    }
    let prepared = tokio::task::spawn_blocking(prepare).await;
    let lost = || ApiError::ours("internal_error", "the texts could not be prepared");
    prepared.unwrap_or_else(|_| Err(lost()))
}

/// The token ids of a text, at most as many as fit into the context.
fn tokenize_text(
    model: &ServedModel,
    (field, i): (&str, usize),
    text: Prompt,
    truncate: bool,
) -> Result<Vec<u32>, ApiError> {
    let text = truncate_text(
        text,
        PromptLimit::of_context(&model.handle).bytes_max(),
        truncate,
    );
    let tokens_max = model.handle.engine.prompt_tokens_max();
    // OpenAI's words, which clients look for.
    let too_long = |length: String| {
        let message = format!(
            "This model's maximum context length is {tokens_max} tokens. However, {field}[{i}] has {length}. Please reduce the \
             length of {field}[{i}]."
        );
        ApiError::field(field, TOO_LONG, message)
    };
    let text = text.map_err(|bytes| too_long(format!("{bytes} bytes, which are more")))?;
    let encoder = PromptEncoder::new(&model.handle, clock::unix_s());
    let mut ids = encoder.prompt_ids(text)?;
    match ids.len() {
        0 => {
            let message = format!("{field}[{i}]: has no token");
            Err(ApiError::field(field, "invalid_value", message))
        }
        n if n > tokens_max && !truncate => Err(too_long(format!("{n} tokens"))),
        _ => {
            model.handle.tokenizer.truncate_prompt(&mut ids, tokens_max);
            Ok(ids)
        }
    }
}

/// The text, truncated to `bytes_max` bytes if `truncate` is set.
///
/// # Errors
/// The length of a text that is too long, if `truncate` is not set.
fn truncate_text(text: Prompt, bytes_max: usize, truncate: bool) -> Result<Prompt, usize> {
    match text {
        Prompt::Text(mut text) if text.len() > bytes_max => {
            if !truncate {
                return Err(text.len());
            }
            text.truncate(text.floor_char_boundary(bytes_max));
            Ok(Prompt::Text(text))
        }
        text => Ok(text),
    }
}

/// State shared by the texts of one request.
struct TextEmbedder<'a> {
    handles: &'a GenerationHandles,
    served: &'a ServedModel,
    owner: Owner,
    /// Slots of the permit, one for each text in the engine; released when the engine drops the text.
    slots: Arc<TaskSlots>,
    pooling: Pooling,
    deadline: Option<Instant>,
    lora: Vec<AdapterUse>,
    terms: Terms,
}

impl TextEmbedder<'_> {
    async fn embed_text(&self, prompt: Vec<u32>) -> Result<Box<[f32]>, ApiError> {
        let slot = self.slots.acquire_slot().await;
        let retry_after = self.handles.limits.now().retry_after;
        // The log carries only the end.
        let pool = &self.served.handle.token_pool;
        let (tokens, reader) = loop {
            match stream::open(pool, 1) {
                Ok(log) => break log,
                Err(_) if self.handles.streams.make_room(self.owner) => {}
                Err(_) => {
                    let message = "no token log is free for another text";
                    return Err(ApiError::capacity("overloaded", message, retry_after));
                }
            }
        };
        let vector = EmbeddingVector::default();
        let request = EmbeddingRequest {
            prompt,
            embedding: Embedding {
                pooling: self.pooling,
                vector: Arc::clone(&vector),
            },
            deadline: self.deadline,
            lora: self.lora.clone(),
            terms: self.terms,
        };
        let mut request = request.into_request(&self.served.handle, tokens)?;
        request.held = Some(Box::new(slot));
        let submitted = self.served.handle.engine.submit(request);
        submitted.map_err(|why| submit::rejected(&why, retry_after))?;
        let end = wait_for_end(reader).await;
        self.slots
            .permit()
            .latency_reporter()
            .first_token(clock::now());
        match (end, vector.get()) {
            (End::Stop(_), Some(vector)) => Ok(vector.clone()),
            (end, _) => Err(finish_reason::end_error(end)),
        }
    }
}

/// Waits for the end of a log.
async fn wait_for_end(mut reader: Reader<Token>) -> End {
    let mut buffer = [Token::default()];
    poll_fn(|cx| {
        loop {
            match reader.poll_read(cx, &mut buffer) {
                Poll::Ready(Read::Ended(end)) => return Poll::Ready(end),
                Poll::Ready(Read::Items(_)) => {}
                Poll::Ready(Read::Empty) | Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}
