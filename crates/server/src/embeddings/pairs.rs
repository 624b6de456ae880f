//! Token ids of a query with each of several documents.

use gateway::models::ServedModel;
use generate::error::ApiError;
use generate::prompt::PromptEncoder;
use generate::request::Prompt;
use wire::clock;

/// The token ids of `query` with each document; a document is truncated to what the query leaves of the context.
pub(super) fn tokenize_pairs(
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
    if alone.len() >= tokens_max {
        let (has, around) = (query.len(), alone.len() - query.len());
        let most = tokens_max.saturating_sub(around + 1);
        let message = format!("query: has {has} tokens; beside a document at most {most}");
        return Err(ApiError::field("query", "context_length_exceeded", message));
    }
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
