//! The description of a stream: everything that decides the tokens and frames of the answer, beside the tokens
//! themselves. JSON; unknown fields are ignored, and fields that an older version did not write have defaults.

use super::json_record::{
    DescriptionError, check_options, check_prepared, check_requested, from_json, require_name,
    require_unix_s, require_unix_us, to_json,
};
use generate::images::{ImageRecord, detail_of_name};
use generate::request::Priority;
use generate::request::{CHOICES_MAX, GenerationParams, Prompt, StreamOptions};
use generate::request_record::PromptRecord;
use generate::value_bounds::{InvalidValue, check_params, require, require_tokens};
use journal::BlobName;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wire::framing::Framing;
use wire::openai::chat_encoder::ReasoningField;
use wire::protocol::Protocol;
use wire::shared::job_outcome::{JOB_ID_MESSAGE, JobId};

/// Bytes of a description with prompts that are not prepared yet, and of prepared prompts. A description with
/// prepared prompts has at most the sum of both.
pub const DESCRIPTION_BYTES_MAX: usize = 8 << 20;

/// Bytes of a record's body beside the description.
const OPEN_BYTES_MAX: usize = 1 << 10;

/// Bytes of a description with prepared prompts.
const PREPARED_DESCRIPTION_BYTES_MAX: usize = journal::RECORD_BYTES_MAX - OPEN_BYTES_MAX;

/// The opening of a stream: the body of [`journal::Open`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamDescription {
    /// Kind of the stream.
    pub kind: DescriptionKind,
    /// Owner of the stream.
    pub owner: u64,
    /// Wire protocol of the request.
    #[serde(with = "by_name::protocol")]
    pub protocol: Protocol,
    /// Framing of the response.
    #[serde(with = "by_name::framing")]
    pub framing: Framing,
    /// Field of chat messages with the reasoning.
    #[serde(with = "by_name::reasoning_field")]
    pub reasoning_field: ReasoningField,
    /// Credit comes from the client's acknowledgements alone.
    pub explicit_acks: bool,
    /// Tokens a choice may be ahead; 0 = no limit.
    pub credit_window: u64,
    /// Tokens that the detached stream may generate beyond the credit window, per choice.
    pub detached_tokens: u64,
    /// Id of the response.
    pub response_id: String,
    /// Creation time in responses.
    pub created_unix_s: i64,
    /// Wall time of the opening.
    pub opened_unix_us: u64,
    /// Wall time of the deadline.
    #[serde(default)]
    pub deadline_unix_us: Option<u64>,
    /// Name of the model in responses.
    pub model: String,
    /// Id of the model's entry, by which the model is loaded.
    pub model_key: String,
    /// Content of the model.
    #[serde(default)]
    pub identity: ModelIdentity,
    /// The model's context length at the opening, which limits the answers.
    pub context_max: usize,
    /// Answers per prompt.
    pub n: usize,
    /// How answers are generated, with the seed that was drawn.
    pub params: GenerationParams,
    /// How answers are delivered.
    pub stream_options: StreamOptions,
    /// Priority in the admission queue and in the scheduler.
    #[serde(default)]
    pub priority: Priority,
    /// The prompts, in order.
    pub prompts: RecordedPrompts,
    /// Images of the prompts, by number; their bytes are blobs of the journal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRecord>,
    /// Bytes of the request's body.
    #[serde(default)]
    pub body_bytes: usize,
    /// The client's name of the job.
    #[serde(default)]
    pub job_id: Option<String>,
    /// Note for the stored response.
    #[serde(default)]
    pub stored: Option<Value>,
}

/// Subject of a description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DescriptionKind {
    /// Answers to prompts.
    #[default]
    Generation,
    /// A run of a workflow.
    WorkflowRun,
    /// A stored response without a stream.
    StoredBlob,
    /// An event about an end, to be delivered to a webhook.
    WebhookDelivery,
    /// An object of an earlier version that this one has no use for: removed when the journal is read.
    #[serde(rename = "mailbox_event")]
    Retired,
}

