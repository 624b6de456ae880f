//! Stored chat completions: the part of a request that is stored, and the objects of `GET /v1/chat/completions*`.
//!
//! ```text
//! StoredMessage     a message of the request, with the id `{completion}-{index}`
//! StoredCompletion  the non-streaming response, the metadata, and request fields
//! ```

use super::chat_encoder::CollectedChoice;
use super::chunk::CompletionObject;
use crate::fields::{self, Fields, RawJson};
use crate::item_page::{ItemOrder, PageQuery, Query};
use crate::json::shortest_number;
use crate::stored_request::{self, Metadata, StoredItem, StoredKind, StoredRequest};
use generate::error::ApiError;
use generate::request::{GenerationParams, MESSAGES_MAX, PARTS_MAX};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A message of the request of a stored chat completion.
#[derive(Default, JsonSchema, Serialize)]
pub struct StoredMessage {
    id: String,
    role: Value,
    /// Text; `null` where the content has parts.
    content: Option<String>,
    refusal: Option<String>,
    name: Option<String>,
    content_parts: Option<Vec<Map<String, Value>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<Map<String, Value>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
}

/// A stored chat completion.
#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct StoredCompletion<'a> {
    #[serde(flatten)]
    completion: CompletionObject<'a, CollectedChoice<'a>>,
    #[serde(flatten)]
    request: RepeatedChatFields,
    metadata: Metadata,
}

/// Request fields that a stored chat completion repeats.
#[derive(JsonSchema, Serialize)]
struct RepeatedChatFields {
    frequency_penalty: Value,
    input_user: Option<String>,
    presence_penalty: Value,
    response_format: Option<Map<String, Value>>,
    seed: Option<u64>,
    temperature: Value,
    tool_choice: Value,
    tools: Option<Vec<Map<String, Value>>>,
    top_p: Value,
}

/// A chat completion that was deleted.
#[derive(JsonSchema, Serialize)]
pub struct DeletedCompletion {
    /// Id of the completion.
    pub id: String,
    object: &'static str,
    deleted: bool,
}

impl DeletedCompletion {
    /// The response to a deletion.
    pub fn new(id: String) -> Self {
        Self {
            id,
            object: "chat.completion.deleted",
            deleted: true,
        }
    }
}

/// Parses `metadata` and `store`: the part of the request to be stored with `"store": true`.
pub(super) fn parse_store(
    fields: &mut Fields<'_>,
    params: &GenerationParams,
) -> Option<StoredRequest> {
    let metadata = stored_request::parse_metadata(fields);
    if fields.boolean("store") != Some(true) {
        return None;
    }
    // Invalid messages are reported where they are parsed.
    let messages = fields.raw("messages");
    let messages = messages.and_then(|raw| fields::as_list(raw, MESSAGES_MAX))?;
    let messages = messages.into_iter().filter_map(stored_message).collect();
    Some(StoredRequest {
        metadata,
        repeated_fields: repeated_fields(fields, params),
        ..StoredRequest::new(StoredKind::ChatCompletion, messages)
    })
}

fn stored_message(raw: RawJson<'_>) -> Option<Map<String, Value>> {
    let object = fields::as_object(raw)?;
    let text = |name: &str| Some(fields::as_text(object.get(name)?)?.into_owned());
    let objects = |name: &str| -> Option<Vec<_>> { fields::parse_value(object.get(name)?) };
    let parts = object.get("content");
    let parts = parts.and_then(|raw| fields::as_list(raw, PARTS_MAX));
    let message = StoredMessage {
        id: String::new(),
        role: text("role").into(),
        content: text("content"),
        refusal: text("refusal"),
        name: text("name"),
        content_parts: parts.map(|parts| parts.into_iter().filter_map(content_part).collect()),
        tool_calls: objects("tool_calls"),
        tool_call_id: text("tool_call_id"),
        reasoning_content: text("reasoning_content"),
        reasoning: text("reasoning"),
    };
    match serde_json::to_value(message) {
        Ok(Value::Object(message)) => Some(message),
        _ => None,
    }
}

/// A content part; a string is a text part.
fn content_part(raw: RawJson<'_>) -> Option<Map<String, Value>> {
    match fields::parse_value(raw)? {
        Value::Object(part) => Some(part),
        text => {
            let part = [("type", json!("text")), ("text", text)];
            let part = part.map(|(name, value)| (name.to_owned(), value));
            Some(part.into_iter().collect())
        }
    }
}

/// Members of a JSON object, without braces.
fn repeated_fields(fields: &Fields<'_>, params: &GenerationParams) -> String {
    // Parsed and written again, so that the value is on one line.
    let given = |name: &str| fields.raw(name).and_then(fields::parse_value::<Value>);
    let sampling = &params.sampling;
    let repeated = json!({
        "frequency_penalty": shortest_number(sampling.frequency_penalty),
        "input_user": given("user"),
        "presence_penalty": shortest_number(sampling.presence_penalty),
        "response_format": given("response_format"),
        "seed": params.seed,
        "temperature": shortest_number(sampling.temperature),
        "tool_choice": given("tool_choice"),
        "tools": given("tools"),
        "top_p": shortest_number(sampling.top_p),
    });
    let repeated = repeated.to_string();
    repeated[1..repeated.len() - 1].to_owned()
}

