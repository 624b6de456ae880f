//! Keys of experts.

use super::tests::{Field, read, with};
use super::{ExpertsConfig, RouterConfig};

const COUNT: (&str, Field) = ("expert_count", Field::U32(8));
const USED: (&str, Field) = ("expert_used_count", Field::U32(2));

#[test]
fn experts_are_read_from_the_keys() {
    let config = |name, changes: &[_]| read(&with(name, changes)).unwrap();
    let scale = ("logit_scale", Field::F32(1.0));
    let wide = ("expert_feed_forward_length", Field::U32(64));
    let shared = ("expert_shared_feed_forward_length", Field::U32(32));
    let experts = |hidden, normalized| {
        Some(ExpertsConfig {
            count: 8,
            used: 2,
            hidden,
            router: RouterConfig::softmax(normalized),
            first_layer: 0,
        })
    };
    let dense = config("llama", &[]);
    assert_eq!((dense.hidden, dense.experts), (96, None));
    let none = config("llama", &[("expert_count", Field::U32(0))]);
    assert_eq!((none.hidden, none.experts), (96, None));
    let mixtral = config("llama", &[COUNT, USED]);
    assert_eq!((mixtral.hidden, mixtral.experts), (0, experts(96, true)));
    let qwen = config("qwen3moe", &[COUNT, USED, wide]);
    assert_eq!((qwen.hidden, qwen.experts), (0, experts(64, true)));
    let olmoe = config("olmoe", &[COUNT, USED]);
    assert_eq!((olmoe.hidden, olmoe.experts), (0, experts(96, false)));
    let granite = config("granitemoe", &[COUNT, USED, shared, scale]);
    assert_eq!((granite.hidden, granite.experts), (32, experts(96, true)));
    assert_eq!(granite.cols_max(), 96);
}

#[test]
fn keys_of_experts_out_of_bounds_are_named() {
    use Field::{Bool, F32, Text, U32};
    for (name, key, value, part) in [
        ("llama", "expert_count", U32(1025), "0 to 1024"),
        ("llama", "expert_count", Text("8".into()), "a whole number"),
        ("qwen3moe", "expert_count", U32(0), "1 to 1024"),
        ("olmoe", "expert_count", U32(u32::MAX), "1 to 1024"),
        ("olmoe", "expert_used_count", U32(0), "1 to 8"),
        ("llama", "expert_used_count", U32(9), "1 to 8"),
        ("qwen3moe", "expert_feed_forward_length", U32(0), "32 to"),
        (
            "qwen3moe",
            "expert_feed_forward_length",
            U32(40),
            "a multiple of 32",
        ),
        (
            "qwen3moe",
            "expert_shared_feed_forward_length",
            U32(32),
            "a shared expert",
        ),
        (
            "granitemoe",
            "expert_shared_feed_forward_length",
            U32(33),
            "a multiple of 32",
        ),
        ("qwen3moe", "expert_gating_func", U32(2), "without softmax"),
        (
            "qwen3moe",
            "expert_group_count",
            U32(4),
            "groups of experts",
        ),
        (
            "qwen3moe",
            "expert_weights_norm",
            Bool(false),
            "another sum",
        ),
        ("olmoe", "expert_weights_norm", Bool(true), "another sum"),
        ("llama", "expert_weights_scale", F32(2.5), "scaled shares"),
        ("qwen3", "expert_count", U32(8), "a mixture of experts"),
    ] {
        let scale = ("logit_scale", F32(1.0));
        let error = read(&with(name, &[COUNT, USED, scale, (key, value)])).unwrap_err();
        let error = error.to_string();
        let named = error.contains(&format!("`{name}.{key}`")) && error.contains(part);
        assert!(named && !error.contains('\n'), "{error}");
    }
    let error = read(&with("llama", &[COUNT])).unwrap_err().to_string();
    assert!(
        error.contains("`llama.expert_used_count` is missing"),
        "{error}"
    );
}