/// The kind of any description.
#[derive(Deserialize)]
struct KindOfDescription {
    kind: DescriptionKind,
}

impl DescriptionKind {
    /// The kind in words, for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Generation => "generation",
            Self::WorkflowRun => "workflow run",
            Self::StoredBlob => "stored response",
            Self::WebhookDelivery => "webhook event",
            Self::Retired => "object of an earlier version",
        }
    }

    /// The kind of the object that bytes of a journal describe; `None` for those of a later version.
    pub fn of(description: &[u8]) -> Option<Self> {
        let kind = serde_json::from_slice::<KindOfDescription>(description);
        kind.ok().map(|described| described.kind)
    }
}

/// The owner in any description.
#[derive(Deserialize)]
struct OwnerOfDescription {
    #[serde(default)]
    owner: u64,
}

/// The hash of the API key in the description of a stream; 0 for another object.
pub fn key_of_description(description: &[u8]) -> u64 {
    let owned = serde_json::from_slice::<OwnerOfDescription>(description);
    owned.map_or(0, |owned| owned.owner)
}

/// The images in any description.
#[derive(Deserialize)]
struct ImagesOfDescription {
    #[serde(default)]
    images: Vec<ImageRecord>,
}

/// The images of a stream, whose bytes are files; none for another object.
pub(crate) fn images_of_description(description: &[u8]) -> Vec<ImageRecord> {
    let described = serde_json::from_slice::<ImagesOfDescription>(description);
    described.map_or_else(|_| Vec::new(), |described| described.images)
}

