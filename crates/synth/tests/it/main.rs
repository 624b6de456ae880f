//! Synthetic models: complete, deterministic, with the promised statistics.

use kernels::{Format, dequantize};
use std::path::PathBuf;
use synth::{Mix, RopeScaling, SynthSpec, VOCAB_MIN, preset_names};
use weights::gguf::{Gguf, Text};
use weights::{Architecture, Config};

fn preset(name: &str) -> SynthSpec {
    SynthSpec::preset(name).unwrap()
}

fn gguf(spec: &SynthSpec) -> Gguf {
    Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap()
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[test]
fn small_presets_load() {
    let heavy = [
        "llama-1b",
        "llama-8b",
        "gemma3-4b",
        "qwen3-0.6b",
        "qwen3-30b-a3b-slice",
        "mamba2-370m",
    ];
    for name in preset_names().filter(|name| !heavy.contains(&name.as_str())) {
        let spec = preset(&name);
        let gguf = gguf(&spec);
        let config =
            Config::from_gguf(&gguf, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(config.architecture, spec.architecture, "{name}");
        let elements: usize = gguf.tensors().map(|tensor| tensor.elements()).sum();
        assert_eq!(elements as u64, spec.parameters().unwrap(), "{name}");
        assert!(
            gguf.tensors().all(|tensor| tensor.format().is_ok()),
            "{name}"
        );
        let tokenizer = gguf.tokenizer().unwrap();
        assert_eq!(tokenizer.tokens.len(), spec.vocab as usize, "{name}");
        assert!(
            tokenizer
                .chat_template
                .is_some_and(|text| text.contains("<|im_start|>")),
            "{name}"
        );
    }
}

/// Four of 48 layers, with the embedding and the output matrix.
const SLICE: (&str, u64) = ("qwen3-30b-a3b-slice", 3_114_814_464);

#[test]
fn large_presets_have_model_shapes() {
    for (name, parameters) in [
        ("llama-1b", 1_235_814_432),
        ("llama-8b", 8_030_261_312),
        ("gemma3-4b", 3_880_263_168),
        ("qwen3-0.6b", 596_049_920),
        SLICE,
    ] {
        assert_eq!(preset(name).parameters().unwrap(), parameters, "{name}");
    }
    // As published: 2.3 billion besides the embeddings of layers, and 26 billion in 30 layers.
    let e2b = preset("gemma4-e2b").parameters().unwrap() - 262_144 * 35 * 256;
    assert!((2_250_000_000..2_350_000_000).contains(&e2b), "{e2b}");
    let slice = preset("gemma4-26b-a4b-slice").parameters().unwrap();
    let embedding = 262_144 * 2816;
    let whole = embedding + (slice - embedding) * 5;
    assert!((24_500_000_000..26_500_000_000).contains(&whole), "{whole}");
}

#[test]
fn weights_have_requested_deviation() {
    for mix in Mix::all().filter(|mix| matches!(mix, Mix::Uniform(_))) {
        let spec = SynthSpec {
            mix,
            ..preset("small-llama")
        };
        let gguf = gguf(&spec);
        let tensor = gguf.tensor("blk.1.ffn_down.weight").unwrap();
        let mut weights = vec![0.0; tensor.elements()];
        dequantize(tensor.format().unwrap(), tensor.bytes, &mut weights);
        let scale = (tensor.cols() as f64).sqrt();
        let count = weights.len() as f64;
        let mean = weights.iter().map(|&w| f64::from(w) * scale).sum::<f64>() / count;
        let square = weights
            .iter()
            .map(|&w| (f64::from(w) * scale).powi(2))
            .sum::<f64>()
            / count;
        assert!(mean.abs() < 0.03, "{mix}: mean {mean}");
        assert!(
            (square.sqrt() - 1.0).abs() < 0.06,
            "{mix}: deviation {}",
            square.sqrt()
        );
    }
}

#[test]
fn random_blocks_use_all_bits() {
    for format in [
        Format::Q2_K,
        Format::Q3_K,
        Format::Q4_K,
        Format::Q5_K,
        Format::Q6_K,
    ] {
        let spec = SynthSpec {
            mix: Mix::Uniform(format),
            ..preset("small-llama")
        };
        let gguf = gguf(&spec);
        let tensor = gguf.tensor("blk.0.ffn_down.weight").unwrap();
        let mut weights = vec![0.0; tensor.elements()];
        dequantize(format, tensor.bytes, &mut weights);
        assert!(
            weights.iter().all(|weight| weight.is_finite()),
            "{format:?}"
        );
        let mut distinct: Vec<u32> = weights[..256]
            .iter()
            .map(|weight| weight.to_bits())
            .collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(
            distinct.len() > 24,
            "{format:?}: {} values in a block",
            distinct.len()
        );
    }
}

#[test]
fn equal_specs_give_equal_bytes() {
    let spec = preset("tiny-qwen2");
    let bytes = spec.to_bytes().unwrap();
    assert_eq!(bytes, spec.to_bytes().unwrap());
    assert_ne!(bytes, SynthSpec { seed: 2, ..spec }.to_bytes().unwrap());
}

/// Golden logits depend on these bytes: a change requires new golden files.
#[test]
fn bytes_are_equal_on_every_machine() {
    let weights = |spec: SynthSpec| {
        let gguf = gguf(&spec);
        let mut tensors: Vec<_> = gguf.tensors().collect();
        tensors.sort_by_key(|tensor| tensor.name);
        let bytes = tensors.iter().flat_map(|tensor| tensor.bytes.iter());
        hash(&bytes.copied().collect::<Vec<u8>>())
    };
    let small = |mix| SynthSpec {
        mix,
        ..preset("small-qwen2")
    };
    let rows = [
        ("f32", weights(preset("tiny-qwen2")), 0xb4fa_0c70_5d8c_a9f6),
        (
            "gemma2",
            weights(preset("tiny-gemma2")),
            0xfd24_5679_2cf5_3e58,
        ),
        ("q4_k_m", weights(small(Mix::Q4_K_M)), 0xf9c7_3d0f_1c12_4073),
        (
            "q8_0",
            weights(small(Mix::Uniform(Format::Q8_0))),
            0x1bf5_c269_1e8f_3433,
        ),
    ];
    let differing: Vec<_> = rows.iter().filter(|row| row.1 != row.2).collect();
    assert!(differing.is_empty(), "{differing:#x?}");
}

#[test]
fn q4_k_m_formats_equal_llama_cpp() {
    let spec = SynthSpec {
        layers: 16,
        tied: false,
        ..preset("small-llama")
    };
    let gguf = gguf(&spec);
    let format = |name: &str| gguf.tensor(name).unwrap().format().unwrap();
    assert_eq!(format("output.weight"), Format::Q6_K);
    assert_eq!(format("token_embd.weight"), Format::Q4_K);
    assert_eq!(format("blk.0.attn_norm.weight"), Format::F32);
    for layer in 0..16 {
        let more = [0, 1, 4, 7, 10, 13, 14, 15].contains(&layer);
        let expected = if more { Format::Q6_K } else { Format::Q4_K };
        assert_eq!(
            format(&format!("blk.{layer}.attn_v.weight")),
            expected,
            "{layer}"
        );
        assert_eq!(
            format(&format!("blk.{layer}.ffn_down.weight")),
            expected,
            "{layer}"
        );
        assert_eq!(
            format(&format!("blk.{layer}.ffn_up.weight")),
            Format::Q4_K,
            "{layer}"
        );
    }
}

#[test]
fn llama3_factors_stretch_low_frequencies_only() {
    // Llama 3.1: of its 64 frequencies 29 are kept, 29 divided by 8, six interpolated.
    let mut spec = SynthSpec {
        head_dim: 128,
        ..preset("tiny-llama")
    };
    spec.rope.base = 500_000.0;
    spec.rope.scaling = RopeScaling::Llama3 {
        factor: 8.0,
        original_context: 8192,
    };
    let gguf = gguf(&spec);
    let tensor = gguf.tensor("rope_freqs.weight").unwrap();
    let factors: Vec<f32> = tensor
        .bytes
        .chunks(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    assert_eq!(factors.len(), 64);
    assert!(factors[..29].iter().all(|&factor| factor == 1.0));
    assert!(factors[35..].iter().all(|&factor| factor == 8.0));
    assert!(factors[28..36].is_sorted(), "{:?}", &factors[28..36]);
}

#[test]
fn impossible_shapes_are_rejected() {
    type Change = fn(&mut SynthSpec);
    #[rustfmt::skip] // a table
    let rows: [(&str, &str, Change, &str); 9] = [
        ("zero", "tiny-llama", |s| s.layers = 0, "no size may be zero"),
        ("vocab", "tiny-llama", |s| s.vocab = VOCAB_MIN - 1, "261 entries at least, not 260"),
        ("heads", "tiny-llama", |s| s.kv_heads = 3, "3 kv heads do not divide 4 heads"),
        ("rope", "tiny-qwen3", |s| s.rope.dims = Some(64), "cannot turn 64 of 32"),
        ("partial", "tiny-llama", |s| s.rope.dims = Some(8), "the rope of llama turns all 16 elements of a head, not 8"),
        ("joined", "tiny-phi3", |s| s.head_dim = 32, "the width of phi3 is heads * head_dim: 4 heads of 32 make 128, not 64"),
        ("untied", "tiny-gemma2", |s| s.tied = false, "no output matrix of its own"),
        ("window", "tiny-gemma3", |s| s.window = Some(0), "sees nothing"),
        ("blocks", "tiny-llama", |s| s.mix = Mix::Uniform(Format::Q4_K), "no whole number of Q4_K"),
    ];
    for (label, name, change, expected) in rows {
        let mut spec = preset(name);
        change(&mut spec);
        let error = spec.to_bytes().unwrap_err().to_string();
        assert!(error.contains(expected), "{label}: {error}");
    }
}

#[test]
fn vocabulary_is_copied_from_another_file() {
    let other = gguf(&SynthSpec {
        vocab: 777,
        ..preset("tiny-llama")
    });
    let mut bytes = Vec::new();
    preset("tiny-qwen3")
        .write(Some(&other), &mut bytes)
        .unwrap();
    let gguf = Gguf::from_bytes(bytes).unwrap();
    assert_eq!(gguf.tensor("token_embd.weight").unwrap().rows(), 777);
    assert_eq!(gguf.need::<u32>("qwen3.vocab_size").unwrap(), 777);
    let tokens = |gguf: &Gguf| -> Vec<String> {
        gguf.tokenizer()
            .unwrap()
            .tokens
            .map(|token: Text<'_>| token.to_lossy().into_owned())
            .collect()
    };
    assert_eq!(tokens(&gguf), tokens(&other));
    let none = Gguf::from_bytes(empty()).unwrap();
    let error = preset("tiny-llama")
        .write(Some(&none), &mut Vec::new())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`tokenizer.ggml.tokens` is missing"),
        "{error}"
    );
}

/// An empty GGUF.
fn empty() -> Vec<u8> {
    let mut bytes = Vec::new();
    weights::gguf::GgufWriter::new()
        .write(&mut bytes, |_, _| Ok(()))
        .unwrap();
    bytes
}

#[test]
fn file_appears_when_complete() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("synth.gguf");
    _ = std::fs::remove_file(&path);
    let impossible = SynthSpec {
        kv_heads: 3,
        ..preset("tiny-llama")
    };
    assert!(impossible.create(None, &path).is_err());
    assert!(!path.exists() && !path.with_extension("gguf.tmp").exists());
    let spec = preset("tiny-llama");
    let bytes = spec.create(None, &path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes);
    assert_eq!(std::fs::read(&path).unwrap(), spec.to_bytes().unwrap());
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(
        Config::from_gguf(&gguf, None).unwrap().architecture,
        Architecture::Llama
    );
    assert!(!path.with_extension("gguf.tmp").exists());
}
