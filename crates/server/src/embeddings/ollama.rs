//! Ollama's `POST /api/embed`, and the older `POST /api/embeddings`, which returns one vector that is not normalized.

use super::EmbeddingsResponse;
use crate::embeddings::{
    ComputedEmbeddings, EmbeddingsRequest, TOO_LONG, compute_embeddings, embedding_model,
};
use crate::request::extract::{JsonBody, RateLimited, SchedulingHeaders};
use crate::request::model_lookup;
use crate::response::Rejected;
use crate::routes::ollama::generation::ResidenceRequest;
use axum::extract::State;
use bytes::Bytes;
use gateway::handles::Gateway;
use gateway::models::ModelLease;
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::{Duration, Instant};
use wire::clock;
use wire::embeddings_input::cut_and_normalize;
use wire::embeddings_request::{self, EmbedRoute};
use wire::json::{self, List};
use wire::protocol::Protocol;
use wire::request_body::RequestBody;

/// The handler of both routes.
pub(crate) async fn embed_texts(
    State(gateway): State<Gateway>,
    RateLimited(caller): RateLimited,
    scheduling: SchedulingHeaders,
    JsonBody(body): JsonBody,
    route: EmbedRoute,
) -> Result<EmbeddingsResponse, Rejected> {
    let arrived = clock::now();
    let models = &gateway.models;
    let body = RequestBody::parse(body)?;
    let lease = model_lookup::find_lease(models, Protocol::OllamaGenerate, &body).await?;
    let lora = lease.adapters()?;
    let ModelLease { serving, name, .. } = lease;
    let model = embedding_model(&serving.model)?;
    let parsed = embeddings_request::parse_ollama(body.fields(), route, model)?;
    let residence = ResidenceRequest::of(Protocol::OllamaGenerate, body.fields())?;
    residence.apply_keep_alive(models, caller.scopes).await;
    let request = EmbeddingsRequest {
        field: route.input_field(),
        texts: parsed.texts,
        query: None,
        truncate: parsed.truncate,
        body_bytes: body.text().len(),
        class: scheduling.priority.unwrap_or_default(),
        deadline: scheduling.deadline,
        serving,
        lora,
    };
    let embedded = compute_embeddings(&gateway.generations, &caller, request).await;
    let embedded = embedded.map_err(in_words_of_ollama)?;
    let body = match route {
        EmbedRoute::Embed => embed_response(&name, &embedded, parsed.dimensions, arrived),
        EmbedRoute::Embeddings => embeddings_response(&embedded, parsed.dimensions),
    };
    Ok(EmbeddingsResponse {
        body,
        ignored: parsed.ignored,
    })
}

/// The error with the words that Ollama's clients look for.
fn in_words_of_ollama(error: ApiError) -> ApiError {
    if error.code != TOO_LONG {
        return error;
    }
    let message = "the input length exceeds the context length".to_owned();
    ApiError { message, ..error }
}

/// The response of `/api/embeddings`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct OllamaEmbedding {
    embedding: Vec<f32>,
}

/// The response of `/api/embed`, with a list of vectors. Durations are in nanoseconds.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OllamaEmbeddings")]
pub(crate) struct OllamaEmbeddings<'a, E> {
    model: &'a str,
    embeddings: E,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: u64,
}

fn embeddings_response(embedded: &ComputedEmbeddings, dimensions: Option<usize>) -> Bytes {
    let vector = embedded.vectors.first();
    let vector = vector.map(|vector| cut_and_normalize(vector, dimensions, false));
    let embedding = vector.unwrap_or_default();
    json::to_vec(&OllamaEmbedding { embedding }).freeze()
}

fn embed_response(
    model: &str,
    embedded: &ComputedEmbeddings,
    dimensions: Option<usize>,
    arrived: Instant,
) -> Bytes {
    let vectors = embedded.vectors.iter();
    let vectors = vectors.map(|vector| cut_and_normalize(vector, dimensions, true));
    let response = OllamaEmbeddings {
        model,
        embeddings: List(vectors),
        total_duration: as_nanoseconds(clock::now() - arrived),
        load_duration: as_nanoseconds(embedded.admitted.saturating_duration_since(arrived)),
        prompt_eval_count: embedded.prompt_tokens,
    };
    json::to_vec(&response).freeze()
}

fn as_nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
