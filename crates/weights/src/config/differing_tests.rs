//! Families whose layers differ.

use super::tests::{Field, read, with};
use super::{Config, ConfigError, LayerShape};
use kernels::KvKind;

/// A file of Gemma 4 with six layers, of which the third and the sixth have no window, and these changes.
fn gemma4(changes: &[(&str, Field)]) -> Result<Config, ConfigError> {
    let mut all = vec![
        ("block_count", Field::U32(6)),
        ("attention.key_length", Field::U32(32)),
        ("attention.value_length", Field::U32(32)),
        ("attention.key_length_swa", Field::U32(16)),
        ("attention.value_length_swa", Field::U32(16)),
        ("attention.head_count_kv", numbers(&[2, 2, 1, 2, 2, 1])),
        ("feed_forward_length", numbers(&[96, 96, 96, 192, 192, 192])),
        ("attention.sliding_window", Field::U32(8)),
        (
            "attention.sliding_window_pattern",
            Field::Flags(vec![true, true, false, true, true, false]),
        ),
        ("attention.shared_kv_layers", Field::U32(3)),
        ("embedding_length_per_layer_input", Field::U32(32)),
        ("rope.freq_base", Field::F32(1e6)),
    ];
    all.extend(changes.iter().cloned());
    read(&with("gemma4", &all))
}

fn numbers(numbers: &[i32]) -> Field {
    Field::I32s(numbers.to_vec())
}

#[test]
fn sizes_of_each_layer_are_read() {
    let config = gemma4(&[]).unwrap();
    let shape = |kv_heads, head_dim, hidden, kv_layer| LayerShape {
        kv_heads,
        head_dim,
        hidden,
        kv_layer,
    };
    let wanted = [
        shape(2, 16, 96, 0),
        shape(2, 16, 96, 1),
        shape(1, 32, 96, 2),
        shape(2, 16, 192, 1),
        shape(2, 16, 192, 1),
        shape(1, 32, 192, 2),
    ];
    assert_eq!(config.shapes, wanted);
    assert_eq!((config.hidden, config.per_layer), (192, 32));
    assert_eq!((config.query_cols(), config.kv_cols()), (4 * 32, 32));
    assert_eq!((config.rope.dims, config.rope_local.dims), (32, 16));
    assert_eq!(
        (config.rope.theta, config.rope_local.theta),
        (1e6, 10_000.0)
    );
    assert_eq!(config.rope.factors, Some("rope_freqs.weight"));
    assert_eq!(config.rope_local.factors, None);
    assert_eq!(config.last_stored_layer(), 2);
}

#[test]
fn each_kind_of_heads_has_a_cache() {
    let config = gemma4(&[]).unwrap();
    let shapes = config.kv_shapes(7, 32, KvKind::F16);
    let sizes = shapes.iter().map(|s| (s.layers, s.kv_heads, s.head_dim));
    assert_eq!(sizes.collect::<Vec<_>>(), [(2, 2, 16), (1, 1, 32)]);
    let places = config.kv_places().into_iter().flatten();
    let places: Vec<_> = places.map(|place| (place.cache, place.layer)).collect();
    assert_eq!(places, [(0, 0), (0, 1), (1, 0), (0, 1), (0, 1), (1, 0)]);
    // Three layers of 32 elements, keys and values, two bytes each.
    let bytes = 7 * 32 * 3 * 32 * 2 * 2;
    assert_eq!(config.kv_bytes(7, 32, KvKind::F16), Some(bytes));
    assert_eq!(config.kv_bytes(1 << 60, 32, KvKind::F16), None);
    let alike = read(&with("llama", &[])).unwrap();
    assert_eq!(alike.kv_shapes(1, 32, KvKind::F16).len(), 1);
    assert_eq!(alike.last_stored_layer(), 1);
}

#[test]
fn one_number_counts_for_all_layers() {
    let config = gemma4(&[
        ("attention.head_count_kv", Field::U32(2)),
        ("feed_forward_length", Field::U32(64)),
        ("attention.shared_kv_layers", Field::U32(0)),
        ("embedding_length_per_layer_input", Field::U32(0)),
    ])
    .unwrap();
    assert!(
        config
            .shapes
            .iter()
            .all(|s| (s.kv_heads, s.hidden) == (2, 64))
    );
    assert!((0..6).all(|layer| config.shapes[layer].kv_layer == layer));
    assert_eq!((config.per_layer, config.last_stored_layer()), (0, 5));
}

