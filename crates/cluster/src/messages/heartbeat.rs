//! Heartbeats: what each instance is, serves and has free, several times a second.

use super::MessageError;
use crate::names::{CLUSTER_NAME_MAX, ClusterId, InstanceId};
use serde::{Deserialize, Serialize};

/// Bytes of a heartbeat.
pub const HEARTBEAT_BYTES_MAX: usize = 64 << 10;
/// Models of one instance.
pub const MODELS_MAX: usize = 64;
/// API keys that a heartbeat names.
pub const KEYS_SAMPLE_MAX: usize = 32;
/// Version of heartbeats that this build writes and reads.
const HEARTBEAT_VERSION: u32 = 1;
/// Bytes of a name, of an address and of a digest.
const TEXT_BYTES_MAX: usize = 512;

/// Part of an instance in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Gateway and engine in one process.
    #[default]
    All,
    /// Owns streams, and has no weights.
    Gateway,
    /// Computes tokens for gateways.
    Engine,
}

impl Role {
    /// The role's name, as in settings and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Gateway => "gateway",
            Self::Engine => "engine",
        }
    }
}

/// Digests of what decides a model's tokens; only equal ones continue each other's streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct ContentIdentity {
    /// Hyperparameters and tensors.
    pub weights: String,
    /// Vocabulary and pre-tokenizer.
    pub tokenizer: String,
    /// Chat template and answer format.
    pub template: String,
    /// Readable list of the settings that decide the bits of a result.
    pub arithmetic: String,
}

impl ContentIdentity {
    /// Whether weights, tokenizer and template are the same. The arithmetic is the engines' own.
    pub fn has_content_of(&self, other: &Self) -> bool {
        self.weights == other.weights
            && self.tokenizer == other.tokenizer
            && self.template == other.template
    }
}

/// Load of a model's engine. Zeros where the engine does not report a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedLoad {
    /// Pages of the KV cache.
    pub pages_total: u64,
    /// Pages without content.
    pub pages_free: u64,
    /// Pages without a sequence, kept in the prefix cache.
    pub pages_cached: u64,
    /// Tokens of one page.
    pub page_tokens: u64,
    /// Sequences that may run at once.
    pub slots: u32,
    /// Requests that are not started.
    pub queued: u32,
    /// Choices that are started.
    pub running: u32,
    /// Time of the last step, microseconds.
    pub step_us: u64,
    /// Prompt tokens that are to be computed, of all requests.
    pub prefill_pending: Option<u64>,
    /// Measured rate of prefill.
    pub prefill_tokens_per_s: Option<f64>,
    /// Changes when the prefix cache is emptied, for instance by a restart.
    pub cache_epoch: u64,
}

/// A model that an instance serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServedModel {
    /// Name in requests.
    pub key: String,
    /// Content.
    pub identity: ContentIdentity,
    /// Tokens that prompt and answer may have together.
    pub context_max: u64,
    /// Entries of the vectors that the engine gives to gateways; 0: no embeddings.
    #[serde(skip_serializing_if = "is_zero")]
    pub hidden_dim: u64,
    /// Fingerprint of the tower that computes images, in hexadecimal digits; empty: the instance sees no images.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tower: String,
    /// Load of the engine; absent where the instance has no engine for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<ReportedLoad>,
}

/// Streams of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnedStreams {
    /// Open now.
    pub open: u64,
    /// Ended, and retained.
    pub retained: u64,
}

/// One heartbeat, as JSON. Unknown fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Version of this message; [`Heartbeat::new`] sets it.
    pub v: u32,
    /// The process.
    pub id: InstanceId,
    /// Part in the cluster.
    pub role: Role,
    /// Name of the cluster.
    pub cluster: String,
    /// Version of the program.
    pub version: String,
    /// Host and port that other instances reach this one's HTTP interface at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Models, at most [`MODELS_MAX`].
    #[serde(default)]
    pub models: Vec<ServedModel>,
    /// Whether the instance takes no new requests because it shuts down.
    #[serde(default)]
    pub leaving: bool,
    /// Greatest version of stream records that the instance reads.
    #[serde(default)]
    pub record_version: u32,
    /// Digest of the API keys, for the detection of instances with other keys.
    #[serde(default)]
    pub keys_digest: String,
    /// Numbers of some API keys, the least ones, at most [`KEYS_SAMPLE_MAX`]: whether two instances have a key in common.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys_sample: Vec<u64>,
    /// The cluster that the instance belongs to; absent at engines, and at a gateway that does not know it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<ClusterId>,
    /// Streams of a gateway; absent at an engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<OwnedStreams>,
    /// Seconds since the instance has joined the cluster.
    #[serde(default)]
    pub uptime_s: u64,
    /// Wall time at the instance.
    #[serde(default)]
    pub at_unix_ms: u64,
    /// Greater than in all earlier heartbeats of the instance, also of earlier processes with its id; 0 in older versions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub number: u64,
}