/// A message of this completion to be stored.
pub fn stored_item(completion_id: &str, index: usize, message: Map<String, Value>) -> StoredItem {
    StoredItem::new(format!("{completion_id}-{index}"), message)
}

/// Adds members, given without braces, to a JSON object that is not empty.
pub fn add_members(object: &str, members: &str) -> String {
    let object = object.strip_suffix('}').unwrap_or(object);
    format!("{object},{members}}}")
}

/// A stored chat completion as JSON: the non-streaming response with request fields, and the metadata.
pub fn with_metadata(completion: &str, metadata: &Metadata) -> String {
    add_members(completion, &format!("\"metadata\":{}", json!(metadata)))
}

/// The requested page of stored chat completions.
pub struct CompletionQuery<'q> {
    /// The page.
    pub page: PageQuery<'q>,
    model: Option<&'q str>,
    metadata: Vec<(&'q str, &'q str)>,
}

impl<'q> CompletionQuery<'q> {
    /// Parses the fields of a query string.
    ///
    /// # Errors
    /// An invalid limit or order.
    pub fn parse(query: &'q Query) -> Result<Self, ApiError> {
        Ok(Self {
            page: PageQuery::parse(query, ItemOrder::OldestFirst)?,
            model: query.get("model"),
            metadata: query.members("metadata").collect(),
        })
    }

    /// Whether a completion of this model, with this metadata, is in the list.
    pub fn matches(&self, model: &str, metadata: &Metadata) -> bool {
        let has = |&(name, value): &(&str, &str)| metadata.get(name).is_some_and(|v| v == value);
        self.model.is_none_or(|wanted| wanted == model) && self.metadata.iter().all(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_parser::tests::context;
    use http::Uri;

    fn stored(body: &Value) -> Option<StoredRequest> {
        let body = body.to_string();
        let fields = Fields::parse(body.as_bytes()).expect("an object");
        let parsed = crate::openai::completion_request::parse_chat(fields, &context());
        parsed.expect("valid").stored_request
    }

    #[test]
    fn request_is_stored_only_with_store() {
        let body =
            |store: Value| json!({"messages": [{"role": "user", "content": "hi"}], "store": store});
        for (store, is_stored) in [
            (json!(true), true),
            (json!(false), false),
            (Value::Null, false),
        ] {
            assert_eq!(stored(&body(store.clone())).is_some(), is_stored, "{store}");
        }
    }

    #[test]
    fn messages_keep_what_the_client_sent() {
        let call =
            json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let parts = json!([{"type": "text", "text": "a"}, "b"]);
        let request = stored(&json!({
            "store": true, "temperature": 0.7, "user": "me", "metadata": {"a": "b"},
            "messages": [
                {"role": "user", "content": "hi", "name": "n"},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": parts},
            ],
        }));
        let request = request.expect("stored");
        assert_eq!(request.kind, StoredKind::ChatCompletion);
        assert_eq!(request.metadata["a"], "b");
        let repeated: Value =
            serde_json::from_str(&format!("{{{}}}", request.repeated_fields)).expect("members");
        assert_eq!(repeated["temperature"], 0.7);
        assert_eq!(repeated["input_user"], "me");
        assert_eq!(repeated["tools"], Value::Null);
        let want = [
            json!({"id": "x-0", "role": "user", "content": "hi", "refusal": null, "name": "n", "content_parts": null}),
            json!({"id": "x-1", "role": "assistant", "content": null, "refusal": null, "name": null,
                "content_parts": null, "tool_calls": [call]}),
            json!({"id": "x-2", "role": "tool", "content": null, "refusal": null, "name": null,
                "content_parts": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "tool_call_id": "c"}),
        ];
        for (index, (message, want)) in request.items.into_iter().zip(want).enumerate() {
            let item = stored_item("x", index, message);
            let json: Value = serde_json::from_str(&item.json).expect("JSON");
            assert_eq!((json["id"].as_str(), &json), (Some(&*item.id), &want));
        }
    }

    #[test]
    fn list_is_filtered_by_model_and_metadata() {
        let metadata: Metadata = [("a b", "1"), ("c", "2")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        for (query, is_listed) in [
            ("", true),
            ("model=m", true),
            ("model=other", false),
            ("metadata[a%20b]=1", true),
            ("metadata%5Ba%20b%5D=1&metadata[c]=2&model=m", true),
            ("metadata[c]=1", false),
            ("metadata[c]=2&metadata[d]=2", false),
        ] {
            let uri: Uri = format!("/?{query}").parse().expect("a URI");
            let query = Query::of(&uri).expect("a query");
            let list = CompletionQuery::parse(&query).expect("valid");
            assert_eq!(list.matches("m", &metadata), is_listed, "{uri}");
        }
    }

    #[test]
    fn metadata_is_a_member_of_the_object() {
        let metadata = [("q\"".to_owned(), "}".to_owned())].into();
        let json: Value =
            serde_json::from_str(&with_metadata(r#"{"a":1}"#, &metadata)).expect("JSON");
        assert_eq!(json, json!({"a": 1, "metadata": {"q\"": "}"}}));
    }
}
