//! Metadata, and the resulting [`Config`] or error.

use super::{Config, ConfigError};
use crate::gguf::Gguf;

/// Keys of a plain two-layer decoder of family `name`.
#[expect(clippy::too_many_lines, reason = "a table of keys")]
pub(super) fn keys(name: &str) -> Vec<(String, Field)> {
    let plain = [
        ("context_length", Field::U32(128)),
        ("embedding_length", Field::U32(64)),
        ("block_count", Field::U32(2)),
        ("feed_forward_length", Field::U32(96)),
        ("attention.head_count", Field::U32(4)),
        ("attention.head_count_kv", Field::U32(2)),
        ("attention.layer_norm_rms_epsilon", Field::F32(1e-5)),
    ];
    let mut keys = vec![(
        "general.architecture".to_owned(),
        Field::Text(name.to_owned()),
    )];
    keys.extend(plain.map(|(key, value)| (format!("{name}.{key}"), value)));
    if [
        "qwen3moe",
        "qwen3vlmoe",
        "qwen35moe",
        "qwen3next",
        "granitemoe",
        "olmoe",
        "gpt-oss",
    ]
    .contains(&name)
    {
        let experts = [("expert_count", 4), ("expert_used_count", 2)];
        keys.extend(experts.map(|(key, value)| (format!("{name}.{key}"), Field::U32(value))));
    }
    if ["qwen35", "qwen35moe", "qwen3next"].contains(&name) {
        let recurrent = [
            ("full_attention_interval", 2),
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", 16),
            ("ssm.group_count", 2),
            ("ssm.time_step_rank", 4),
            ("ssm.inner_size", 64),
        ];
        keys.extend(recurrent.map(|(key, value)| (format!("{name}.{key}"), Field::U32(value))));
    }
    if ["lfm2", "granitehybrid", "nemotron_h"].contains(&name) {
        // The first layer has no attention.
        keys.retain(|(key, _)| !key.ends_with("head_count_kv"));
        keys.push((
            format!("{name}.attention.head_count_kv"),
            Field::I32s(vec![0, 2]),
        ));
    }
    if name == "deepseek2" {
        let latent = [
            ("expert_count", 4),
            ("expert_used_count", 2),
            ("expert_feed_forward_length", 64),
            ("rope.dimension_count", 16),
            ("attention.kv_lora_rank", 32),
            ("attention.key_length", 48),
            ("attention.value_length", 32),
        ];
        keys.extend(latent.map(|(key, value)| (format!("{name}.{key}"), Field::U32(value))));
    }
    if name == "nemotron_h" {
        keys.retain(|(key, _)| !key.ends_with("feed_forward_length"));
        keys.push((format!("{name}.feed_forward_length"), Field::U32(0)));
    }
    if ["lfm2", "granitehybrid", "mamba2", "falcon-h1", "nemotron_h"].contains(&name) {
        let recurrent = [
            ("shortconv.l_cache", 3),
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", 24),
            ("ssm.group_count", 1),
            ("ssm.time_step_rank", 4),
            ("ssm.inner_size", 128),
        ];
        keys.extend(recurrent.map(|(key, value)| (format!("{name}.{key}"), Field::U32(value))));
    }
    keys
}

#[derive(Clone, Debug)]
pub(super) enum Field {
    U32(u32),
    F32(f32),
    Text(String),
    Flags(Vec<bool>),
    Bool(bool),
    I32s(Vec<i32>),
}

/// `keys` with replacements and additions.
pub(super) fn with(name: &str, changes: &[(&str, Field)]) -> Vec<(String, Field)> {
    let mut all = keys(name);
    for (key, value) in changes {
        let key = format!("{name}.{key}");
        all.retain(|(other, _)| *other != key);
        all.push((key, value.clone()));
    }
    all
}

pub(super) fn read(keys: &[(String, Field)]) -> Result<Config, ConfigError> {
    Config::from_gguf(&Gguf::from_bytes(bytes(keys)).unwrap(), None)
}

