//! Anthropic's model list: `/v1/models` for clients that send `anthropic-version`.

use crate::clock;
use crate::derived_model::ModelCard;
use crate::item_page::Query;
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::{Duration, UNIX_EPOCH};

/// Default page size.
const PAGE: usize = 20;
/// Limit of the page size.
pub const PAGE_MAX: u64 = 1000;

/// One model.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub struct ModelInfo<'a> {
    r#type: &'static str,
    id: &'a str,
    display_name: &'a str,
    created_at: String,
    lifecycle: &'static str,
    /// Context length in tokens; absent while the model is not loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_input_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<usize>,
    /// State of a model that is not loaded; absent for a loaded model.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// One page of the model list.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ModelPage<'a> {
    data: Vec<ModelInfo<'a>>,
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

/// Describes one model.
pub fn model_info(card: &ModelCard) -> ModelInfo<'_> {
    let since = Duration::from_secs(u64::try_from(card.created_unix_s).unwrap_or(0));
    ModelInfo {
        r#type: "model",
        id: &card.name,
        display_name: &card.name,
        created_at: clock::utc_millis(UNIX_EPOCH + since),
        lifecycle: "active",
        max_input_tokens: card.context_max,
        max_tokens: card.context_max,
        state: card.state,
    }
}

/// The page that `limit`, `after_id` and `before_id` select.
///
/// # Errors
/// An unknown model id, or an invalid limit.
pub fn model_page<'a>(all: &'a [ModelCard], query: &Query) -> Result<ModelPage<'a>, ApiError> {
    let ids: Vec<&str> = all.iter().map(|card| card.name.as_str()).collect();
    let limit = query.number("limit", PAGE_MAX)?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(PAGE).max(1);
    let (from, to, has_more) =
        page_range(&ids, query.get("after_id"), query.get("before_id"), limit)?;
    Ok(ModelPage {
        data: all[from..to].iter().map(model_info).collect(),
        has_more,
        first_id: ids[from..to].first().copied(),
        last_id: ids[from..to].last().copied(),
    })
}

/// Range of `ids` on the page, and whether more ids follow in the direction of paging.
fn page_range(
    ids: &[&str],
    after: Option<&str>,
    before: Option<&str>,
    limit: usize,
) -> Result<(usize, usize, bool), ApiError> {
    let position_of = |name: &str, id: &str| {
        let found = ids.iter().position(|known| *known == id);
        found.ok_or_else(|| {
            let error_message = format!("{name}: this server does not serve that model");
            ApiError::field(name, "invalid_value", error_message)
        })
    };
    if let Some(id) = before {
        let to = position_of("before_id", id)?;
        let from = to.saturating_sub(limit);
        return Ok((from, to, from > 0));
    }
    let from = match after {
        Some(id) => position_of("after_id", id)? + 1,
        None => 0,
    };
    let to = (from + limit).min(ids.len());
    Ok((from, to, to < ids.len()))
}

#[cfg(test)]
mod tests {
    use super::page_range;

    #[test]
    fn model_pages_are_contiguous_in_both_directions() {
        let ids = ["a", "b", "c", "d", "e"];
        let rows = [
            ("all", None, None, 9, (0, 5, false)),
            ("first", None, None, 2, (0, 2, true)),
            ("next", Some("b"), None, 2, (2, 4, true)),
            ("last", Some("d"), None, 2, (4, 5, false)),
            ("after all", Some("e"), None, 2, (5, 5, false)),
            ("before", None, Some("d"), 2, (1, 3, true)),
            ("before that", None, Some("b"), 2, (0, 1, false)),
        ];
        for (case, after, before, limit, want) in rows {
            let got = page_range(&ids, after, before, limit).expect(case);
            assert_eq!(got, want, "{case}");
        }
        let error = page_range(&ids, Some("x"), None, 2).expect_err("no such model");
        assert_eq!(error.problems[0].field, "after_id");
    }
}