impl Heartbeat {
    /// A heartbeat of this instance, with all other fields empty.
    pub fn new(id: InstanceId, role: Role) -> Self {
        Self {
            v: HEARTBEAT_VERSION,
            id,
            role,
            ..Self::default()
        }
    }

    /// JSON.
    ///
    /// # Errors
    /// A part is longer than its bound, or the whole than [`HEARTBEAT_BYTES_MAX`].
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        self.check()?;
        let malformed = |_| MessageError::Malformed("heartbeat");
        let json = serde_json::to_vec(self).map_err(malformed)?;
        if json.len() > HEARTBEAT_BYTES_MAX {
            return Err(MessageError::TooMany("bytes", HEARTBEAT_BYTES_MAX));
        }
        Ok(json)
    }

    /// The heartbeat of these bytes.
    ///
    /// # Errors
    /// The bytes are no heartbeat, one of a newer version, or have a part longer than its bound.
    pub fn decode(json: &[u8]) -> Result<Self, MessageError> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        if json.len() > HEARTBEAT_BYTES_MAX {
            return Err(MessageError::TooMany("bytes", HEARTBEAT_BYTES_MAX));
        }
        let malformed = |_| MessageError::Malformed("heartbeat");
        let version: Version = serde_json::from_slice(json).map_err(malformed)?;
        if version.v != HEARTBEAT_VERSION {
            let version = u8::try_from(version.v).unwrap_or(u8::MAX);
            return Err(MessageError::Version(version));
        }
        let heartbeat: Self = serde_json::from_slice(json).map_err(malformed)?;
        heartbeat.check()?;
        Ok(heartbeat)
    }

    /// Whether both instances have an API key in common, or need none.
    pub fn shares_keys_with(&self, other: &Self) -> bool {
        let is_common = |key: &u64| other.keys_sample.contains(key);
        self.keys_digest == other.keys_digest || self.keys_sample.iter().any(is_common)
    }

    fn check(&self) -> Result<(), MessageError> {
        check_text("cluster", &self.cluster, CLUSTER_NAME_MAX)?;
        check_text("version", &self.version, TEXT_BYTES_MAX)?;
        check_text("keys_digest", &self.keys_digest, TEXT_BYTES_MAX)?;
        check_text("http", self.http.as_deref().unwrap_or(""), TEXT_BYTES_MAX)?;
        if self.keys_sample.len() > KEYS_SAMPLE_MAX {
            return Err(MessageError::TooMany("keys", KEYS_SAMPLE_MAX));
        }
        if self.models.len() > MODELS_MAX {
            return Err(MessageError::TooMany("models", MODELS_MAX));
        }
        self.models.iter().try_for_each(ServedModel::check)
    }
}

impl ServedModel {
    fn check(&self) -> Result<(), MessageError> {
        check_text("key", &self.key, TEXT_BYTES_MAX)?;
        check_text("tower", &self.tower, TEXT_BYTES_MAX)?;
        self.identity.check()?;
        let rate = self.load.and_then(|load| load.prefill_tokens_per_s);
        if rate.is_none_or(|rate| rate.is_finite() && rate >= 0.0) {
            Ok(())
        } else {
            Err(MessageError::Malformed("prefill_tokens_per_s"))
        }
    }
}

impl ContentIdentity {
    /// Names and digests that identify the content, in order.
    pub(super) fn parts(&self) -> [&str; 4] {
        [
            &self.weights,
            &self.tokenizer,
            &self.template,
            &self.arithmetic,
        ]
    }