/// Names of the files with the images of a stream, each once; none for another object.
pub fn files_of_description(description: &[u8]) -> Vec<BlobName> {
    let mut names = Vec::new();
    let images = images_of_description(description);
    for name in images.iter().filter_map(ImageRecord::digest) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The prompts of a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedPrompts {
    /// As the client sent them.
    Requested(Vec<Prompt>),
    /// As the engine received them.
    Prepared(Vec<PromptRecord>),
}

impl RecordedPrompts {
    /// Number of prompts.
    pub fn len(&self) -> usize {
        match self {
            Self::Requested(prompts) => prompts.len(),
            Self::Prepared(prompts) => prompts.len(),
        }
    }

    /// Whether there is no prompt.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for RecordedPrompts {
    fn default() -> Self {
        Self::Requested(Vec::new())
    }
}

impl StreamDescription {
    /// The body of [`journal::Open`].
    ///
    /// # Errors
    /// The description is too long, or JSON of the client is nested deeper than the limit for decoding.
    pub fn encode(&self) -> Result<Vec<u8>, DescriptionError> {
        let bytes_max = match self.prompts {
            RecordedPrompts::Requested(_) => DESCRIPTION_BYTES_MAX,
            RecordedPrompts::Prepared(_) => PREPARED_DESCRIPTION_BYTES_MAX,
        };
        to_json::<Self>(self, bytes_max)
    }

    /// The description of a body. All values are within the bounds of a request.
    ///
    /// # Errors
    /// A field is missing, has another type, or a value that a request cannot have.
    pub fn decode(body: &[u8]) -> Result<Self, DescriptionError> {
        let description: Self = from_json(body, PREPARED_DESCRIPTION_BYTES_MAX)?;
        description.check()?;
        Ok(description)
    }

    /// The body of [`journal::Record::Prepared`].
    ///
    /// # Errors
    /// The prompts are too long, or tools are nested deeper than the limit for decoding.
    pub fn encode_prepared(prompts: &[PromptRecord]) -> Result<Vec<u8>, DescriptionError> {
        to_json::<Vec<PromptRecord>>(&prompts, DESCRIPTION_BYTES_MAX - OPEN_BYTES_MAX)
    }

    /// Replaces the prompts by those of a body of [`journal::Record::Prepared`].
    ///
    /// # Errors
    /// As [`decode`](Self::decode), or the number of prompts is another one.
    pub fn set_prepared(&mut self, body: &[u8]) -> Result<(), DescriptionError> {
        let prompts: Vec<PromptRecord> = from_json(body, DESCRIPTION_BYTES_MAX)?;
        let expected = self.prompts.len();
        require(prompts.len() == expected, || {
            format!("prompts: are {}; the request has {expected}", prompts.len())
        })?;
        check_prepared(&prompts, self.context_max)?;
        self.prompts = RecordedPrompts::Prepared(prompts);
        Ok(())
    }

    /// Rejects what no parser of a wire protocol builds.
    fn check(&self) -> Result<(), InvalidValue> {
        let (n, prompts) = (self.n, self.prompts.len());
        let choices = n.saturating_mul(prompts);
        let is_generation = self.kind == DescriptionKind::Generation;
        require(
            choices <= CHOICES_MAX && (choices > 0 || !is_generation),
            || format!("n: {n} for each of {prompts} prompts; from 1 to {CHOICES_MAX} in all"),
        )?;
        for (name, text) in [
            ("response_id", &self.response_id),
            ("model", &self.model),
            ("model_key", &self.model_key),
        ] {
            require_name(name, text)?;
        }
        if let Some(id) = &self.job_id {
            require(JobId::parse(id).is_some(), || {
                format!("job_id: {JOB_ID_MESSAGE}")
            })?;
        }
        require_unix_s("created_unix_s", self.created_unix_s)?;
        require_unix_us("opened_unix_us", self.opened_unix_us)?;
        require_unix_us("deadline_unix_us", self.deadline_unix_us.unwrap_or(0))?;
        require_tokens("credit_window", self.credit_window)?;
        require_tokens("detached_tokens", self.detached_tokens)?;
        require_tokens("context_max", self.context_max as u64)?;
        require_tokens("body_bytes", self.body_bytes as u64)?;
        self.images.iter().try_for_each(check_image)?;
        check_params(&self.params)?;
        check_options(&self.stream_options, n)?;
        match &self.prompts {
            RecordedPrompts::Requested(prompts) => check_requested(prompts),
            RecordedPrompts::Prepared(prompts) => check_prepared(prompts, self.context_max),
        }
    }
}

fn check_image(image: &ImageRecord) -> Result<(), InvalidValue> {
    let is_known = image.digest().is_some() && detail_of_name(&image.detail).is_some();
    require(is_known, || {
        "images: an image has no hash, or no detail".to_owned()
    })
}

/// Enums of crate `wire`, encoded by their names.
mod by_name {
    /// A module for `#[serde(with)]` of an enum with `name` and `from_name`.
    macro_rules! by_name {
        ($module:ident, $Enum:ty) => {
            pub(super) mod $module {
                use serde::de::Error;
                use serde::{Deserialize, Deserializer, Serialize, Serializer};

                pub(crate) fn serialize<S: Serializer>(
                    value: &$Enum,
                    serializer: S,
                ) -> Result<S::Ok, S::Error> {
                    value.name().serialize(serializer)
                }

                pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<$Enum, D::Error> {
                    let name = String::deserialize(deserializer)?;
                    <$Enum>::from_name(&name)
                        .ok_or_else(|| D::Error::custom(format!("{name:?} is an unknown name")))
                }
            }
        };
    }

    by_name!(protocol, wire::protocol::Protocol);
    by_name!(framing, wire::framing::Framing);
    by_name!(reasoning_field, wire::openai::chat_encoder::ReasoningField);
}

/// Digests of what decides a model's tokens. The digests are hexadecimal BLAKE3; all parts are empty for a model whose
/// files are unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelIdentity {
    /// Hyperparameters, and names, shapes, types and sampled data of all tensors.
    pub weights: String,
    /// Vocabulary, merges, token types, special tokens and pre-tokenizer.
    pub tokenizer: String,
    /// Chat template and answer format.
    pub template: String,
    /// Readable list of the settings that decide the bits of a result, its terms separated by `, `; empty where that is not
    /// known.
    pub arithmetic: String,
}

