//! Input items of a stored response, listed in pages.

use crate::json;
use crate::query::Query;
use bytes::Bytes;
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Items on a page by default.
const PAGE: usize = 20;
/// Items on a page at most.
pub const PAGE_MAX: u64 = 100;

/// A stored input item of a request.
pub struct InputItem {
    /// Id of the item.
    pub id: Box<str>,
    /// The item as JSON.
    pub json: Box<str>,
}

impl InputItem {
    /// An item; without an id in `item`, the item gets a new one.
    pub fn new(mut item: Map<String, Value>, fresh: impl Fn() -> String) -> Self {
        let prefix = match item.get("type").and_then(Value::as_str) {
            Some("function_call") => "fc_",
            Some("function_call_output") => "fco_",
            Some("reasoning") => "rs_",
            _ => "msg_",
        };
        let id = item.get("id").and_then(Value::as_str).map(str::to_owned);
        let id = id.unwrap_or_else(|| format!("{prefix}{}", fresh()));
        item.insert("id".to_owned(), Value::String(id.clone()));
        Self {
            id: id.into(),
            json: Value::Object(item).to_string().into(),
        }
    }

    fn raw(&self) -> Option<&RawValue> {
        serde_json::from_str(&self.json).ok()
    }
}

/// A page of items, as JSON.
///
/// # Errors
/// An invalid limit or order, or an unknown item id.
pub fn input_page(items: &[InputItem], query: &Query) -> Result<Bytes, ApiError> {
    let limit = query.number("limit", PAGE_MAX)?;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let limit = limit.unwrap_or(PAGE).max(1);
    let newest_first = match query.get("order") {
        None | Some("desc") => true,
        Some("asc") => false,
        Some(_) => {
            let error_message = "order: must be asc or desc";
            return Err(ApiError::field("order", "invalid_value", error_message));
        }
    };
    let mut all: Vec<&InputItem> = items.iter().collect();
    if newest_first {
        all.reverse();
    }
    let from = match query.get("after") {
        None => 0,
        Some(id) => {
            let at = all.iter().position(|item| &*item.id == id);
            at.ok_or_else(|| {
                let error_message = "after: must be the id of an input item of this response";
                ApiError::field("after", "invalid_value", error_message)
            })? + 1
        }
    };
    let page: Vec<&InputItem> = all.iter().copied().skip(from).take(limit).collect();
    let has_more = from + page.len() < all.len();
    let page = InputItemPage {
        object: "list",
        first_id: page.first().map(|item| &*item.id),
        last_id: page.last().map(|item| &*item.id),
        data: page.iter().filter_map(|item| item.raw()).collect(),
        has_more,
    };
    Ok(json::to_vec(&page).freeze())
}

/// A page of input items.
#[derive(JsonSchema, Serialize)]
pub struct InputItemPage<'a> {
    object: &'static str,
    #[schemars(with = "Vec<Map<String, Value>>")]
    data: Vec<&'a RawValue>,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
    has_more: bool,
}