/// A GGUF without tensors.
fn bytes(keys: &[(String, Field)]) -> Vec<u8> {
    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        text(&mut out, key);
        match value {
            Field::U32(v) => out.extend([4u32, *v].map(u32::to_le_bytes).concat()),
            Field::F32(v) => out.extend([6u32.to_le_bytes(), v.to_le_bytes()].concat()),
            Field::Bool(v) => {
                out.extend(7u32.to_le_bytes());
                out.push(u8::from(*v));
            }
            Field::I32s(v) => {
                out.extend([9u32, 5].map(u32::to_le_bytes).concat());
                out.extend((v.len() as u64).to_le_bytes());
                out.extend(v.iter().flat_map(|number| number.to_le_bytes()));
            }
            Field::Text(v) => {
                out.extend(8u32.to_le_bytes());
                text(&mut out, v);
            }
            Field::Flags(v) => {
                out.extend([9u32, 7].map(u32::to_le_bytes).concat());
                out.extend((v.len() as u64).to_le_bytes());
                out.extend(v.iter().map(|&flag| u8::from(flag)));
            }
        }
    }
    out
}

#[test]
fn caps_default_by_family_and_zero_disables() {
    let gemma2 = read(&keys("gemma2")).unwrap();
    assert_eq!(
        (gemma2.attention_cap, gemma2.logit_cap),
        (Some(50.0), Some(30.0))
    );
    let off = with("gemma2", &[("attn_logit_softcapping", Field::F32(0.0))]);
    assert_eq!(read(&off).unwrap().attention_cap, None);
    let capped = with("gemma3", &[("final_logit_softcapping", Field::F32(20.0))]);
    assert_eq!(read(&capped).unwrap().logit_cap, Some(20.0));
    let foreign = with("llama", &[("final_logit_softcapping", Field::F32(20.0))]);
    assert_eq!(read(&foreign).unwrap().logit_cap, None);
}

#[test]
fn layer_windows_follow_pattern() {
    let windows = |name, changes: &[_]| read(&with(name, changes)).unwrap().windows;
    let three = || ("block_count", Field::U32(3));
    let window = || ("attention.sliding_window", Field::U32(8));
    let period = |n| ("attention.sliding_window_pattern", Field::U32(n));
    let flags = vec![false, true, false];
    let flags = ("attention.sliding_window_pattern", Field::Flags(flags));
    let w = Some(8);
    assert_eq!(
        windows("gemma2", &[three()]),
        [Some(4096), None, Some(4096)]
    );
    assert_eq!(windows("gemma2", &[three(), window()]), [w, None, w]);
    assert_eq!(windows("gemma3", &[three()]), [None; 3]);
    assert_eq!(windows("gemma3", &[three(), window()]), [w; 3]);
    assert_eq!(
        windows("gemma3", &[three(), window(), period(3)]),
        [w, w, None]
    );
    assert_eq!(
        windows("gemma3", &[three(), window(), period(1)]),
        [None; 3]
    );
    assert_eq!(windows("gemma3", &[three(), window(), period(0)]), [w; 3]);
    assert_eq!(
        windows("gemma3", &[three(), window(), flags]),
        [None, w, None]
    );
    assert_eq!(windows("llama", &[three(), window()]), [None; 3]);
    assert_eq!(windows("phi3", &[three(), window()]), [None; 3]);
}

#[test]
fn gemma3_scales_global_ropes_only() {
    let config = read(&with(
        "gemma3",
        &[
            ("attention.sliding_window", Field::U32(8)),
            ("rope.freq_base", Field::F32(1e6)),
            ("rope.scaling.factor", Field::F32(8.0)),
        ],
    ))
    .unwrap();
    assert_eq!((config.rope.theta, config.rope.freq_scale), (1e6, 0.125));
    assert_eq!(
        (config.rope_local.theta, config.rope_local.freq_scale),
        (1e4, 1.0)
    );
    assert_eq!(config.rope_of(0), &config.rope_local);
}

