//! The part of a stored answer that is known before the answer: written to the journal with the stream.

use crate::id_generator::IdGenerator;
use generate::stream_meta::StreamMeta;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stream::StreamId;
use wire::clock;
use wire::metadata::Metadata;
use wire::openai::stored_completion;
use wire::stored_request::{StoredItem, StoredKind, StoredRequest, stored_item};

/// The request of a stored answer, with an id for each item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredNote {
    /// Kind of the answer.
    pub kind: StoredKind,
    /// When the request was parsed.
    pub created_unix_us: u64,
    /// Input items, or messages.
    pub items: Box<[StoredItem]>,
    /// The response that this one continues.
    #[serde(default, with = "optional_id")]
    pub previous: Option<StreamId>,
    /// Metadata of a chat completion.
    #[serde(default)]
    pub metadata: Metadata,
    /// Request fields that a stored chat completion repeats: members of a JSON object, without braces.
    #[serde(default)]
    pub repeated_fields: String,
    /// Whether the ended answer is written to the journal; the client decides.
    #[serde(skip, default = "is_durable_by_default")]
    pub is_durable: bool,
}

/// A note that was read was written, so that the client has agreed.
fn is_durable_by_default() -> bool {
    true
}

impl StoredNote {
    /// The note of a request whose stream is about to be opened.
    pub(crate) fn new(
        request: StoredRequest,
        is_durable: bool,
        meta: &StreamMeta,
        ids: &IdGenerator,
    ) -> Self {
        let (kind, items) = (request.kind, request.items.into_iter().enumerate());
        let item = |(index, item)| match kind {
            StoredKind::Response => stored_item(item, || ids.prefixed_id("")),
            StoredKind::ChatCompletion => {
                stored_completion::stored_item(&meta.response_id, index, item)
            }
        };
        Self {
            kind,
            created_unix_us: clock::unix_us(),
            items: items.map(item).collect(),
            previous: request.previous,
            metadata: request.metadata,
            repeated_fields: request.repeated_fields,
            is_durable,
        }
    }

    /// Bytes of all texts but the metadata.
    pub(crate) fn text_bytes(&self) -> usize {
        let item = |item: &StoredItem| item.id.len() + item.json.len();
        self.items.iter().map(item).sum::<usize>() + self.repeated_fields.len()
    }
}

/// A stream's id in hexadecimal.
pub(crate) mod hex_id {
    use super::{Deserialize, Deserializer, Serializer, StreamId};

    pub(crate) fn serialize<S: Serializer>(
        id: &StreamId,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<StreamId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A stream's id in hexadecimal, or null.
mod optional_id {
    use super::{Deserialize, Deserializer, Serialize, Serializer, StreamId, hex_id};

    #[derive(Serialize, Deserialize)]
    struct HexId(#[serde(with = "hex_id")] StreamId);

    #[expect(clippy::ref_option, reason = "the signature that serde calls")]
    pub(super) fn serialize<S: Serializer>(
        id: &Option<StreamId>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        id.map(HexId).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<StreamId>, D::Error> {
        let id = Option::<HexId>::deserialize(deserializer)?;
        Ok(id.map(|id| id.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn note_has_golden_bytes() {
        let note = StoredNote {
            kind: StoredKind::ChatCompletion,
            created_unix_us: 5,
            items: Box::new([StoredItem {
                id: "chatcmpl-1-0".into(),
                json: r#"{"id":"chatcmpl-1-0","role":"user","content":1.50}"#.into(),
            }]),
            previous: Some(StreamId::from_random([7; 16])),
            metadata: [("a".to_owned(), "b".to_owned())].into(),
            repeated_fields: r#""seed":7"#.to_owned(),
            is_durable: true,
        };
        let golden = concat!(
            r#"{"kind":"chat_completion","created_unix_us":5,"items":[{"id":"chatcmpl-1-0","#,
            r#""json":"{\"id\":\"chatcmpl-1-0\",\"role\":\"user\",\"content\":1.50}"}],"#,
            r#""previous":"07070707070707070707070707070707","metadata":{"a":"b"},"#,
            r#""repeated_fields":"\"seed\":7"}"#,
        );
        assert_eq!(serde_json::to_string(&note).expect("JSON"), golden);
        let value = serde_json::to_value(&note).expect("JSON");
        assert_eq!(
            serde_json::from_value::<StoredNote>(value).expect("a note"),
            note
        );
        // Fields of later versions are ignored, missing ones have defaults.
        let short = json!({"kind": "response", "created_unix_us": 1, "items": [], "later": 1});
        let short: StoredNote = serde_json::from_value(short).expect("a note");
        assert_eq!((short.previous, short.metadata.len()), (None, 0));
    }
}