#[test]
#[rustfmt::skip]
fn sizes_of_layers_are_bounded() {
    use Field::{F32, U32};
    for (key, value, bound) in [
        ("attention.head_count_kv", numbers(&[2, 2, 1]), "6 long, one for each layer"),
        ("attention.head_count_kv", numbers(&[2, 2, 1, 2, 2, 1, 1]), "at most 6 long"),
        ("attention.head_count_kv", numbers(&[2, 2, 0, 2, 2, 1]), "1 to 4"),
        ("attention.head_count_kv", numbers(&[2, 3, 1, 2, 2, 1]), "a divisor of 4"),
        ("attention.head_count_kv", numbers(&[2, 2, 1, 2, 2, 2]), "1 in layer 5, which reads the keys of layer 2"),
        ("attention.head_count_kv", F32(1.0), "a whole number"),
        ("feed_forward_length", numbers(&[96, 96, 96, 192, 192, 100]), "a multiple of 32"),
        ("feed_forward_length", numbers(&[96, 96, 96, 192, 192, -32]), "32 to"),
        ("attention.key_length_swa", U32(5), "even, and times the heads"),
        ("attention.value_length_swa", U32(32), "16, the length of keys"),
        ("attention.key_length_swa", U32(2048), "2 to 1024"),
        ("rope.dimension_count_swa", U32(18), "2 to 16"),
        ("rope.dimension_count_swa", U32(7), "even"),
        ("attention.shared_kv_layers", U32(6), "0 to 5"),
        ("attention.shared_kv_layers", U32(4), "a layer without a window remains"),
        ("embedding_length_per_layer_input", U32(40), "a multiple of 32"),
        ("embedding_length_per_layer_input", U32(1 << 30), "0 to 131072"),
    ] {
        let error = gemma4(&[(key, value)]).unwrap_err().to_string();
        assert!(error.contains(&format!("`gemma4.{key}`")) && error.contains(bound), "{error}");
    }
    let experts = [("expert_count", U32(4)), ("expert_used_count", U32(2))];
    let error = gemma4(&experts).unwrap_err().to_string();
    assert!(error.contains("`gemma4.expert_feed_forward_length` is missing"), "{error}");
}

#[test]
fn gemma_3n_has_four_states_and_shares_from_the_21st_layer() {
    let config = |changes: &[(&str, Field)]| {
        let mut all = vec![
            ("block_count", Field::U32(24)),
            ("attention.sliding_window", Field::U32(8)),
            ("altup.num_inputs", Field::U32(4)),
            ("altup.active_idx", Field::U32(0)),
        ];
        all.extend(changes.iter().cloned());
        read(&with("gemma3n", &all))
    };
    let plain = config(&[]).unwrap();
    assert_eq!((plain.states(), plain.last_stored_layer()), (4, 19));
    let sources: Vec<_> = plain.shapes[20..].iter().map(|s| s.kv_layer).collect();
    assert_eq!(sources, [18, 18, 18, 18]);
    assert_eq!(plain.logit_cap, Some(30.0));
    let few = config(&[("attention.shared_kv_layers", Field::U32(1))]).unwrap();
    assert_eq!(few.last_stored_layer(), 22);
    assert_eq!(read(&with("gemma4", &[])).unwrap().states(), 1);
    for (key, value) in [("altup.num_inputs", 3), ("altup.active_idx", 1)] {
        let error = config(&[(key, Field::U32(value))]).unwrap_err();
        let named = format!("`gemma3n.{key}` is {value}, must be ");
        assert!(error.to_string().contains(&named), "{error}");
    }
}

#[test]
fn layers_of_other_families_are_alike() {
    for (key, value) in [
        ("attention.head_count_kv", numbers(&[2, 1])),
        ("feed_forward_length", numbers(&[96, 64])),
        ("attention.key_length_swa", Field::U32(32)),
    ] {
        let error = read(&with("gemma3", &[(key, value)])).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
    let shared = [("attention.shared_kv_layers", Field::U32(1))];
    let config = read(&with("gemma3", &shared)).unwrap();
    assert_eq!(config.last_stored_layer(), 1);
}
