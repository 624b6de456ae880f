//! A stored answer as bytes for the journal, from which a later process restores the answer: the part that is known
//! before the answer, which is written with the stream, and the ended answer.
//!
//! ```text
//! note         StoredNote: the request, with an id for each item
//! description  StoredSnapshot: the request, owner, times, metadata
//! outcome      SnapshotOutcome: the answer and the output items as JSON, byte for byte
//! ```

use super::response_record::EndedResponse;
use crate::id_generator::IdGenerator;
use crate::records::{
    DESCRIPTION_BYTES_MAX, DescriptionError, DescriptionKind, from_json, to_json,
};
use bytes::Bytes;
use generate::stream_source::StreamMeta;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use stream::StreamId;
use wire::clock;
use wire::openai::stored_completion;
use wire::stored_request::{
    Metadata, StoredImage, StoredItem, StoredKind, StoredRequest, stored_item,
};

/// Version of snapshots that are taken now.
pub(crate) const SNAPSHOT_VERSION: u32 = 1;

/// Description of an ended answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredSnapshot {
    pub(crate) kind: DescriptionKind,
    /// Version of the format. A version above [`SNAPSHOT_VERSION`] is not read.
    pub(crate) version: u32,
    /// Id of the response.
    pub(crate) response_id: String,
    #[serde(with = "hex_id")]
    pub(crate) stream: StreamId,
    pub(crate) owner: u64,
    /// The model's name in the response.
    pub(crate) model: String,
    /// Wall time of the end.
    pub(crate) ended_unix_us: u64,
    /// Wall time of this snapshot: the last one of an answer counts.
    pub(crate) taken_unix_us: u64,
    /// The request, with the metadata of this time.
    pub(crate) note: StoredNote,
}

/// The answer.
#[derive(Serialize, Deserialize)]
struct SnapshotOutcome {
    body: Box<RawValue>,
    items: Vec<Box<RawValue>>,
}

/// Whether a recovered description is that of a stored answer, not of a stream.
pub fn is_stored_answer(description: &[u8]) -> bool {
    DescriptionKind::of(description) == Some(DescriptionKind::StoredBlob)
}

/// A stored answer without the texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSummary {
    /// Id of the response.
    pub response_id: String,
    /// The model's name in the response.
    pub model: String,
    /// Wall time of the request.
    pub created_unix_us: u64,
    /// Wall time of the end.
    pub ended_unix_us: u64,
}

impl StoredSummary {
    /// The summary of a description for which [`is_stored_answer`] is true.
    ///
    /// # Errors
    /// The bytes are of a later version, or were changed.
    pub fn decode(description: &[u8]) -> Result<Self, DescriptionError> {
        let snapshot = StoredSnapshot::decode_description(description)?;
        Ok(Self {
            response_id: snapshot.response_id,
            model: snapshot.model,
            created_unix_us: snapshot.note.created_unix_us,
            ended_unix_us: snapshot.ended_unix_us,
        })
    }
}

impl StoredSnapshot {
    /// Description and outcome.
    ///
    /// # Errors
    /// The description is longer than a description may be.
    pub(crate) fn encode(
        &self,
        outcome: &EndedResponse,
    ) -> Result<(Vec<u8>, Vec<u8>), DescriptionError> {
        let raw = |json: &[u8]| serde_json::from_slice(json).map_err(invalid);
        let items = outcome.items.iter().map(|item| raw(item.as_bytes()));
        let outcome = SnapshotOutcome {
            body: raw(&outcome.body)?,
            items: items.collect::<Result<_, _>>()?,
        };
        let description = to_json::<Self>(self, DESCRIPTION_BYTES_MAX)?;
        let outcome = serde_json::to_vec(&outcome).map_err(invalid)?;
        Ok((description, outcome))
    }

    /// The answer of these bytes.
    ///
    /// # Errors
    /// The bytes are of a later version, or were changed.
    pub(crate) fn decode(
        description: &[u8],
        outcome: &[u8],
    ) -> Result<(Self, EndedResponse), DescriptionError> {
        let snapshot = Self::decode_description(description)?;
        let outcome: SnapshotOutcome = serde_json::from_slice(outcome).map_err(invalid)?;
        let items = outcome.items.iter().map(|item| item.get().into());
        let outcome = EndedResponse {
            body: Bytes::copy_from_slice(outcome.body.get().as_bytes()),
            items: items.collect(),
            ended_unix_us: snapshot.ended_unix_us,
            is_discarded: false,
        };
        Ok((snapshot, outcome))
    }

    fn decode_description(description: &[u8]) -> Result<Self, DescriptionError> {
        let snapshot: Self = from_json(description, DESCRIPTION_BYTES_MAX)?;
        if snapshot.kind != DescriptionKind::StoredBlob || snapshot.version > SNAPSHOT_VERSION {
            let found = format!(
                "kind {}, version {}; this program reads version {SNAPSHOT_VERSION}",
                snapshot.kind.name(),
                snapshot.version
            );
            return Err(DescriptionError::Invalid(found));
        }
        Ok(snapshot)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "an argument of `map_err`")]
