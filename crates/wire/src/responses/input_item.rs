//! Input items of a stored response.

use crate::stored_request::StoredItem;
use schemars::JsonSchema;
use serde_json::{Map, Value};

/// The schema of an input item: any object.
#[derive(JsonSchema)]
#[schemars(transparent)]
pub struct InputItem(#[expect(dead_code, reason = "only its schema is used")] Map<String, Value>);

/// An item to be stored; without an id in `item`, the item gets a new one.
pub fn stored_item(item: Map<String, Value>, fresh: impl Fn() -> String) -> StoredItem {
    let prefix = match item.get("type").and_then(Value::as_str) {
        Some("function_call") => "fc_",
        Some("function_call_output") => "fco_",
        Some("custom_tool_call") => "ctc_",
        Some("custom_tool_call_output") => "ctco_",
        Some("reasoning") => "rs_",
        _ => "msg_",
    };
    let id = item.get("id").and_then(Value::as_str).map(str::to_owned);
    StoredItem::new(id.unwrap_or_else(|| format!("{prefix}{}", fresh())), item)
}
