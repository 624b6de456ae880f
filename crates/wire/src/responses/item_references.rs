//! Items of an input that only name an item of a stored response.

use super::ID_PREFIX;
use crate::fields::{self, JsonObject};
use crate::request_parser::HistoryLookup;

/// Bytes of stored items that are looked through for one request.
const REFERENCE_BYTES_MAX: usize = 64 << 20;

/// Finds output items of stored responses by their ids, for one request.
pub(super) struct ItemReferences<'a> {
    history: &'a HistoryLookup<'a>,
    bytes_left: usize,
}

impl<'a> ItemReferences<'a> {
    /// Items of these responses.
    pub(super) fn new(history: &'a HistoryLookup<'a>) -> Self {
        Self {
            history,
            bytes_left: REFERENCE_BYTES_MAX,
        }
    }

    /// The item of this id as JSON. `None`: it is not stored, or too much was looked through.
    pub(super) fn find(&mut self, id: &str) -> Option<String> {
        // The id of an output item has that of its response: `msg_{stream}`, `fc_{stream}_1`.
        let stream = id.split('_').nth(1)?;
        let response = (self.history)(&format!("{ID_PREFIX}{stream}")).ok()?;
        let mut found = None;
        for item in response.items() {
            self.bytes_left = self.bytes_left.checked_sub(item.len())?;
            if item.contains(id) && has_id(item, id) {
                found = Some(item.to_owned());
            }
        }
        found
    }
}

fn has_id(item: &str, id: &str) -> bool {
    let item: Option<JsonObject<'_>> = serde_json::from_str(item).ok();
    let given = item.as_ref().and_then(|item| item.get("id"));
    given.and_then(fields::as_text).as_deref() == Some(id)
}

#[cfg(test)]
mod tests {
    use super::super::request::parse;
    use crate::fields::Fields;
    use crate::request_parser::ParseContext;
    use crate::stored_request::History;
    use generate::error::ApiError;
    use generate::request::Prompt;
    use serde_json::json;
    use stream::StreamId;

    const STREAM: &str = "0123456789abcdef0123456789abcdef";

    struct Stored([String; 2]);

    impl History for Stored {
        fn id(&self) -> Option<StreamId> {
            None
        }

        fn items(&self) -> Box<dyn Iterator<Item = &str> + '_> {
            Box::new(self.0.iter().map(String::as_str))
        }
    }

    fn stored(id: &str) -> Result<Box<dyn History>, ApiError> {
        if id != format!("resp_{STREAM}") {
            return Err(ApiError::bad_request("not_found", "unknown"));
        }
        let said = json!({"type": "message", "id": format!("msg_{STREAM}"), "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]});
        let call = json!({"type": "function_call", "id": format!("fc_{STREAM}_1"), "call_id": "1", "name": "f", "arguments": "{}"});
        Ok(Box::new(Stored([said.to_string(), call.to_string()])))
    }

    #[test]
    fn referenced_item_takes_the_place_of_its_reference() {
        let context = ParseContext {
            history: &stored,
            ..ParseContext::of_vocab(300)
        };
        let reference = |id: String| json!({"type": "item_reference", "id": id});
        let asked = |last: String| {
            let body = json!({"input": [
                {"role": "user", "content": "a"}, {"type": null, "id": format!("msg_{STREAM}")}, reference(last),
                {"type": "function_call_output", "call_id": "1", "output": "x"},
            ]});
            parse(Fields::parse(body.to_string().as_bytes())?, &context)
        };
        let parsed = asked(format!("fc_{STREAM}_1")).expect("a request");
        let [Prompt::Conversation { messages, .. }] = &parsed.request.prompts[..] else {
            panic!("{:?}", parsed.request.prompts);
        };
        let said: Vec<_> = messages.iter().map(|message| &message.content).collect();
        assert_eq!(said, ["a", "hi", "x"]);
        assert_eq!(messages[1].rest["tool_calls"][0]["function"]["name"], "f");
        let stored = parsed.stored_request.expect("a stored request").items;
        assert_eq!(stored[2]["type"], "function_call");
        for id in [format!("fc_{STREAM}_2"), "msg_x".to_owned(), "1".to_owned()] {
            let error = asked(id).expect_err("no item");
            assert_eq!(error.problems[0].field, "input[2].id");
        }
    }
}
