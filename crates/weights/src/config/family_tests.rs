//! Properties of families: traits, factors, ropes.

use super::tests::{Field, keys, read, with};
use super::{Architecture, Config, Gate};

/// A plain decoder of any family.
fn any(architecture: Architecture, changes: &[(&str, Field)]) -> Config {
    let mut all = vec![
        ("attention.layer_norm_epsilon", Field::F32(1e-5)),
        ("logit_scale", Field::F32(2.0)),
    ];
    all.extend(changes.iter().cloned());
    read(&with(architecture.name(), &all)).unwrap()
}

#[test]
fn family_traits_are_expected() {
    use Architecture::{
        Cohere2, CommandR, DeepSeek2, Exaone4, Gemma, Gemma2, Gemma3, Gemma3n, Gemma4,
        GemmaEmbedding, Glm4, Granite, GraniteHybrid, GraniteMoe, Mamba2, Olmo2, Phi2,
    };
    for architecture in Architecture::all() {
        let config = any(architecture, &[]);
        assert_eq!(config.architecture, architecture);
        let gemma = matches!(
            architecture,
            Gemma | Gemma2 | Gemma3 | Gemma3n | Gemma4 | GemmaEmbedding
        );
        let gelu = gemma || architecture == Phi2;
        assert_eq!(config.gate == Gate::Gelu, gelu, "{architecture}");
        let post = matches!(
            architecture,
            Gemma2 | Gemma3 | Gemma3n | Gemma4 | GemmaEmbedding | Olmo2 | Exaone4 | Glm4
        );
        assert_eq!(config.traits.post_norms, post, "{architecture}");
        let scales = &config.scales;
        let embedding = if gemma { 8.0 } else { 1.0 };
        assert_eq!(scales.embedding, embedding, "{architecture}");
        let logits = match architecture {
            Granite | GraniteMoe | GraniteHybrid => 0.5,
            CommandR | Cohere2 => 2.0,
            _ => 1.0,
        };
        assert_eq!(scales.logits, logits, "{architecture}");
        let dims = match architecture {
            Mamba2 => (0, 0),
            DeepSeek2 => (48, 16),
            _ => (16, 16),
        };
        let found = (config.head_dim, config.rope.dims);
        assert_eq!(found, dims, "{architecture}");
        let query = match architecture {
            Gemma3n | Gemma4 | Mamba2 => 1.0,
            DeepSeek2 => 1.0 / 48_f32.sqrt(),
            _ => 0.25,
        };
        assert_eq!(scales.query, query, "{architecture}");
        assert_eq!(config.context_max, 128, "{architecture}");
    }
}

#[test]
fn every_second_layer_of_gpt_oss_has_no_window() {
    let changes = [
        ("block_count", Field::U32(4)),
        ("attention.sliding_window", Field::U32(128)),
        ("expert_gating_func", Field::U32(3)),
    ];
    let config = any(Architecture::GptOss, &changes);
    assert_eq!(config.windows, [Some(128), None, Some(128), None]);
    assert_eq!(config.gate, Gate::ClampedSwiglu);
    let olmoe = with("olmoe", &[("expert_gating_func", Field::U32(3))]);
    assert!(read(&olmoe).is_err(), "shares of all experts");
}

#[test]
fn multipliers_are_read_where_a_family_has_them() {
    let changes = [
        ("embedding_scale", Field::F32(12.0)),
        ("residual_scale", Field::F32(0.5)),
        ("attention.scale", Field::F32(0.125)),
    ];
    for architecture in Architecture::all() {
        let scales = any(architecture, &changes).scales;
        let found = (scales.embedding, scales.update, scales.query);
        let read = matches!(
            architecture,
            Architecture::Granite | Architecture::GraniteMoe | Architecture::GraniteHybrid
        );
        assert_eq!(found == (12.0, 0.5, 0.125), read, "{architecture}");
        assert_eq!(scales.update != 1.0, read, "{architecture}");
    }
}

#[test]
fn scores_grow_with_the_logarithm_of_the_position() {
    let changes = [
        ("attention.temperature_scale", Field::F32(0.1)),
        ("rope.scaling.original_context_length", Field::U32(64)),
    ];
    let config = read(&with("mistral3", &changes)).unwrap();
    let temperature = config.scales.temperature.unwrap();
    for (position, factor) in [(0, 1.0), (63, 1.0), (64, 1.069_314_7), (191, 1.109_861_2)] {
        assert_eq!(temperature.factor(position), factor, "{position}");
    }
    assert_eq!(read(&keys("mistral3")).unwrap().scales.temperature, None);
    // The key of Ollama's converter.
    let theirs = [("rope.scaling_beta", Field::F32(0.1)), changes[1].clone()];
    let theirs = read(&with("mistral3", &theirs)).unwrap();
    assert_eq!(theirs.scales.temperature, Some(temperature));
}