    fn check(&self) -> Result<(), MessageError> {
        let mut parts = self.parts().into_iter();
        parts.try_for_each(|part| check_text("identity", part, TEXT_BYTES_MAX))
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn check_text(name: &'static str, text: &str, max: usize) -> Result<(), MessageError> {
    if text.len() <= max && !text.chars().any(char::is_control) {
        Ok(())
    } else {
        Err(MessageError::Malformed(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn heartbeat() -> Heartbeat {
        let model = ServedModel {
            key: "qwen3".into(),
            context_max: 4096,
            hidden_dim: 896,
            load: Some(ReportedLoad {
                pages_total: 100,
                prefill_tokens_per_s: Some(12.5),
                ..ReportedLoad::default()
            }),
            ..ServedModel::default()
        };
        Heartbeat {
            cluster: "local".into(),
            http: Some("127.0.0.1:8080".into()),
            models: vec![model],
            ..Heartbeat::new(InstanceId(7), Role::Engine)
        }
    }

    #[test]
    fn heartbeats_are_read_back() {
        let json = heartbeat().encode().unwrap();
        assert_eq!(Heartbeat::decode(&json), Ok(heartbeat()));
        let text = String::from_utf8(json).unwrap();
        assert!(
            text.contains(r#""v":1,"id":"0000000000000007","role":"engine""#),
            "{text}"
        );
    }

    #[test]
    fn newer_versions_are_named_and_unknown_fields_ignored() {
        let newer = br#"{"v": 2, "id": {"new": "form"}}"#;
        assert_eq!(Heartbeat::decode(newer), Err(MessageError::Version(2)));
        let json = String::from_utf8(heartbeat().encode().unwrap()).unwrap();
        let json = json.replacen('{', r#"{"later": [1, 2],"#, 1);
        assert_eq!(Heartbeat::decode(json.as_bytes()), Ok(heartbeat()));
    }

    #[test]
    fn keys_are_in_common_where_one_is_or_none_is_needed() {
        let of = |digest: &str, keys: &[u64]| Heartbeat {
            keys_digest: digest.to_owned(),
            keys_sample: keys.to_vec(),
            ..Heartbeat::default()
        };
        let (a, b, none) = (of("a", &[1, 2]), of("b", &[2, 3]), of("", &[]));
        assert!(a.shares_keys_with(&b) && none.shares_keys_with(&none));
        assert!(!a.shares_keys_with(&of("c", &[4])) && !a.shares_keys_with(&none));
    }

    #[test]
    fn parts_above_their_bounds_are_rejected() {
        let rows: [fn(&mut Heartbeat); 7] = [
            |h| h.keys_sample = vec![1; KEYS_SAMPLE_MAX + 1],
            |h| h.cluster = "x".repeat(CLUSTER_NAME_MAX + 1),
            |h| h.version = "a\nb".into(),
            |h| h.http = Some("x".repeat(TEXT_BYTES_MAX + 1)),
            |h| h.models = vec![ServedModel::default(); MODELS_MAX + 1],
            |h| h.models[0].identity.arithmetic = "x".repeat(TEXT_BYTES_MAX + 1),
            |h| h.models[0].load.as_mut().unwrap().prefill_tokens_per_s = Some(-1.0),
        ];
        for change in rows {
            let mut heartbeat = heartbeat();
            change(&mut heartbeat);
            assert!(heartbeat.encode().is_err(), "{heartbeat:?}");
            let json = serde_json::to_vec(&heartbeat).unwrap();
            assert!(Heartbeat::decode(&json).is_err(), "{heartbeat:?}");
        }
        let long = vec![b' '; HEARTBEAT_BYTES_MAX + 1];
        let too_long = MessageError::TooMany("bytes", HEARTBEAT_BYTES_MAX);
        assert_eq!(Heartbeat::decode(&long), Err(too_long));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_heartbeat_or_an_error(at in 0_usize..400, byte: u8) {
            let mut json = heartbeat().encode().unwrap();
            let at = at % json.len();
            json[at] = byte;
            let _ = Heartbeat::decode(&json);
            prop_assert!(Heartbeat::decode(&json[..at]).is_err());
        }
    }
}
