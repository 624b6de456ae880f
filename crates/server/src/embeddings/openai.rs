//! `POST /v1/embeddings`.

use super::{
    ComputedEmbeddings, EmbeddingsRequest, EmbeddingsResponse, TextUsage, compute_embeddings,
    embedding_model,
};
use crate::request::extract::{JsonBody, RateLimited, SchedulingHeaders};
use crate::request::model_lookup;
use crate::response::Rejected;
use axum::extract::State;
use bytes::Bytes;
use gateway::handles::Gateway;
use gateway::models::{ModelLease, ModelTask};
use schemars::JsonSchema;
use serde::Serialize;
use wire::embeddings_input::{base64_text, cut_and_normalize};
use wire::json::{self, List};
use wire::protocol::Protocol;
use wire::request_body::RequestBody;
use wire::{clock, embeddings_request};

/// The handler of `/v1/embeddings`.
pub(crate) async fn create_embeddings(
    State(gateway): State<Gateway>,
    RateLimited(caller): RateLimited,
    scheduling: SchedulingHeaders,
    JsonBody(body): JsonBody,
) -> Result<EmbeddingsResponse, Rejected> {
    let models = &gateway.models;
    let body = RequestBody::parse(body)?;
    let task = ModelTask::Embedding;
    let lease = model_lookup::find_lease_for(task, models, Protocol::Completion, &body).await?;
    let lora = lease.adapters()?;
    let ModelLease { serving, name, .. } = lease;
    let model = embedding_model(&serving.model)?;
    let parsed = embeddings_request::parse_openai(body.fields(), model)?;
    let client_deadline = parsed.deadline.map(|deadline| clock::now() + deadline);
    let request = EmbeddingsRequest {
        field: "input",
        texts: parsed.texts,
        query: None,
        truncate: parsed.truncate,
        body_bytes: body.text().len(),
        class: scheduling.priority.unwrap_or(parsed.priority),
        deadline: scheduling.deadline.into_iter().chain(client_deadline).min(),
        serving,
        lora,
    };
    let embedded = compute_embeddings(&gateway.generations, &caller, request).await?;
    Ok(EmbeddingsResponse {
        body: embeddings_response(&name, &embedded, parsed.dimensions, parsed.is_base64),
        ignored: parsed.ignored,
    })
}

/// The response of `/v1/embeddings`, with a list of objects.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "EmbeddingList")]
pub(crate) struct EmbeddingList<'a, D> {
    object: &'static str,
    data: D,
    model: &'a str,
    usage: TextUsage,
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct EmbeddingObject {
    object: &'static str,
    index: usize,
    embedding: EncodedVector,
}

/// The vector as numbers, or as base64 of little-endian 32-bit floats.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "EmbeddingVector")]
#[serde(untagged)]
enum EncodedVector {
    Floats(Vec<f32>),
    Base64(String),
}

fn embeddings_response(
    model: &str,
    embedded: &ComputedEmbeddings,
    dimensions: Option<usize>,
    is_base64: bool,
) -> Bytes {
    let vectors = embedded.vectors.iter().enumerate();
    let data = vectors.map(|(index, vector)| {
        let vector = cut_and_normalize(vector, dimensions, true);
        EmbeddingObject {
            object: "embedding",
            index,
            embedding: if is_base64 {
                EncodedVector::Base64(base64_text(&vector))
            } else {
                EncodedVector::Floats(vector)
            },
        }
    });
    let list = EmbeddingList {
        object: "list",
        data: List(data),
        model,
        usage: TextUsage::of(embedded.prompt_tokens),
    };
    json::to_vec(&list).freeze()
}
