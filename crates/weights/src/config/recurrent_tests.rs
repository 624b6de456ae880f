//! Recurrent layers in metadata: which there are, and bounds.
//!
//! Promise (Arithmetic): sizes of recurrent states that do not fit, missing tensors and absurd counts are errors that
//! name the key or tensor and the bound.
//! Also held by `cpu/tests/it/recurrent.rs`, `cpu/tests/it/refusals.rs`.

use super::tests::{Field, keys, read, with};
use super::{Config, ConfigError, LayerShape};
use kernels::KvKind;

fn qwen35(changes: &[(&str, Field)]) -> Result<Config, ConfigError> {
    read(&with("qwen35", changes))
}

#[test]
fn recurrent_layers_have_no_keys_and_values() {
    let config = qwen35(&[("block_count", Field::U32(5))]).unwrap();
    let recurrent = config.recurrent.as_ref().unwrap();
    assert_eq!(recurrent.layers, [true, false, true, false, true]);
    assert_eq!((recurrent.count(), recurrent.taps), (3, 4));
    let shapes = config.shapes.iter();
    let attends: Vec<bool> = shapes.map(LayerShape::attends).collect();
    assert_eq!(attends, [false, true, false, true, false]);
    let shapes = config.kv_shapes(1, 32, KvKind::F16);
    assert_eq!(shapes.iter().map(|s| s.layers).collect::<Vec<_>>(), [2]);
    // The last layer keeps a state, so it runs for all rows.
    assert_eq!(config.last_stored_layer(), 4);
    // Three layers: three inputs of 128 columns, and four heads of 16 times 16.
    assert_eq!(config.state_bytes(), Some(3 * 4 * (3 * 128 + 4 * 16 * 16)));
    assert_eq!(read(&keys("qwen3")).unwrap().state_bytes(), None);
}

