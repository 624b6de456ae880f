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
use bytes::{Bytes, BytesMut};
use gateway::handles::Gateway;
use gateway::models::ModelLease;
use generate::error::ApiError;
use schemars::JsonSchema;
use std::time::{Duration, Instant};
use wire::embeddings_input::{cut_and_normalize, write_floats};
use wire::embeddings_request::{self, EmbedRoute};
use wire::protocol::Protocol;
use wire::request_body::RequestBody;
use wire::{clock, json};

/// The handler of `/api/embed`.
pub(crate) async fn embed_texts(
    State(gateway): State<Gateway>,
    caller: RateLimited,
    scheduling: SchedulingHeaders,
    body: JsonBody,
) -> Result<EmbeddingsResponse, Rejected> {
    Ok(respond(&gateway, EmbedRoute::Embed, (caller, scheduling, body)).await?)
}

/// The handler of `/api/embeddings`.
pub(crate) async fn embed_one_text(
    State(gateway): State<Gateway>,
    caller: RateLimited,
    scheduling: SchedulingHeaders,
    body: JsonBody,
) -> Result<EmbeddingsResponse, Rejected> {
    Ok(respond(&gateway, EmbedRoute::Embeddings, (caller, scheduling, body)).await?)
}

async fn respond(
    gateway: &Gateway,
    route: EmbedRoute,
    request: (RateLimited, SchedulingHeaders, JsonBody),
) -> Result<EmbeddingsResponse, ApiError> {
    let arrived = clock::now();
    let (RateLimited(caller), scheduling, JsonBody(body)) = request;
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
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct OllamaEmbedding {
    embedding: Vec<f32>,
}

/// The response of `/api/embed`. Durations are in nanoseconds.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct OllamaEmbeddings {
    model: String,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: u64,
}

/// Writes the response of `/api/embeddings`.
fn embeddings_response(embedded: &ComputedEmbeddings, dimensions: Option<usize>) -> Bytes {
    let mut out = BytesMut::new();
    json::raw(&mut out, "{\"embedding\":");
    let vector = embedded.vectors.first();
    let vector = vector.map(|vector| cut_and_normalize(vector, dimensions, false));
    write_floats(&vector.unwrap_or_default(), &mut out);
    json::raw(&mut out, "}");
    out.freeze()
}

/// The response of `/api/embed`.
fn embed_response(
    model: &str,
    embedded: &ComputedEmbeddings,
    dimensions: Option<usize>,
    arrived: Instant,
) -> Bytes {
    let mut out = BytesMut::new();
    json::raw(&mut out, "{\"model\":");
    json::string(&mut out, model);
    json::raw(&mut out, ",\"embeddings\":[");
    for (i, vector) in embedded.vectors.iter().enumerate() {
        json::raw(&mut out, if i == 0 { "" } else { "," });
        write_floats(&cut_and_normalize(vector, dimensions, true), &mut out);
    }
    let loading = embedded.admitted.saturating_duration_since(arrived);
    for (name, count) in [
        (
            "],\"total_duration\":",
            as_nanoseconds(clock::now() - arrived),
        ),
        (",\"load_duration\":", as_nanoseconds(loading)),
        (",\"prompt_eval_count\":", embedded.prompt_tokens),
    ] {
        json::raw(&mut out, name);
        json::integer(&mut out, count);
    }
    json::raw(&mut out, "}");
    out.freeze()
}

fn as_nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
