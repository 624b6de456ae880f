//! Identity of a model by content: digests of what decides the tokens of a stream.
//!
//! - **weights**: the hyperparameters, and of each tensor the name, the shape, the type and a sample of the stored bytes.
//!   The sample is [`SAMPLE_BLOCKS`] blocks of [`SAMPLE_BLOCK_BYTES`], spread evenly from the first byte to the last;
//!   a tensor of at most as many bytes is read completely. Training changes all of a tensor, so two fine-tunes of one
//!   base model differ in the samples. An edit of single weights between two blocks is not noticed.
//!   Adapters are hashed completely, with their names.
//! - **tokenizer**: all `tokenizer.*` keys of a GGUF but the chat template; beside safetensors, `tokenizer.json`,
//!   `tokenizer_config.json` without the chat template, and the ids that end a generation.
//! - **template**: the source of the chat template, and the names of the output parsers.
//! - **arithmetic**: readable; see [`arithmetic_name`].

use super::ModelText;
use crate::config::{KvType, Quantize};
use crate::loading::OpenedAdapters;
use cpu::ARITHMETIC_VERSION;
use kernels::Isa;
use server::ModelIdentity;
use text::AnswerFormat;
use weights::ModelFiles;
use weights::gguf::{Gguf, Value};

/// Blocks that are read of one tensor.
const SAMPLE_BLOCKS: usize = 16;
/// Bytes of one block: a page of memory.
const SAMPLE_BLOCK_BYTES: usize = 4096;
const TEMPLATE_KEY: &str = "tokenizer.chat_template";

/// The identity of an open model. Its arithmetic is empty: known once the model is loaded, here or by engines.
pub(crate) fn identity_of(
    (files, adapters): (&ModelFiles, &OpenedAdapters),
    text: &ModelText,
    answers: AnswerFormat,
) -> ModelIdentity {
    ModelIdentity {
        weights: adapted_digest(weights_digest(files), adapters),
        tokenizer: text.tokenizer_digest.clone(),
        template: template_digest(text.template.as_deref(), answers),
        arithmetic: String::new(),
    }
}

/// Facts that decide the bits of a result beside weights and tokens. All vector levels without tiles give equal bits (decision
/// 0001); with tiles, results depend on the number of rows in a step (decision 0008).
pub(crate) fn arithmetic_name(kv: KvType, quantize: Option<Quantize>, isa: Isa) -> String {
    let kv = match kv {
        KvType::F16 => "f16",
        KvType::Q8 => "q8_0",
        KvType::Q4 => "q4_0 rotated",
    };
    let weights = match quantize {
        None => "stored",
        Some(Quantize::Q8) => "q8_0",
        Some(Quantize::Q4K) => "q4_k",
    };
    let level = match isa.name() {
        "scalar" => "scalar",
        _ if isa.is_batch_invariant() => "vectors",
        _ => ModelIdentity::TILES,
    };
    format!("version {ARITHMETIC_VERSION}, kv {kv}, weights {weights}, {level}")
}

/// A hash over parts with their lengths, so that no two lists of parts are one sequence of bytes.
pub(crate) struct PartsDigest(blake3::Hasher);

impl PartsDigest {
    pub(crate) fn new() -> Self {
        Self(blake3::Hasher::new())
    }

