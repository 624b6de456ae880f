//! Token ids of a query with each of several documents.

use gateway::models::ServedModel;
use generate::error::ApiError;
use generate::infill_prompt::RerankTemplate;
use generate::prompt::PromptEncoder;
use generate::request::Prompt;
use wire::clock;

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
