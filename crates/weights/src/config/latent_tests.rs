//! Keys of latent attention, and of the router beside it.

use super::tests::{Field, read, with};
use super::{Config, LatentConfig, RouterConfig};
use kernels::KvKind;

const NAME: &str = "deepseek2";

fn config(changes: &[(&str, Field)]) -> Config {
    read(&with(NAME, changes)).unwrap()
}

/// Keys of DeepSeek V3's shape.
fn v3() -> Vec<(&'static str, Field)> {
    use Field::{Bool, F32, U32};
    vec![
        ("block_count", U32(5)),
        ("nextn_predict_layers", U32(1)),
        ("leading_dense_block_count", U32(2)),
        ("attention.head_count_kv", U32(1)),
        ("attention.q_lora_rank", U32(1536)),
        ("attention.kv_lora_rank", U32(512)),
        ("attention.key_length", U32(576)),
        ("attention.value_length", U32(512)),
        ("attention.key_length_mla", U32(192)),
        ("attention.value_length_mla", U32(128)),
        ("rope.dimension_count", U32(64)),
        ("expert_count", U32(256)),
        ("expert_used_count", U32(8)),
        ("expert_shared_count", U32(2)),
        ("expert_group_count", U32(8)),
        ("expert_group_used_count", U32(4)),
        ("expert_gating_func", U32(2)),
        ("expert_weights_norm", Bool(true)),
        ("expert_weights_scale", F32(2.5)),
    ]
}

#[test]
fn sizes_of_latents_are_read_from_the_keys() {
    let config = config(&v3());
    let latent = config.latent.unwrap();
    let wanted = LatentConfig {
        query_rank: Some(1536),
        rank: 512,
        turned: 64,
        plain: 128,
        value: 128,
    };
    assert_eq!(latent, wanted);
    assert_eq!((config.layers, config.layers_ignored), (4, 1));
    assert_eq!(
        (config.heads, config.kv_heads, config.head_dim),
        (4, 1, 576)
    );
    let hidden = config.shapes.iter().map(|shape| shape.hidden);
    assert_eq!(hidden.collect::<Vec<_>>(), [96, 96, 128, 128]);
    let has_experts = |layer| config.experts_of(layer).is_some();
    assert_eq!([0, 1, 2, 3].map(has_experts), [false, false, true, true]);
    let router = RouterConfig {
        sigmoid: true,
        normalized: true,
        groups: Some((8, 4)),
        scale: 2.5,
    };
    assert_eq!(config.experts.unwrap().router, router);
    // A position of a layer is the rope part and the latent, as key and as value.
    let bytes = config.kv_bytes(1, 16, KvKind::F16).unwrap();
    assert_eq!(bytes, 4 * 16 * 2 * 576 * 2);
}

#[test]
fn sizes_of_files_in_one_piece_have_other_keys() {
    let config = config(&[]);
    let latent = config.latent.unwrap();
    assert_eq!(latent.query_rank, None);
    assert_eq!((latent.plain, latent.value), (32, 32));
    let experts = config.experts.unwrap();
    assert_eq!(experts.router, RouterConfig::softmax(false));
    assert_eq!((experts.first_layer, config.hidden), (0, 0));
}

#[test]
fn first_files_of_glm_have_sigmoids_without_saying_so() {
    use Field::U32;
    let sigmoid = |layers, vocab| {
        let changes = [("block_count", U32(layers)), ("vocab_size", U32(vocab))];
        config(&changes).experts.unwrap().router.sigmoid
    };
    assert!(sigmoid(47, 154_880));
    assert!(!sigmoid(46, 154_880) && !sigmoid(47, 102_400));
}

#[test]
fn yarn_scales_scores_and_not_the_rope() {
    let yarn = |weight: Option<f32>| {
        let mut changes = vec![
            ("rope.scaling.type", Field::Text("yarn".into())),
            ("rope.scaling.factor", Field::F32(40.0)),
        ];
        changes.extend(weight.map(|w| ("rope.scaling.yarn_log_multiplier", Field::F32(w))));
        let config = config(&changes);
        let turned = config.rope.attention_factor * (1.0 + 0.1 * 40_f32.ln());
        (turned, config.scales.query * 48_f32.sqrt())
    };
    for weight in [1.0, 0.707] {
        let (turned, scores) = yarn(Some(weight / 10.0));
        let wanted = (1.0 + 0.1 * weight * 40_f32.ln()).powi(2);
        assert!((turned - 1.0).abs() < 1e-6, "{turned}");
        assert!((scores - wanted).abs() < 1e-5, "{scores} {wanted}");
    }
    let usual = 1.0 + 0.1 * 40_f32.ln();
    let (turned, scores) = yarn(None);
    assert!((turned - usual).abs() < 1e-6 && (scores - usual * usual).abs() < 1e-5);
}

#[test]
fn sizes_that_do_not_fit_are_named_with_their_bounds() {
    use Field::U32;
    for (key, value, bound) in [
        ("attention.kv_lora_rank", 0, "32 to 960"),
        ("attention.kv_lora_rank", 40, "a multiple of 32"),
        ("attention.kv_lora_rank", 1 << 20, "32 to 960"),
        ("attention.q_lora_rank", 100, "a multiple of 32"),
        ("attention.q_lora_rank", u32::MAX, "0 to 131072"),
        ("attention.key_length_mla", 64, "plus a multiple of 32"),
        ("attention.key_length_mla", 100, "plus a multiple of 32"),
        ("attention.value_length_mla", 0, "1 to 1024"),
        ("attention.value_length_mla", 33, "a multiple of 32"),
        ("rope.dimension_count", 1024, "2 to 512"),
        ("rope.dimension_count", 7, "even"),
        ("attention.head_count", 0, "1 to 1024"),
        ("expert_count", 0, "1 to 1024"),
        ("expert_used_count", 257, "1 to 256"),
        ("expert_gating_func", 3, "0, 1 (softmax) or 2 (sigmoid)"),
        ("expert_group_count", 7, "a divisor of 256"),
        ("expert_group_count", 256, "two experts at least"),
        ("expert_group_used_count", 9, "1 to 8"),
        ("expert_shared_count", u32::MAX, "0 to 16384"),
        ("leading_dense_block_count", 5, "0 to 4"),
    ] {
        let mut changes = v3();
        changes.retain(|(other, _)| *other != key);
        changes.push((key, U32(value)));
        let error = read(&with(NAME, &changes)).unwrap_err().to_string();
        let begin = format!("metadata key `deepseek2.{key}` is {value}, must be ");
        assert!(
            error.starts_with(&begin) && error.contains(bound),
            "{error}"
        );
    }
    let few = [
        ("expert_group_count", U32(4)),
        ("expert_group_used_count", U32(1)),
    ];
    let error = read(&with(NAME, &few)).unwrap_err().to_string();
    assert!(error.contains("expert_group_count"), "{error}");
}
