//! Configuration of an encoder, typed and checked, from a file's metadata.

pub use crate::config::encoder_kind::EncoderKind;
use crate::config::encoder_kind::SEPARATOR_KEY;
use crate::config::keys::Keys;
use crate::config::state_head::{POOLING_RANK, SCORES};
use crate::config::{self, ConfigError, ExpertsConfig, HeadSizes, limits};
use crate::gguf::{Gguf, Value};
use kernels::{KvKind, KvShape, RopePairs, RopeSpec};

/// Base of the rope's frequencies where the file names none.
const THETA: f32 = 10_000.0;

impl EncoderKind {
    /// Whether a file of this family scores documents: it has a classification head, or its pooling says so. Early
    /// files of rerankers name no pooling.
    pub fn ranks(self, gguf: &Gguf) -> bool {
        let pooling = gguf.need::<u32>(&format!("{}.pooling_type", self.name()));
        matches!(pooling, Ok(POOLING_RANK)) || gguf.tensor(SCORES).is_some()
    }

    /// The family of a file; `None` for a file that is not of a supported encoder.
    pub fn of(gguf: &Gguf) -> Option<Self> {
        let name = config::architecture_name(gguf).ok()?;
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Configuration of an encoder: all numbers that the forward pass needs besides the weights.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderConfig {
    /// The family.
    pub kind: EncoderKind,
    /// Layers.
    pub layers: usize,
    /// Width of the stream.
    pub dim: usize,
    /// Width of the feed-forward part.
    pub hidden: usize,
    /// Experts of the feed-forward part in some layers.
    pub experts: Option<EncoderExperts>,
    /// Query heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Positions in the model's training, and learned positions.
    pub context_trained: usize,
    /// Positions of a text.
    pub context_max: usize,
    /// Epsilon of every layer norm.
    pub norm_eps: f32,
    /// The rope; `None`: learned positions.
    pub rope: Option<RopeSpec>,
    /// The token after which a text's tokens are of the second type.
    pub separator: Option<u32>,
    /// Whether the file has a classification head, whose scores replace hidden states.
    pub ranks: bool,
}

/// Experts in some layers of an encoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncoderExperts {
    /// The experts of one layer.
    pub experts: ExpertsConfig,
    /// The second of each so many layers has experts.
    pub period: usize,
}

impl EncoderConfig {
    /// Reads and checks a file's metadata. `context_max` bounds a text; `None` means the context of the training.
    ///
    /// # Errors
    /// The first key that is missing, of the wrong type, out of bounds or unsupported.
    pub fn from_gguf(
        gguf: &Gguf,
        kind: EncoderKind,
        context_max: Option<usize>,
    ) -> Result<Self, ConfigError> {
        let keys = Keys::new(gguf, kind.name());
        refuse_causal(&keys)?;
        let dim = config::grouped(&keys, "embedding_length", limits::DIM)?;
        let heads = HeadSizes::read(&keys, dim)?;
        keys.size("pooling_type", 0, limits::POOLING)?;
        let (context_trained, context_max) = config::read_context(&keys, context_max)?;
        Ok(Self {
            kind,
            layers: keys.required("block_count", 1, limits::LAYERS)?,
            dim,
            hidden: config::grouped(&keys, "feed_forward_length", limits::HIDDEN)?,
            experts: read_experts(&keys, kind)?,
            heads: heads.queries,
            kv_heads: heads.keys,
            head_dim: heads.dim,
            context_trained,
            context_max,
            norm_eps: keys
                .float("attention.layer_norm_epsilon", limits::EPS)?
                .ok_or_else(|| keys.missing("attention.layer_norm_epsilon"))?,
            rope: match kind {
                EncoderKind::Bert => None,
                EncoderKind::NomicBert | EncoderKind::NomicBertMoe => {
                    Some(read_rope(&keys, heads.dim)?)
                }
            },
            separator: separator(gguf),
            ranks: kind.ranks(gguf),
        })
    }

    /// Whether the feed-forward part has a gate.
    pub fn is_gated(&self) -> bool {
        self.kind == EncoderKind::NomicBert
    }

    /// The experts of layer `layer`.
    pub fn experts_of(&self, layer: usize) -> Option<&ExpertsConfig> {
        let experts = self.experts.as_ref()?;
        (layer % experts.period == 1).then_some(&experts.experts)
    }

    /// Columns of a row of queries.
    pub fn query_cols(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of a row of keys, and of values.
    pub fn kv_cols(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Shape of the store of keys and values: one layer, since no text outlives its batch.
    pub fn kv_shape(&self, pages: usize, page_tokens: usize) -> KvShape {
        KvShape {
            layers: 1,
            pages,
            page_tokens,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            kind: KvKind::F16,
        }
    }
}

/// The token between two texts: the separator of BERT's vocabularies.
fn separator(gguf: &Gguf) -> Option<u32> {
    let Ok(vocabulary) = gguf.tokenizer() else {
        // Safetensors have no vocabulary among their keys.
        return gguf.need::<u32>(SEPARATOR_KEY).ok();
    };
    let mut tokens = vocabulary.tokens.clone();
    let by_text = tokens.position(|token| token.as_str() == Some("[SEP]"));
    let by_text = by_text.and_then(|id| u32::try_from(id).ok());
    vocabulary.separator.or(by_text)
}

fn read_experts(keys: &Keys<'_>, kind: EncoderKind) -> Result<Option<EncoderExperts>, ConfigError> {
    if kind != EncoderKind::NomicBertMoe {
        config::refuse_experts(keys)?;
        return Ok(None);
    }
    Ok(Some(EncoderExperts {
        experts: config::read_experts_of_encoder(keys)?,
        period: keys.required("moe_every_n_layers", 2, limits::LAYERS)?,
    }))
}

fn refuse_causal(keys: &Keys<'_>) -> Result<(), ConfigError> {
    match keys.get("attention.causal") {
        None | Some(Value::Bool(false)) => Ok(()),
        Some(Value::Bool(true)) => Err(keys.unsupported("attention.causal", "causal attention")),
        Some(_) => Err(keys.wrong_type("attention.causal", "true or false")),
    }
}

fn read_rope(keys: &Keys<'_>, head_dim: usize) -> Result<RopeSpec, ConfigError> {
    if keys
        .text("rope.scaling.type")?
        .is_some_and(|kind| kind != "none")
    {
        return Err(keys.unsupported("rope.scaling.type", "a stretched context"));
    }
    let dims = keys.size("rope.dimension_count", 2, head_dim)?;
    let dims = dims.unwrap_or(head_dim);
    if !dims.is_multiple_of(2) {
        return Err(keys.range("rope.dimension_count", dims, "even"));
    }
    Ok(RopeSpec {
        dims,
        theta: keys
            .float("rope.freq_base", limits::THETA)?
            .unwrap_or(THETA),
        freq_scale: 1.0,
        factors: None,
        magnitude: 1.0,
        pairs: RopePairs::Halves,
        yarn: None,
    })
}
