//! The part of a request that is stored with the answer, and stored responses as the parser of a later request sees
//! them.

mod stored_images;

pub use self::stored_images::{
    FindImage, IMAGE_LOST, ItemImages, SentUrl, StoredImage, take_images,
};

use crate::fields::{self, Fields, OrReject, RawJson};
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
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
    /// Images of the items, in their order; empty where the items are as they were sent.
    pub images: Vec<ItemImages>,
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
            images: Vec::new(),
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
    /// The item as JSON, with the id, without the bytes of its images.
    pub json: Box<str>,
    /// Images that were taken out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<StoredImage>,
    /// Addresses of images that were fetched. A version that does not know them shows data URLs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent_urls: Vec<SentUrl>,
}

impl StoredItem {
    /// The item with this id.
    pub fn new(id: String, mut item: Map<String, Value>) -> Self {
        item.insert("id".to_owned(), Value::String(id.clone()));
        Self {
            id: id.into(),
            json: Value::Object(item).to_string().into(),
            images: Vec::new(),
            sent_urls: Vec::new(),
        }
    }

    /// The item with its images.
    #[must_use]
    pub fn holding(self, images: ItemImages) -> Self {
        Self {
            images: images.taken,
            sent_urls: images.sent_urls,
            ..self
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

/// Metadata of one stored object, by name.
pub type Metadata = BTreeMap<String, String>;

/// Limit of entries.
pub const METADATA_MAX: usize = 16;
/// Limit of a name, in characters.
pub const METADATA_NAME_CHARS_MAX: usize = 64;
/// Limit of a value, in characters.
pub const METADATA_CHARS_MAX: usize = 512;

/// Parses `metadata`; an error is recorded in `fields`.
pub fn parse_metadata(fields: &mut Fields<'_>) -> Metadata {
    let object = fields.object("metadata");
    fields.record("metadata", || {
        json!({
            "maxProperties": METADATA_MAX,
            "propertyNames": {"maxLength": METADATA_NAME_CHARS_MAX},
            "additionalProperties": {"type": "string", "maxLength": METADATA_CHARS_MAX},
        })
    });
    let Some(object) = object else {
        return Metadata::new();
    };
    let entry = |(name, raw): (&str, RawJson<'_>)| {
        let value = fields::as_text(raw)?;
        let fits = has_at_most(name, METADATA_NAME_CHARS_MAX);
        (fits && has_at_most(&value, METADATA_CHARS_MAX))
            .then(|| (name.to_owned(), value.into_owned()))
    };
    let entries = object.entries().take(METADATA_MAX + 1);
    let metadata: Option<Metadata> = entries.map(entry).collect();
    let metadata = metadata.filter(|_| object.entries().count() <= METADATA_MAX).or_reject(fields, "metadata", format_args!(
            "must be an object of at most {METADATA_MAX} strings of {METADATA_CHARS_MAX} characters, with \
             names of {METADATA_NAME_CHARS_MAX}"
        ));
    metadata.unwrap_or_default()
}

/// Parses a body that replaces the metadata of a stored chat completion; `null` clears the metadata.
///
/// # Errors
/// All invalid fields at once.
pub fn parse_update(mut fields: Fields<'_>) -> Result<Metadata, ApiError> {
    if !fields.is_given("metadata") {
        fields.reject("metadata", "is required; null clears the metadata");
    }
    let metadata = parse_metadata(&mut fields);
    fields.record("metadata", || json!({"type": ["object", "null"]}));
    fields.finish()?;
    Ok(metadata)
}

fn has_at_most(text: &str, chars: usize) -> bool {
    text.len() <= chars || text.chars().count() <= chars
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn parsed(body: &Value) -> Result<Metadata, ApiError> {
        let body = body.to_string();
        parse_update(Fields::parse(body.as_bytes())?)
    }

    fn of_entries(entries: usize, name_chars: usize, chars: usize) -> Value {
        let name = |i: usize| format!("{i:é>name_chars$}");
        let metadata: Value = (0..entries)
            .map(|i| (name(i), json!("ü".repeat(chars))))
            .collect();
        json!({ "metadata": metadata })
    }

    #[test]
    fn metadata_is_bounded() {
        for (body, is_valid) in [
            (json!({"metadata": {"a": "b"}}), true),
            (json!({"metadata": null}), true),
            (json!({"metadata": {}}), true),
            (json!({}), false),
            (json!({"metadata": "a"}), false),
            (json!({"metadata": {"a": 1}}), false),
            (json!({"metadata": {"a": null}}), false),
            (of_entries(16, 64, 512), true),
            (of_entries(17, 64, 512), false),
            (of_entries(16, 65, 512), false),
            (of_entries(1, 1, 513), false),
        ] {
            let problems = parsed(&body).err().map(|error| error.problems);
            let fields = problems.map(|problems| problems[0].field.clone());
            let want = (!is_valid).then(|| "metadata".to_owned());
            assert_eq!(fields, want, "{body}");
        }
        let metadata = parsed(&json!({"metadata": {"b": "2", "a": "1"}})).expect("valid");
        assert_eq!(metadata.len(), 2);
        assert_eq!(metadata["a"], "1");
    }
}
