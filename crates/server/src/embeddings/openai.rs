//! `POST /v1/embeddings`.

use super::EmbeddingsResponse;
use crate::embeddings::{
    ComputedEmbeddings, EmbeddingsRequest, compute_embeddings, embedding_model,
};
use crate::request::extract::{JsonBody, RateLimited, SchedulingHeaders};
use crate::request::model_lookup;
use crate::response::Rejected;
use axum::extract::State;
use bytes::{Bytes, BytesMut};
use gateway::handles::Gateway;
use gateway::models::{ModelLease, ModelTask};
use schemars::JsonSchema;
use wire::embeddings_input::{cut_and_normalize, write_base64, write_floats};
use wire::protocol::Protocol;
use wire::request_body::RequestBody;
use wire::{clock, embeddings_request, json};

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

/// The response of `/v1/embeddings`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct EmbeddingList {
    object: String,
    data: Vec<EmbeddingObject>,
    model: String,
    usage: EmbeddingUsage,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct EmbeddingObject {
    object: String,
    index: u64,
    embedding: EmbeddingVector,
}

/// The vector as numbers, or as base64 of little-endian 32-bit floats.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum EmbeddingVector {
    Floats(Vec<f32>),
    Base64(String),
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct EmbeddingUsage {
    prompt_tokens: u64,
    total_tokens: u64,
}

fn embeddings_response(
    id: &str,
    embedded: &ComputedEmbeddings,
    dimensions: Option<usize>,
    base64: bool,
) -> Bytes {
    let mut out = BytesMut::new();
    json::raw(&mut out, "{\"object\":\"list\",\"data\":[");
    for (i, vector) in embedded.vectors.iter().enumerate() {
        json::raw(&mut out, if i == 0 { "" } else { "," });
        json::raw(&mut out, "{\"object\":\"embedding\",\"index\":");
        json::integer(&mut out, i as u64);
        json::raw(&mut out, ",\"embedding\":");
        let vector = cut_and_normalize(vector, dimensions, true);
        if base64 {
            write_base64(&vector, &mut out);
        } else {
            write_floats(&vector, &mut out);
        }
        json::raw(&mut out, "}");
    }
    json::raw(&mut out, "],\"model\":");
    json::string(&mut out, id);
    for (name, count) in [
        (",\"usage\":{\"prompt_tokens\":", embedded.prompt_tokens),
        (",\"total_tokens\":", embedded.prompt_tokens),
    ] {
        json::raw(&mut out, name);
        json::integer(&mut out, count);
    }
    json::raw(&mut out, "}}");
    out.freeze()
}