impl ModelIdentity {
    /// The term of an arithmetic whose results depend on how many rows a step has (decision 0008).
    pub const TILES: &str = "tiles";

    /// Whether two computations give equal bits: both arithmetics are known and the same, and rows do not know their batch.
    pub fn computes_as(&self, other: &Self) -> bool {
        let mut terms = self.arithmetic.split(", ");
        let is_known = !self.arithmetic.is_empty() && self.arithmetic == other.arithmetic;
        is_known && terms.all(|term| term != Self::TILES)
    }
}

/// Result of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelMatch {
    /// The stream continues.
    Same {
        /// The settings that decide the bits of a result are other ones.
        is_recomputed: bool,
    },
    /// Other weights: the recorded tokens are readable, and no further token can be computed.
    Readable,
    /// Another vocabulary or template.
    Other,
}

impl ModelMatch {
    /// Compares the model at the opening with the loaded one.
    pub(crate) fn of(recorded: &ModelIdentity, loaded: &ModelIdentity) -> Self {
        let reads = recorded.tokenizer == loaded.tokenizer && recorded.template == loaded.template;
        match (reads, recorded.weights == loaded.weights) {
            (true, true) => Self::Same {
                is_recomputed: recorded.arithmetic != loaded.arithmetic
                    && !loaded.arithmetic.is_empty(),
            },
            (true, false) => Self::Readable,
            (false, _) => Self::Other,
        }
    }
}

#[cfg(test)]
mod model_match_tests {
    use super::*;

    #[test]
    fn content_decides_whether_a_stream_continues() {
        let identity = |weights: &str, tokenizer: &str, template: &str, arithmetic: &str| {
            let [weights, tokenizer, template, arithmetic] =
                [weights, tokenizer, template, arithmetic].map(str::to_owned);
            ModelIdentity {
                weights,
                tokenizer,
                template,
                arithmetic,
            }
        };
        let recorded = identity("w", "k", "t", "a");
        let same = |is_recomputed| ModelMatch::Same { is_recomputed };
        let rows = [
            (identity("w", "k", "t", "a"), same(false)),
            (identity("w", "k", "t", "b"), same(true)),
            (identity("w", "k", "t", ""), same(false)),
            (identity("v", "k", "t", "a"), ModelMatch::Readable),
            (identity("w", "j", "t", "a"), ModelMatch::Other),
            (identity("w", "k", "s", "a"), ModelMatch::Other),
        ];
        for (loaded, expected) in rows {
            assert_eq!(ModelMatch::of(&recorded, &loaded), expected, "{loaded:?}");
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod model_identity_tests {
    use super::*;

    #[test]
    fn bits_are_equal_with_one_known_arithmetic_without_tiles() {
        let rows = [
            ("v1, vectors", "v1, vectors", true),
            ("v1, vectors", "v2, vectors", false),
            ("v1, tiles", "v1, tiles", false),
            ("v1, tiles, kv q8_0", "v1, tiles, kv q8_0", false),
            ("v1, exact, kv q8_0", "v1, exact, kv q8_0", true),
            (
                "v1, tiles, images by avx2",
                "v1, tiles, images by avx2",
                false,
            ),
            ("v1, tilesets", "v1, tilesets", true),
            ("", "", false),
            ("v1, vectors", "", false),
        ];
        for (one, other, is_equal) in rows {
            let identity = |arithmetic: &str| ModelIdentity {
                arithmetic: arithmetic.to_owned(),
                ..ModelIdentity::default()
            };
            let (one, other) = (identity(one), identity(other));
            assert_eq!(one.computes_as(&other), is_equal, "{one:?} {other:?}");
        }
    }
}
