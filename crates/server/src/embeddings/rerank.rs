//! `POST /v1/rerank`: scores of documents for a query, by a model that reads both together.

use super::{
    ComputedEmbeddings, EmbeddingsRequest, EmbeddingsResponse, TextUsage, compute_embeddings,
};
use crate::request::extract::{JsonBody, RateLimited, SchedulingHeaders};
use crate::request::model_lookup;
use crate::response::Rejected;
use axum::extract::State;
use bytes::Bytes;
use gateway::handles::Gateway;
use gateway::models::{ModelLease, ModelTask, ServedModel};
use generate::error::ApiError;
use generate::infill_prompt::RerankTemplate;
use generate::prompt::PromptEncoder;
use generate::request::Prompt;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use wire::protocol::Protocol;
use wire::request_body::RequestBody;
use wire::{clock, json, rerank_request};

/// The handler of `/v1/rerank`.
pub(crate) async fn rank_documents(
    State(gateway): State<Gateway>,
    RateLimited(caller): RateLimited,
    scheduling: SchedulingHeaders,
    JsonBody(body): JsonBody,
) -> Result<EmbeddingsResponse, Rejected> {
    let models = &gateway.models;
    let body = RequestBody::parse(body)?;
    let task = ModelTask::Ranking;
    let lease = model_lookup::find_lease_for(task, models, Protocol::Completion, &body).await?;
    let lora = lease.adapters()?;
    let ModelLease { serving, name, .. } = lease;
    expect_ranking(&serving.model)?;
    let parsed = rerank_request::parse(body.fields())?;
    let client_deadline = parsed.deadline.map(|deadline| clock::now() + deadline);
    let documents = parsed.documents.iter().cloned();
    let request = EmbeddingsRequest {
        field: "documents",
        texts: documents.map(Prompt::Text).collect(),
        query: Some(parsed.query.clone()),
        truncate: true,
        body_bytes: body.text().len(),
        class: scheduling.priority.unwrap_or(parsed.priority),
        deadline: scheduling.deadline.into_iter().chain(client_deadline).min(),
        serving,
        lora,
    };
    let computed = compute_embeddings(&gateway.generations, &caller, request).await?;
    let mut ranked = ranking(&computed);
    ranked.truncate(parsed.top_n.unwrap_or(usize::MAX));
    let texts = parsed.return_documents.then_some(&parsed.documents[..]);
    Ok(EmbeddingsResponse {
        body: rank_response(&name, &ranked, texts, computed.prompt_tokens),
        ignored: parsed.ignored,
    })
}

/// # Errors
/// The model gives no score.
fn expect_ranking(model: &ServedModel) -> Result<(), ApiError> {
    let classes = model.handle.engine.hidden_dim();
    let message = match model.facts.task {
        ModelTask::Ranking if classes == 1 => return Ok(()),
        ModelTask::Ranking => format!("model: has {classes} classes; a reranker has 1"),
        _ => "model: is no reranker (a model with a classification head); `millrace pull bge-reranker-v2-m3` or \
              `millrace pull qwen3-reranker` gets one"
            .to_owned(),
    };
    Err(ApiError::field("model", "not_supported", message))
}

/// Indices and scores of the documents, best first; equal scores in the order of the request.
fn ranking(computed: &ComputedEmbeddings) -> Vec<(usize, f32)> {
    let scores = computed
        .vectors
        .iter()
        .map(|scores| scores.iter().sum::<f32>());
    let mut ranked: Vec<(usize, f32)> = scores.map(relevance).enumerate().collect();
    ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    ranked
}

/// A score between 0 and 1.
fn relevance(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

/// The response of `/v1/rerank`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct RankedDocuments<'a> {
    object: &'static str,
    model: &'a str,
    /// Best first.
    results: Vec<RankedDocument<'a>>,
    usage: TextUsage,
}

#[derive(JsonSchema, Serialize)]
struct RankedDocument<'a> {
    /// Number of the document in the request.
    index: usize,
    /// From 0 to 1.
    #[schemars(with = "f32")]
    relevance_score: Value,
    /// With `return_documents`.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<DocumentText<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct DocumentText<'a> {
    text: &'a str,
}