#[test]
fn heads_of_each_layer_are_those_of_layers_with_attention() {
    let plain = read(&with("qwen35", &[])).unwrap();
    // As Ollama's converter wrote them.
    let each = ("attention.head_count_kv", Field::I32s(vec![0, 2]));
    let changed = |name| read(&with(name, std::slice::from_ref(&each)));
    assert_eq!(changed("qwen35").unwrap(), plain);
    let error = changed("qwen3").unwrap_err().to_string();
    assert!(error.contains("`qwen3.attention.head_count_kv`"), "{error}");
}

#[test]
fn layers_without_rope_follow_the_rule() {
    let roped = |name, changes: &[_]| {
        let mut all = vec![
            ("block_count", Field::U32(5)),
            ("attention.layer_norm_epsilon", Field::F32(1e-5)),
            ("logit_scale", Field::F32(1.0)),
        ];
        all.extend(changes.iter().cloned());
        read(&with(name, &all)).unwrap().roped
    };
    let each = [true, true, true, false, true];
    assert_eq!(roped("llama", &[]), [true; 5]);
    assert_eq!(roped("smollm3", &[]), each);
    assert_eq!(roped("cohere2", &[]), each);
    assert_eq!(roped("exaone4", &[]), [true; 5]);
    let large = roped("exaone4", &[("block_count", Field::U32(64))]);
    assert_eq!(large[..5], each);
    let finetuned = |flag| ("rope.scaling.finetuned", Field::Bool(flag));
    assert_eq!(roped("granite", &[finetuned(true)]), [true; 5]);
    assert_eq!(roped("granite", &[finetuned(false)]), [false; 5]);
    assert_eq!(roped("llama", &[finetuned(false)]), [true; 5]);
    assert_eq!(roped("falcon-h1", &[]), [true; 5]);
    assert_eq!(roped("mamba2", &[]), [false; 5]);
}

#[test]
fn layers_that_predict_further_tokens_are_not_run() {
    let config = any(
        Architecture::Glm4,
        &[
            ("block_count", Field::U32(3)),
            ("nextn_predict_layers", Field::U32(1)),
        ],
    );
    assert_eq!((config.layers, config.layers_ignored), (2, 1));
}

#[test]
fn sections_select_the_pairing_of_glm4_only() {
    use kernels::RopePairs::{Adjacent, Halves};
    let sections = |numbers: &[i32]| ("rope.dimension_sections", Field::I32s(numbers.to_vec()));
    let rows = [
        (Architecture::Glm4, vec![], Adjacent),
        (Architecture::Glm4, vec![sections(&[4, 2, 2, 0])], Halves),
        (Architecture::Glm4, vec![sections(&[0, 0, 0, 0])], Adjacent),
        (Architecture::Ernie45, vec![sections(&[4, 2, 2])], Adjacent),
        (Architecture::Qwen2Vl, vec![sections(&[4, 2, 2, 0])], Halves),
    ];
    for (architecture, changes, pairs) in rows {
        let config = any(architecture, &changes);
        assert_eq!(config.rope.pairs, pairs, "{architecture} {changes:?}");
    }
}

#[test]
fn values_of_one_family_are_bounded() {
    use Field::{Bool, F32, U32};
    for (name, key, value) in [
        ("granite", "logit_scale", F32(0.0)),
        ("granite", "residual_scale", F32(f32::NAN)),
        ("granite", "embedding_scale", F32(-1.0)),
        ("granite", "attention.scale", Bool(true)),
        ("granite", "rope.scaling.finetuned", U32(1)),
        ("hunyuan-dense", "rope.scaling.alpha", F32(1e6)),
    ] {
        let theta = ("rope.freq_base", F32(1e11));
        let mut changes = vec![theta, ("logit_scale", F32(1.0))];
        changes.push((key, value));
        let error = read(&with(name, &changes)).unwrap_err().to_string();
        assert!(error.contains(&format!("`{name}.{key}`")), "{error}");
    }
    let missing = read(&keys("granite")).unwrap_err().to_string();
    assert!(
        missing.contains("`granite.logit_scale` is missing"),
        "{missing}"
    );
    let missing = read(&keys("phi2")).unwrap_err().to_string();
    assert!(
        missing.contains("`phi2.attention.layer_norm_epsilon` is missing"),
        "{missing}"
    );
}

#[test]
fn unknown_architecture_names_the_nearest() {
    for (name, near) in [
        ("qwen36", "nearest: qwen3, qwen35, "),
        ("gemma40", "nearest: gemma4, gemma2, gemma3; "),
        ("rwkv7", "is not supported; supported are llama, "),
    ] {
        let error = read(&keys(name)).unwrap_err().to_string();
        assert!(error.contains(near), "{error}");
    }
}
