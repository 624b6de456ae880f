//! The part of a request that is stored with the answer, and stored responses as the parser of a later request sees
//! them.

use crate::metadata::Metadata;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stream::StreamId;

/// Kind of a stored answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredKind {
    /// A response of the Responses API.
    Response,
    /// A chat completion.
    ChatCompletion,
}

/// The part of a request that is stored, for retrieval and for continuation.
#[derive(Debug, PartialEq)]
pub struct StoredRequest {
    /// Kind of the answer.
    pub kind: StoredKind,
    /// Input items, or messages, as JSON objects; some input items have an id.
    pub items: Vec<Map<String, Value>>,
    /// The response that this one continues.
    pub previous: Option<StreamId>,
    /// Metadata of a chat completion. A response repeats its metadata with the other fields of the request.
    pub metadata: Metadata,
    /// Request fields that a stored chat completion repeats: members of a JSON object, without braces.
    pub repeated_fields: String,
}

impl StoredRequest {
    /// A request with these items, and nothing else.
    pub fn new(kind: StoredKind, items: Vec<Map<String, Value>>) -> Self {
        Self {
            kind,
            items,
            previous: None,
            metadata: Metadata::new(),
            repeated_fields: String::new(),
        }
    }
}

/// A stored input item or message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredItem {
    /// Id of the item.
    pub id: Box<str>,
    /// The item as JSON, with the id.
    pub json: Box<str>,
}

impl StoredItem {
    /// The item with this id.
    pub fn new(id: String, mut item: Map<String, Value>) -> Self {
        item.insert("id".to_owned(), Value::String(id.clone()));
        Self {
            id: id.into(),
            json: Value::Object(item).to_string().into(),
        }
    }
}

/// The conversation up to and including a stored response.
pub trait History {
    /// Stream of the last response.
    fn id(&self) -> Option<StreamId>;
    /// All items as JSON, oldest first.
    fn items(&self) -> Box<dyn Iterator<Item = &str> + '_>;
}

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