#[test]
fn layers_are_listed_or_periodic() {
    let each = |changes: &[(&str, Field)]| {
        let mut all = vec![("block_count", Field::U32(8))];
        all.extend(changes.iter().cloned());
        qwen35(&all).map(|config| config.recurrent.unwrap().layers)
    };
    let period = |period| ("full_attention_interval", Field::U32(period));
    let attends = |layers: Vec<bool>| {
        let layers = layers.iter().enumerate();
        let attends = layers.filter(|(_, recurrent)| !**recurrent);
        attends.map(|(layer, _)| layer).collect::<Vec<_>>()
    };
    assert_eq!(attends(each(&[period(4)]).unwrap()), [3, 7]);
    let mut flags = vec![true; 8];
    flags[2] = false;
    let listed = ("attention.recurrent_layers", Field::Flags(flags.clone()));
    assert_eq!(attends(each(std::slice::from_ref(&listed)).unwrap()), [2]);
    // A layer that predicts further tokens is in the list, and is not run.
    let predicting = [listed.clone(), ("nextn_predict_layers", Field::U32(1))];
    assert_eq!(each(&predicting).unwrap(), flags[..7]);
    for (change, why) in [
        (period(9), "`qwen35.full_attention_interval` is all"),
        (period(1), "`qwen35.full_attention_interval` is none"),
        (period(0), "must be 1 to 512"),
        (
            ("attention.recurrent_layers", Field::Flags(vec![true; 8])),
            "`qwen35.attention.recurrent_layers` is all, must be recurrent layers and others",
        ),
        (
            ("attention.recurrent_layers", Field::Flags(vec![true; 7])),
            "8 long, one for each layer",
        ),
    ] {
        let error = each(std::slice::from_ref(&change)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn sizes_of_states_are_bounded_by_name() {
    for (key, value, why) in [
        ("ssm.conv_kernel", 1, "must be 2 to 64"),
        ("ssm.conv_kernel", 1 << 20, "must be 2 to 64"),
        ("ssm.state_size", 8, "must be 16 to 1024"),
        ("ssm.state_size", 24, "must be a multiple of 16"),
        ("ssm.state_size", u32::MAX, "must be 16 to 1024"),
        ("ssm.group_count", 0, "must be 1 to 1024"),
        ("ssm.time_step_rank", 3, "must be a multiple of 2"),
        ("ssm.time_step_rank", u32::MAX, "must be 1 to 1024"),
        (
            "ssm.inner_size",
            65,
            "must be 64, which is ssm.time_step_rank times ssm.state_size",
        ),
    ] {
        let error = qwen35(&[(key, Field::U32(value))]).unwrap_err().to_string();
        assert!(error.contains(&format!("`qwen35.{key}`")), "{error}");
        assert!(error.contains(why), "{error}");
    }
    for key in [
        "conv_kernel",
        "state_size",
        "group_count",
        "time_step_rank",
        "inner_size",
    ] {
        let name = format!("qwen35.ssm.{key}");
        let mut all = keys("qwen35");
        all.retain(|(other, _)| *other != name);
        let error = read(&all).unwrap_err().to_string();
        assert!(error.contains(&format!("`{name}` is missing")), "{error}");
    }
}

#[test]
fn layers_without_key_and_value_heads_are_recurrent() {
    for name in ["lfm2", "granitehybrid"] {
        let heads = |each: &[i32]| {
            let changes = [
                ("block_count", Field::U32(each.len() as u32)),
                ("attention.head_count_kv", Field::I32s(each.to_vec())),
                ("logit_scale", Field::F32(2.0)),
            ];
            read(&with(name, &changes)).map_err(|error| error.to_string())
        };
        let config = heads(&[0, 2, 0]).unwrap();
        assert_eq!(
            config.recurrent.as_ref().unwrap().layers,
            [true, false, true]
        );
        assert_eq!(config.kv_shapes(1, 32, KvKind::F16)[0].layers, 1);
        assert_eq!((config.kv_heads, config.last_stored_layer()), (2, 2));
        let state = match name {
            "lfm2" => 2 * 4 * (2 * 64),
            // Three inputs of 128 and twice 24 columns, and four heads of 24 times 32.
            _ => 2 * 4 * (3 * 176 + 4 * 24 * 32),
        };
        assert_eq!(config.state_bytes(), Some(state), "{name}");
        for (each, why) in [
            (
                &[0, 0][..],
                "head_count_kv` is all, must be recurrent layers and others",
            ),
            (
                &[2, 2],
                "head_count_kv` is none, must be recurrent layers and others",
            ),
            (&[0, 3], "head_count_kv` is 3, must be a divisor of 4"),
            (&[0, 9], "head_count_kv` is 9, must be 0 to 4"),
        ] {
            let error = heads(each).unwrap_err();
            assert!(error.contains(why), "{name}: {error}");
        }
    }
}

#[test]
fn sizes_of_mamba_are_bounded_by_name() {
    for (key, value, why) in [
        ("ssm.state_size", 0, "must be 1 to 1024"),
        ("ssm.inner_size", 130, "must be a multiple of 4"),
        (
            "ssm.inner_size",
            96,
            "must be a multiple of 16 for each head",
        ),
        ("ssm.inner_size", 1 << 20, "at most 1024"),
        ("ssm.group_count", 3, "must be a multiple of 3"),
    ] {
        for name in ["granitehybrid", "mamba2", "falcon-h1", "nemotron_h"] {
            let error = read(&with(name, &[(key, Field::U32(value))])).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(&format!("`{name}.ssm.")), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }
}

#[test]
fn all_layers_are_recurrent_beside_attention_or_without() {
    let mamba = read(&keys("mamba2")).unwrap();
    assert_eq!(mamba.recurrent.as_ref().unwrap().layers, [true; 2]);
    assert_eq!((mamba.heads, mamba.kv_heads, mamba.hidden), (0, 0, 0));
    assert!(mamba.kv_shapes(9, 32, KvKind::F16).is_empty());
    assert_eq!(mamba.kv_bytes(9, 32, KvKind::F16), Some(0));
    assert_eq!(
        (
            mamba.query_cols(),
            mamba.kv_cols(),
            mamba.last_stored_layer()
        ),
        (0, 0, 1)
    );
    // What converters write, and llama.cpp asks for.
    let written = [
        ("attention.head_count", Field::U32(0)),
        ("feed_forward_length", Field::U32(0)),
    ];
    assert_eq!(read(&with("mamba2", &written)).unwrap(), mamba);

    let falcon = read(&keys("falcon-h1")).unwrap();
    assert_eq!(falcon.recurrent.as_ref().unwrap().layers, [true; 2]);
    assert!(falcon.shapes.iter().all(LayerShape::attends));
    assert_eq!(falcon.kv_shapes(1, 32, KvKind::F16)[0].layers, 2);
    assert_eq!(falcon.state_bytes(), mamba.state_bytes());
    assert!(falcon.state_bytes().is_some());
}

#[test]
fn layers_of_one_part_are_told_by_two_lists() {
    let nemotron = |heads: &[i32], widths: &[i32]| {
        let changes = [
            ("block_count", Field::U32(heads.len() as u32)),
            ("attention.head_count_kv", Field::I32s(heads.to_vec())),
            ("feed_forward_length", Field::I32s(widths.to_vec())),
        ];
        read(&with("nemotron_h", &changes)).map_err(|error| error.to_string())
    };
    let config = nemotron(&[0, 0, 2, 0, 0], &[0, 96, 0, 0, 64]).unwrap();
    let recurrent = config.recurrent.as_ref().unwrap();
    assert_eq!(recurrent.layers, [true, false, false, true, false]);
    let attends: Vec<_> = config.shapes.iter().map(LayerShape::attends).collect();
    assert_eq!(attends, [false, false, true, false, false]);
    // The last layer stores nothing.
    assert_eq!((config.hidden, config.last_stored_layer()), (96, 3));
    assert_eq!(config.kv_shapes(1, 32, KvKind::F16)[0].layers, 1);
    for (heads, widths, why) in [
        (
            &[0, 2][..],
            &[0, 96][..],
            "head_count_kv` is 2, must be 0 in layer 1, which has a feed",
        ),
        (
            &[2, 2],
            &[0, 0],
            "head_count_kv` is none, must be recurrent layers and others",
        ),
        (
            &[0, 0],
            &[0, 0],
            "head_count_kv` is all, must be recurrent layers and others",
        ),
        (
            &[0, 0],
            &[0, 95],
            "feed_forward_length` is 95, must be a multiple of 32",
        ),
        (
            &[0, 0],
            &[0, -1],
            "feed_forward_length` is -1, must be 0 to 1048576",
        ),
        (
            &[0, 0],
            &[96],
            "feed_forward_length` is 1, must be 2 long, one for each layer",
        ),
    ] {
        let error = nemotron(heads, widths).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    let mut eps = keys("nemotron_h");
    eps.retain(|(key, _)| !key.ends_with("layer_norm_rms_epsilon"));
    let error = read(&eps).unwrap_err().to_string();
    assert!(
        error.contains("layer_norm_rms_epsilon` is missing"),
        "{error}"
    );
    let other = "nemotron_h.attention.layer_norm_epsilon".to_owned();
    eps.push((other, Field::F32(0.5)));
    assert_eq!(read(&eps).unwrap().norm_eps, 0.5);
}
