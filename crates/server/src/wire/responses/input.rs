//! What a response was asked, page by page.

use crate::gateway::response_record::Item;
use crate::wire::query::Query;
use generate::error::ApiError;

/// Items on a page, where the caller does not say, and at most.
const PAGE: usize = 20;
const PAGE_MAX: u64 = 100;

/// A page of items, as JSON.
///
/// # Errors
/// The query says nonsense.
pub(crate) fn page(items: &[Item], query: &Query) -> Result<String, ApiError> {
    let limit = query.number("limit", PAGE_MAX)?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(PAGE).max(1);
    let newest_first = match query.get("order") {
        None | Some("desc") => true,
        Some("asc") => false,
        Some(_) => {
            let words = "order: must be asc or desc";
            return Err(ApiError::field("order", "invalid_value", words));
        }
    };
    let mut all: Vec<&Item> = items.iter().collect();
    if newest_first {
        all.reverse();
    }
    let from = match query.get("after") {
        None => 0,
        Some(id) => {
            let at = all.iter().position(|item| &*item.id == id);
            at.ok_or_else(|| {
                let words = "after: must be the id of an input item of this response";
                ApiError::field("after", "invalid_value", words)
            })? + 1
        }
    };
    let page: Vec<&Item> = all.iter().copied().skip(from).take(limit).collect();
    let has_more = from + page.len() < all.len();
    let id = |item: Option<&&Item>| serde_json::json!(item.map(|item| &item.id)).to_string();
    let data: Vec<&str> = page.iter().map(|item| &*item.json).collect();
    Ok(format!(
        r#"{{"object":"list","data":[{}],"first_id":{},"last_id":{},"has_more":{has_more}}}"#,
        data.join(","),
        id(page.first()),
        id(page.last()),
    ))
}