fn invalid(error: serde_json::Error) -> DescriptionError {
    DescriptionError::Invalid(error.to_string())
}

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
        let mut images = request.images.into_iter();
        let item = |(index, item)| {
            let stored = match kind {
                StoredKind::Response => stored_item(item, || ids.prefixed_id("")),
                StoredKind::ChatCompletion => {
                    stored_completion::stored_item(&meta.response_id, index, item)
                }
            };
            stored.holding(images.next().unwrap_or_default())
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

    /// Bytes of all texts but the metadata, and of the images.
    pub(crate) fn stored_bytes(&self) -> usize {
        let items = self.items.iter().map(StoredItem::stored_bytes);
        items.fold(self.repeated_fields.len(), usize::saturating_add)
    }

    /// The images that were taken out of the items.
    pub(crate) fn images(&self) -> impl Iterator<Item = &StoredImage> {
        self.items.iter().flat_map(|item| &item.images)
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
    use serde_json::{Value, json};

    fn snapshot() -> StoredSnapshot {
        StoredSnapshot {
            kind: DescriptionKind::StoredBlob,
            version: SNAPSHOT_VERSION,
            response_id: "resp_1".to_owned(),
            stream: StreamId::from_random([1; 16]),
            owner: u64::MAX,
            model: "m".to_owned(),
            ended_unix_us: 3,
            taken_unix_us: 4,
            note: StoredNote {
                kind: StoredKind::Response,
                created_unix_us: 2,
                items: Box::new([StoredItem {
                    id: "msg_1".into(),
                    json: r#"{"id":"msg_1"}"#.into(),
                    images: Vec::new(),
                    sent_urls: Vec::new(),
                }]),
                previous: None,
                metadata: [("a".to_owned(), "b".to_owned())].into(),
                repeated_fields: String::new(),
                is_durable: true,
            },
        }
    }

    fn ended() -> EndedResponse {
        EndedResponse {
            body: Bytes::from_static(br#"{"x":1.50,"y":[1e400]}"#),
            items: Box::new([r#"{"z":0.1000}"#.into()]),
            ended_unix_us: 3,
            is_discarded: false,
        }
    }

    #[test]
    fn snapshot_is_restored_byte_for_byte() {
        let (description, outcome) = snapshot().encode(&ended()).expect("short");
        assert!(is_stored_answer(&description));
        let summary = StoredSummary::decode(&description).expect("good");
        assert_eq!(
            (&*summary.response_id, summary.ended_unix_us),
            ("resp_1", 3)
        );
        let golden = concat!(
            r#"{"kind":"stored_blob","version":1,"response_id":"resp_1","#,
            r#""stream":"01010101010101010101010101010101","owner":18446744073709551615,"model":"m","#,
            r#""ended_unix_us":3,"taken_unix_us":4,"note":{"kind":"response","created_unix_us":2,"#,
            r#""items":[{"id":"msg_1","json":"{\"id\":\"msg_1\"}"}],"previous":null,"#,
            r#""metadata":{"a":"b"},"repeated_fields":""}}"#,
        );
        assert_eq!(String::from_utf8_lossy(&description), golden);
        let golden = r#"{"body":{"x":1.50,"y":[1e400]},"items":[{"z":0.1000}]}"#;
        assert_eq!(String::from_utf8_lossy(&outcome), golden);
        let (decoded, response) = StoredSnapshot::decode(&description, &outcome).expect("good");
        assert_eq!(decoded, snapshot());
        assert_eq!(
            (response.body, response.items),
            (ended().body, ended().items)
        );
    }

    #[test]
    fn changed_snapshot_is_an_error() {
        let (description, outcome) = snapshot().encode(&ended()).expect("short");
        let changed = |name: &str, value: Value| {
            let mut json: Value = serde_json::from_slice(&description).expect("JSON");
            json[name] = value;
            json.to_string().into_bytes()
        };
        let cut = &description[..description.len() - 1];
        for (label, description, outcome) in [
            ("later version", &*changed("version", json!(2)), &*outcome),
            (
                "another kind",
                &changed("kind", json!("generation")),
                &outcome,
            ),
            ("owner", &changed("owner", json!("me")), &outcome),
            ("stream", &changed("stream", json!("1")), &outcome),
            ("cut description", cut, &outcome),
            ("cut outcome", &description, &outcome[..5]),
            ("no outcome", &description, b""),
        ] {
            assert!(
                StoredSnapshot::decode(description, outcome).is_err(),
                "{label}"
            );
        }
        for other in [
            &b"{}"[..],
            b"",
            br#"{"kind":"generation"}"#,
            br#"{"kind":"later"}"#,
        ] {
            assert!(!is_stored_answer(other));
        }
    }

    #[test]
    fn note_has_golden_bytes() {
        let note = StoredNote {
            kind: StoredKind::ChatCompletion,
            created_unix_us: 5,
            items: Box::new([StoredItem {
                id: "chatcmpl-1-0".into(),
                json: r#"{"id":"chatcmpl-1-0","role":"user","content":1.50}"#.into(),
                images: Vec::new(),
                sent_urls: Vec::new(),
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