fn rank_response(
    model: &str,
    ranked: &[(usize, f32)],
    texts: Option<&[String]>,
    tokens: u64,
) -> Bytes {
    let text = |index: usize| texts.and_then(|texts| texts.get(index));
    let results = ranked.iter().map(|&(index, score)| RankedDocument {
        index,
        relevance_score: json::shortest_number(score),
        document: text(index).map(|text| DocumentText { text }),
    });
    let response = RankedDocuments {
        object: "list",
        model,
        results: results.collect(),
        usage: TextUsage::of(tokens),
    };
    json::to_vec(&response).freeze()
}

/// The token ids of `query` with each document; a document is truncated to what the query leaves of the context.
pub(super) fn tokenize_pairs(
    model: &ServedModel,
    query: &str,
    documents: Vec<Prompt>,
) -> Result<Vec<Vec<u32>>, ApiError> {
    match &model.facts.rerank_template {
        Some(template) => fill_template(model, template, query, documents),
        None => join_pairs(model, query, documents),
    }
}

/// Query and document in the prompt of a decoder, which names of control tokens in them do not change.
fn fill_template(
    model: &ServedModel,
    template: &RerankTemplate,
    query: &str,
    documents: Vec<Prompt>,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let encoder = PromptEncoder::new(&model.handle, clock::unix_s());
    let tokenizer = &model.handle.tokenizer;
    let tokens_max = model.handle.engine.prompt_tokens_max();
    let start = template.start(&tokenizer.escape_control_text(query));
    let end = encoder.rendered_ids(template.end())?;
    let alone = encoder.rendered_ids(&start)?.len() + end.len();
    let query = encoder.text_ids(query, false, false)?.len();
    expect_room(query, alone, tokens_max)?;
    let pair = |document: Prompt| {
        let Prompt::Text(document) = document else {
            return encoder.prompt_ids(document);
        };
        let text = start.clone() + &tokenizer.escape_control_text(&document);
        let ids = encoder.rendered_ids(&(text.clone() + template.end()))?;
        if ids.len() <= tokens_max {
            return Ok(ids);
        }
        let mut ids = encoder.rendered_ids(&text)?;
        ids.truncate(tokens_max - end.len());
        ids.extend_from_slice(&end);
        Ok(ids)
    };
    documents.into_iter().map(pair).collect()
}

/// Query and document with the separators of an encoder around them.
fn join_pairs(
    model: &ServedModel,
    query: &str,
    documents: Vec<Prompt>,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let encoder = PromptEncoder::new(&model.handle, clock::unix_s());
    let tokenizer = &model.handle.tokenizer;
    let tokens_max = model.handle.engine.prompt_tokens_max();
    let query = encoder.text_ids(query, false, false)?;
    let alone = tokenizer.join_pair(&query, &[]).ok_or_else(|| {
        let message = "model: its vocabulary names no tokens around a query and a document";
        ApiError::field("model", "not_supported", message)
    })?;
    expect_room(query.len(), alone.len(), tokens_max)?;
    let pair = |document: Prompt| {
        let document = match document {
            Prompt::Text(text) => encoder.text_ids(&text, false, false)?,
            other => encoder.prompt_ids(other)?,
        };
        let mut ids = tokenizer.join_pair(&query, &document).unwrap_or_default();
        tokenizer.truncate_prompt(&mut ids, tokens_max);
        Ok(ids)
    };
    documents.into_iter().map(pair).collect()
}

/// # Errors
/// A query of `query` tokens, which needs `alone` with what stands around it, leaves no room for a document.
fn expect_room(query: usize, alone: usize, tokens_max: usize) -> Result<(), ApiError> {
    if alone < tokens_max {
        return Ok(());
    }
    let most = tokens_max.saturating_sub(alone.saturating_sub(query) + 1);
    let message = format!("query: has {query} tokens; beside a document at most {most}");
    Err(ApiError::field("query", "context_length_exceeded", message))
}