#[test]
fn sequence_bound_selects_rope_factors() {
    let original = ("rope.scaling.original_context_length", Field::U32(64));
    let gguf = Gguf::from_bytes(bytes(&with("phi3", &[original]))).unwrap();
    let factors = |context| {
        Config::from_gguf(&gguf, Some(context))
            .unwrap()
            .rope
            .factors
    };
    assert_eq!(factors(64), Some("rope_factors_short.weight"));
    assert_eq!(factors(65), Some("rope_factors_long.weight"));
}

#[test]
fn context_beyond_training_is_rejected() {
    let gguf = Gguf::from_bytes(bytes(&keys("llama"))).unwrap();
    let error = Config::from_gguf(&gguf, Some(129)).unwrap_err().to_string();
    assert!(
        error.contains("llama.context_length") && error.contains("129"),
        "{error}"
    );
}

#[test]
fn unknown_architecture_is_rejected_with_known_ones() {
    let error = read(&keys("mamba")).unwrap_err().to_string();
    for part in [
        "mamba", "llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn missing_keys_are_named() {
    for (missing, _) in keys("llama") {
        if missing == "llama.attention.head_count_kv" {
            continue; // defaults to head_count
        }
        let rest: Vec<_> = keys("llama")
            .into_iter()
            .filter(|(key, _)| *key != missing)
            .collect();
        assert_eq!(read(&rest), Err(ConfigError::Missing { key: missing }));
    }
}

#[test]
fn values_out_of_bounds_are_rejected_by_name() {
    use Field::{F32, I32s, Text, U32};
    let rows: &[(&str, Field)] = &[
        ("context_length", U32(0)),
        ("context_length", U32(1 << 25)),
        ("embedding_length", U32(0)),
        ("embedding_length", U32(65)),
        ("embedding_length", U32(1 << 20)),
        ("embedding_length", F32(64.0)),
        ("block_count", U32(0)),
        ("block_count", U32(513)),
        ("feed_forward_length", U32(100)),
        ("feed_forward_length", U32(1 << 21)),
        ("attention.head_count", U32(0)),
        ("attention.head_count", U32(6)),
        ("attention.head_count_kv", U32(0)),
        ("attention.head_count_kv", U32(3)),
        ("attention.head_count_kv", U32(8)),
        ("attention.key_length", U32(15)),
        ("attention.key_length", U32(2048)),
        ("attention.value_length", U32(32)),
        ("attention.key_length_swa", U32(32)),
        ("attention.layer_norm_rms_epsilon", F32(0.0)),
        ("attention.layer_norm_rms_epsilon", F32(f32::NAN)),
        ("attention.layer_norm_rms_epsilon", Text("small".into())),
        ("rope.dimension_count", U32(18)),
        ("rope.dimension_count", U32(3)),
        ("rope.freq_base", F32(1.0)),
        ("rope.freq_base", F32(f32::INFINITY)),
        ("rope.scaling.type", Text("wide".into())),
        ("rope.scaling.type", U32(1)),
        ("rope.scaling.factor", F32(-1.0)),
        ("rope.scaling.factor", F32(1e-4)),
        ("rope.scaling.attn_factor", F32(0.0)),
        ("rope.scaling.original_context_length", U32(0)),
        ("expert_count", U32(1025)),
        ("nextn_predict_layers", U32(2)),
        ("attention.temperature_scale", F32(-1.0)),
        ("rope.scaling.yarn_beta_fast", F32(0.0)),
        ("rope.dimension_sections", I32s(vec![1, 1, 1, 1])),
        ("rope.dimension_sections", I32s(vec![1; 5])),
        ("rope.dimension_sections", U32(1)),
    ];
    for (key, value) in rows {
        let error = read(&with("llama", &[(key, value.clone())]))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("`llama.{key}`")),
            "{key} {value:?}: {error}"
        );
    }
}

#[test]
fn window_pattern_needs_a_flag_for_each_layer() {
    let pattern = (
        "attention.sliding_window_pattern",
        Field::Flags(vec![true; 3]),
    );
    let error = read(&with("gemma2", &[pattern])).unwrap_err().to_string();
    assert!(
        error.contains("sliding_window_pattern") && error.contains("2 long"),
        "{error}"
    );
}