    pub(crate) fn add(&mut self, part: &[u8]) -> &mut Self {
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    /// Adds the keys that pass, in alphabetical order, with types and values.
    fn add_keys(&mut self, gguf: &Gguf, is_wanted: impl Fn(&str) -> bool) {
        let mut entries: Vec<_> = gguf.metadata().filter(|(key, _)| is_wanted(key)).collect();
        entries.sort_by_key(|(key, _)| *key);
        for (key, value) in entries {
            self.add(key.as_bytes());
            self.add_value(value);
        }
    }

    fn add_value(&mut self, value: Value<'_>) {
        self.add(value.kind().to_string().as_bytes());
        match value {
            Value::F32(number) => self.add(&number.to_le_bytes()),
            Value::F64(number) => self.add(&number.to_le_bytes()),
            Value::Bool(is_set) => self.add(&[u8::from(is_set)]),
            Value::String(text) => self.add(text.as_bytes()),
            Value::Array(array) => self
                .add(array.kind().to_string().as_bytes())
                .add(array.encoded()),
            integer => self.add(&integer.integer().unwrap_or_default().to_le_bytes()),
        };
    }

    pub(crate) fn finish(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }

    /// The digest as bytes.
    pub(crate) fn bytes(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

/// Digest of hyperparameters and of samples of all tensors.
pub(crate) fn weights_digest(files: &ModelFiles) -> String {
    const ARCHITECTURE: &str = "general.architecture";
    let mut digest = PartsDigest::new();
    let gguf = files.metadata();
    let family = gguf.need::<&str>(ARCHITECTURE).unwrap_or_default();
    let prefix = format!("{family}.");
    digest.add_keys(gguf, |key| key == ARCHITECTURE || key.starts_with(&prefix));
    let mut tensors = files.tensors();
    tensors.sort_by_key(|tensor| tensor.name);
    let mut sample = Vec::with_capacity(SAMPLE_BLOCKS * SAMPLE_BLOCK_BYTES);
    for tensor in tensors {
        digest.add(tensor.name.as_bytes());
        for dim in tensor.dims {
            digest.add(&dim.to_le_bytes());
        }
        digest.add(tensor.kind.to_string().as_bytes());
        let bytes = files.stored_bytes(tensor.name);
        digest.add(&(bytes.len() as u64).to_le_bytes());
        sample.clear();
        sample_blocks(&bytes).for_each(|block| sample.extend_from_slice(block));
        // One long input is hashed ten times as fast as many short ones.
        digest.add(blake3::hash(&sample).as_bytes());
    }
    digest.finish()
}

/// The digest of weights with adapters; without adapters, that of the weights. The names count, because requests name
/// adapters.
fn adapted_digest(weights: String, adapters: &OpenedAdapters) -> String {
    if adapters.adapters.is_empty() {
        return weights;
    }
    let mut digest = PartsDigest::new();
    digest.add(weights.as_bytes());
    for (name, adapter) in adapters.contents() {
        digest.add(b"adapter").add(name.as_bytes());
        for (tensor, scale, halves) in adapter.content() {
            digest.add(tensor.as_bytes()).add(&scale.to_le_bytes());
            for half in halves {
                let mut numbers = blake3::Hasher::new();
                for chunk in half.chunks(SAMPLE_BLOCK_BYTES) {
                    let bytes: Vec<u8> = chunk.iter().copied().flat_map(f32::to_le_bytes).collect();
                    numbers.update(&bytes);
                }
                digest.add(numbers.finalize().as_bytes());
            }
        }
    }
    digest.finish()
}

/// Blocks of a tensor's bytes from the first to the last; all bytes of a small tensor.
fn sample_blocks(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_small = bytes.len() <= SAMPLE_BLOCKS * SAMPLE_BLOCK_BYTES;
    let (blocks, size) = if is_small {
        (1, bytes.len())
    } else {
        (SAMPLE_BLOCKS, SAMPLE_BLOCK_BYTES)
    };
    let last_start = bytes.len() - size;
    (0..blocks).map(move |block| {
        let start = match blocks {
            1 => 0,
            // Divided before it is multiplied: no overflow.
            _ if block + 1 == blocks => last_start,
            _ => last_start / (blocks - 1) * block,
        };
        &bytes[start..start + size]
    })
}

/// Digest of the tokenizer in a GGUF's metadata.
pub(super) fn gguf_tokenizer_digest(gguf: &Gguf) -> String {
    let mut digest = PartsDigest::new();
    digest.add_keys(gguf, |key| {
        key.starts_with("tokenizer.") && !key.starts_with(TEMPLATE_KEY)
    });
    digest.finish()
}

fn template_digest(source: Option<&str>, answers: AnswerFormat) -> String {
    let mut digest = PartsDigest::new();
    digest
        .add(&[u8::from(source.is_some())])
        .add(source.unwrap_or_default().as_bytes())
        .add(answers.tools.name().as_bytes())
        .add(answers.reasoning.name().as_bytes());
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;
    use crate::model_files::ModelSource;
    use synth::{AdapterSynth, SynthSpec};

    fn identity(bytes: Vec<u8>) -> ModelIdentity {
        let files: ModelFiles = Gguf::from_bytes(bytes).unwrap().into();
        let text = ModelText::read(&ModelSource::built_in(), &files).unwrap();
        identity_of(
            (&files, &OpenedAdapters::default()),
            &text,
            AnswerFormat::default(),
        )
    }

    fn place_of(bytes: &[u8], text: &[u8]) -> usize {
        let mut windows = bytes.windows(text.len());
        windows.position(|window| window == text).unwrap()
    }

    /// A model with a template and a vocabulary of several kinds.
    fn model() -> Vec<u8> {
        crate::commands::synth::in_memory("tiny-llama", "Q8_0").unwrap()
    }

    #[test]
    fn equal_files_have_one_identity() {
        let identity = identity(model());
        assert_eq!(identity, self::identity(model()));
        for digest in [&identity.weights, &identity.tokenizer, &identity.template] {
            assert_eq!(digest.len(), 64);
        }
        assert!(identity.arithmetic.is_empty(), "known once it is loaded");
    }

    /// Which digests change with one bit of the file.
    fn changes(place: impl Fn(&[u8]) -> usize) -> [bool; 3] {
        let digests = |bytes: Vec<u8>| {
            let files: ModelFiles = Gguf::from_bytes(bytes).unwrap().into();
            let template = files.metadata().need::<&str>(TEMPLATE_KEY).ok();
            [
                weights_digest(&files),
                gguf_tokenizer_digest(files.metadata()),
                template_digest(template, AnswerFormat::default()),
            ]
        };
        let mut bytes = model();
        let plain = digests(bytes.clone());
        let place = place(&bytes);
        bytes[place] ^= 1;
        let other = digests(bytes);
        std::array::from_fn(|part| plain[part] != other[part])
    }

    #[test]
    fn one_changed_bit_changes_one_digest() {
        // Bytes of the value after the end of a key: type, element type and count, length of the first string.
        let behind = |key: &str, header: usize, bytes: &[u8]| {
            place_of(bytes, key.as_bytes()) + key.len() + header
        };
        let weight = changes(|bytes| bytes.len() - 40);
        assert_eq!(weight, [true, false, false], "a weight");
        let context = changes(|bytes| behind("llama.context_length", 4, bytes));
        assert_eq!(context, [true, false, false], "a hyperparameter");
        for key in ["tokenizer.ggml.tokens", "tokenizer.ggml.merges"] {
            let token = changes(|bytes| behind(key, 4 + 4 + 8 + 8, bytes));
            assert_eq!(token, [false, true, false], "{key}");
        }
        let template = changes(|bytes| behind(TEMPLATE_KEY, 4 + 8, bytes));
        assert_eq!(template, [false, false, true], "the template");
    }

    #[test]
    fn adapters_with_their_names_belong_to_the_weights() {
        let spec = SynthSpec::preset("tiny-llama").unwrap();
        let files: ModelFiles = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap().into();
        let folder = testing::folder::Folder::new("identity");
        let digest = |adapters: &[(&str, u64)]| {
            let mut settings = Settings::default();
            for (name, seed) in adapters {
                let (seed, path) = (*seed, folder.0.join(format!("{seed}.gguf")));
                let adapter = AdapterSynth {
                    seed,
                    rank: 2,
                    alpha: 1.0,
                };
                std::fs::write(&path, spec.adapter_bytes(&adapter).unwrap()).unwrap();
                let text = format!("{name}={}:0", path.display());
                settings.model.adapters.push(text);
            }
            let opened = OpenedAdapters::open(&files, &settings).unwrap();
            adapted_digest("weights".to_owned(), &opened)
        };
        assert_eq!(digest(&[]), "weights");
        assert_eq!(digest(&[("a", 1), ("b", 2)]), digest(&[("a", 1), ("b", 2)]));
        let mut all = [
            &[("a", 1)][..],
            &[("b", 1)],
            &[("a", 2)],
            &[("a", 1), ("b", 2)],
        ]
        .map(digest)
        .to_vec();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn output_parser_belongs_to_the_template() {
        let mut answers = AnswerFormat::default();
        let plain = template_digest(Some("x"), answers);
        answers.tools = text::ToolFamily::Hermes;
        assert_ne!(template_digest(Some("x"), answers), plain);
        assert_ne!(template_digest(None, AnswerFormat::default()), plain);
    }

    #[test]
    fn samples_reach_from_the_first_byte_to_the_last() {
        for length in [0, 1, 4096, 65_536, 65_537, 1_000_003] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let blocks: Vec<_> = sample_blocks(&bytes).collect();
            let read: usize = blocks.iter().map(|block| block.len()).sum();
            assert_eq!(read, length.min(SAMPLE_BLOCKS * SAMPLE_BLOCK_BYTES));
            assert!(bytes.starts_with(blocks[0]));
            assert!(bytes.ends_with(blocks[blocks.len() - 1]));
        }
    }

    #[test]
    fn settings_that_decide_bits_are_named() {
        let rows = [
            (KvType::Q8, None, "kv q8_0, weights stored"),
            (KvType::Q4, None, "kv q4_0 rotated, weights stored"),
            (KvType::F16, Some(Quantize::Q4K), "kv f16, weights q4_k"),
        ];
        for isa in Isa::available() {
            let level = match isa.name() {
                "scalar" => "scalar",
                "amx" => "tiles",
                _ => "vectors",
            };
            for (kv, quantize, expected) in rows {
                let name = arithmetic_name(kv, quantize, isa);
                assert!(name.ends_with(&format!("{expected}, {level}")), "{name}");
                let identity = ModelIdentity {
                    arithmetic: name,
                    ..ModelIdentity::default()
                };
                assert_eq!(identity.computes_as(&identity), level != "tiles");
            }
        }
    }
}
