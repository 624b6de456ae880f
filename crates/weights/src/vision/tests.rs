//! Metadata of towers: what is read, and what is refused by name.

use super::{Activation, NormKind, Projector, VisionConfig, Windows, is_tower};
use crate::ConfigError;
use crate::gguf::{Gguf, GgufWriter};
use media::{Detail, Normalization, PatchOrder, Size};

type Change = fn(&mut GgufWriter);

/// A file of keys without tensors: those of SmolVLM, without the ones named in `left_out`, then `more`.
fn file(left_out: &[&str], more: Change) -> Gguf {
    file_of(left_out, "idefics3", more)
}

/// A tower's file with this projector.
fn file_of(left_out: &[&str], projector: &str, more: Change) -> Gguf {
    let mut out = GgufWriter::new();
    out.str("general.architecture", "clip");
    let numbers = [
        ("image_size", 512),
        ("patch_size", 16),
        ("embedding_length", 768),
        ("feed_forward_length", 3072),
        ("projection_dim", 576),
        ("block_count", 12),
        ("attention.head_count", 12),
        ("projector.scale_factor", 4),
        ("preproc_image_size", 2048),
    ];
    for (key, value) in numbers.iter().filter(|(key, _)| !left_out.contains(key)) {
        out.u32(&format!("clip.vision.{key}"), *value);
    }
    if !left_out.contains(&"projector_type") {
        out.str("clip.projector_type", projector);
    }
    if !left_out.contains(&"use_gelu") {
        out.bool("clip.use_gelu", true);
    }
    more(&mut out);
    let mut bytes = Vec::new();
    out.write(&mut bytes, |_, _| Ok(())).unwrap();
    Gguf::from_bytes(bytes).unwrap()
}

fn config(left_out: &[&str], more: Change) -> Result<VisionConfig, ConfigError> {
    VisionConfig::from_gguf(&file(left_out, more))
}

#[test]
fn a_smolvlm_file_gives_its_tower() {
    let config = config(&[], |_| {}).unwrap();
    assert_eq!(config.projector, Projector::Idefics3);
    assert_eq!(config.activation, Activation::Gelu);
    assert_eq!((config.head_dim(), config.table_edge), (64, 32));
    assert_eq!((config.rows_max(), config.row_width()), (64, 576));
    let plan = config.recipe.plan(Size::new(1600, 1200), Detail::High);
    assert_eq!(plan.unwrap().rows, 13 * 64);
    assert!(is_tower(&file(&[], |_| {})));
}

/// SmolVLM 2.2B: 384 pixels are 27 patches of 14, and six pixels more.
#[test]
fn pixels_beyond_the_last_patch_are_not_seen() {
    let left_out = [
        "image_size",
        "patch_size",
        "projector.scale_factor",
        "preproc_image_size",
    ];
    let config = config(&left_out, |out| {
        put(out, "image_size", 384);
        put(out, "patch_size", 14);
        put(out, "projector.scale_factor", 3);
    });
    let config = config.unwrap();
    assert_eq!((config.table_edge, config.rows_max()), (27, 81));
    let plan = config.recipe.plan(Size::new(1000, 1000), Detail::High);
    assert_eq!(plan.unwrap().rows, 17 * 81);
}

#[test]
fn a_tower_of_another_text_is_refused_with_both_numbers() {
    let config = config(&[], |_| {}).unwrap();
    assert_eq!(config.check_text("mini", 576, 0), Ok(()));
    let said = config.check_text("mini", 960, 0).unwrap_err().to_string();
    assert!(
        said.contains("projection_dim` is 576, must be 960 as in model mini"),
        "{said}"
    );
    let said = config.check_text("mini", 576, 3).unwrap_err().to_string();
    assert!(
        said.contains("is_deepstack_layers` is 0, must be 3"),
        "{said}"
    );
}

/// Promise (Hostile input and memory): a tower that is not computed, or a file whose numbers break a bound, is refused with the name of the key
/// and the bound.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_is_not_computed_or_breaks_a_bound_is_named() {
    let rows: [(&str, &[&str], Change); 22] = [
        ("`mllama`", &["projector_type"], |out| {
            put_projector(out, "mllama");
        }),
        (
            "`clip.projector_type` is llama4",
            &["projector_type"],
            |out| {
                put_projector(out, "llama4");
            },
        ),
        (
            "is gemma3nv, must be one of idefics3",
            &["projector_type"],
            |out| {
                put_projector(out, "gemma3nv");
            },
        ),
        (
            "`clip.projector_type` is missing",
            &["projector_type"],
            |_| {},
        ),
        ("an encoder of images", &[], |out| {
            out.bool("clip.has_vision_encoder", false);
        }),
        (
            "embedding_length` is missing",
            &["embedding_length"],
            |_| {},
        ),
        ("a multiple of 32", &["embedding_length"], |out| {
            put(out, "embedding_length", 40);
        }),
        ("embedding_length", &["embedding_length"], |out| {
            put(out, "embedding_length", u32::MAX);
        }),
        ("block_count", &["block_count"], |out| {
            put(out, "block_count", 0);
        }),
        ("block_count", &["block_count"], |out| {
            put(out, "block_count", 100_000);
        }),
        ("a divisor of 768", &["attention.head_count"], |out| {
            put(out, "attention.head_count", 7);
        }),
        ("attention.head_count", &["attention.head_count"], |out| {
            put(out, "attention.head_count", 0);
        }),
        ("patch_size", &["patch_size"], |out| {
            put(out, "patch_size", 0);
        }),
        ("patch_size", &["patch_size"], |out| {
            put(out, "patch_size", 65);
        }),
        ("image_size", &["image_size"], |out| {
            put(out, "image_size", 1 << 31);
        }),
        (
            "image_size` is 33 patches, must be a multiple of 4",
            &["image_size", "preproc_image_size"],
            |out| {
                put(out, "image_size", 530);
            },
        ),
        (
            "at most 1024 patches",
            &["image_size", "patch_size"],
            |out| {
                put(out, "image_size", 16_384);
                put(out, "patch_size", 1);
            },
        ),
        ("preproc_image_size", &["preproc_image_size"], |out| {
            put(out, "preproc_image_size", 100);
        }),
        ("scale_factor", &["projector.scale_factor"], |out| {
            put(out, "projector.scale_factor", 0);
        }),
        ("two activations", &[], |out| {
            out.bool("clip.use_silu", true);
        }),
        ("three numbers", &[], |out| {
            out.f32s("clip.vision.image_std", &[0.5, 0.0, 0.5]);
        }),
        ("three numbers", &[], |out| {
            out.f32s("clip.vision.image_mean", &[f32::NAN, 0.5]);
        }),
    ];
    for (part, left_out, more) in rows {
        match config(left_out, more) {
            Err(error) => {
                let said = error.to_string();
                assert!(said.contains(part.trim_matches('`')), "{part}: {said}");
            }
            Ok(_) => panic!("{part}: accepted"),
        }
    }
}

#[test]
fn bounds_of_pictures_and_of_rows_for_further_layers_are_checked() {
    let qwen: Change = |out| {
        put_projector(out, "qwen3vl_merger");
        put(out, "spatial_merge_size", 2);
    };
    let left_out = [
        "projector_type",
        "projector.scale_factor",
        "preproc_image_size",
    ];
    let plain = config(&left_out, qwen).unwrap();
    assert_eq!(
        (plain.merge, plain.rows_max(), plain.deepstack.len()),
        (2, 4096, 0)
    );
    let flags: Change = |out| {
        put_projector(out, "qwen3vl_merger");
        put(out, "spatial_merge_size", 2);
        let after = |layer| layer == 5 || layer == 8;
        out.bools(
            "clip.vision.is_deepstack_layers",
            &(0..12).map(after).collect::<Vec<_>>(),
        );
    };
    let config_with = config(&left_out, flags).unwrap();
    assert_eq!(config_with.deepstack, [5, 8]);
    assert_eq!(config_with.row_width(), 3 * 576);
    let few: Change = |out| {
        put_projector(out, "qwen3vl_merger");
        out.bools("clip.vision.is_deepstack_layers", &[true; 5]);
    };
    let said = config(&left_out, few).unwrap_err().to_string();
    assert!(said.contains("is_deepstack_layers"), "{said}");
    let reversed: Change = |out| {
        put_projector(out, "qwen3vl_merger");
        put(out, "image_min_pixels", 70_000);
        put(out, "image_max_pixels", 65_536);
    };
    let said = config(&left_out, reversed).unwrap_err().to_string();
    assert!(said.contains("image_min_pixels"), "{said}");
}

/// Keys that SmolVLM's file has and others have not.
const SMOLVLM: [&str; 4] = [
    "projector_type",
    "projector.scale_factor",
    "preproc_image_size",
    "use_gelu",
];

#[test]
fn windows_of_qwen_2_5_are_read_and_checked() {
    let plain: Change = |out| {
        put_projector(out, "qwen2.5vl_merger");
        put(out, "n_wa_pattern", 4);
        out.bool("clip.use_silu", true);
    };
    let config = config(&SMOLVLM, plain).unwrap();
    assert_eq!(config.windows, Windows::Layers { full_every: 4 });
    let bound: Vec<usize> = (0..12)
        .filter(|layer| !config.windows.bound(*layer))
        .collect();
    assert_eq!(bound, [3, 7, 11]);
    // 112 pixels are 3 blocks of 2 by 2 patches of 16, and some pixels more.
    let order = PatchOrder::Windows { merge: 2, edge: 6 };
    assert_eq!(config.recipe.order, order);
    assert_eq!(config.recipe.normalization, Normalization::CLIP);
    let rows: [(&str, Change); 3] = [
        ("`clip.vision.n_wa_pattern` is missing", |_| {}),
        ("n_wa_pattern` is 0, must be 1 to", |out| {
            put(out, "n_wa_pattern", 0);
        }),
        ("window_size` is 31, must be at least 32", |out| {
            put(out, "n_wa_pattern", 4);
            put(out, "window_size", 31);
        }),
    ];
    for (part, more) in rows {
        let said = refused("qwen2.5vl_merger", more);
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn longest_edge_and_merge_of_pixtral_are_read() {
    let config = config(&SMOLVLM, |out| {
        put_projector(out, "pixtral");
        out.bool("clip.use_silu", true);
    });
    let config = config.unwrap();
    assert_eq!((config.merge, config.activation), (1, Activation::Silu));
    // 512 pixels of 16, each line with a mark.
    let plan = config
        .recipe
        .plan(Size::new(1024, 512), Detail::High)
        .unwrap();
    assert_eq!(plan.rows, 16 * 33);
    assert!(config.rows_max() >= plan.rows as usize);
}

#[test]
fn layers_and_resolutions_of_llava_are_read_and_checked() {
    let plain: Change = |out| put_projector(out, "mlp");
    let first = config(&SMOLVLM, plain).unwrap();
    assert_eq!((first.layers, first.windows), (12, Windows::Whole));
    assert_eq!(first.activation, Activation::QuickGelu);
    assert_eq!(first.rows_max(), 32 * 32);
    let next = config(&SMOLVLM, |out| {
        put_projector(out, "mlp");
        out.i32s("clip.vision.feature_layer", &[11]);
        out.i32s("clip.vision.image_grid_pinpoints", &[512, 1024, 1024, 512]);
    });
    let next = next.unwrap();
    assert_eq!((next.layers, next.stored_layers), (11, 12));
    assert_eq!(next.windows, Windows::Pictures);
    let several = config(&SMOLVLM, |out| {
        put_projector(out, "mlp");
        out.i32s("clip.vision.feature_layer", &[4, 0, 11]);
    });
    let several = several.unwrap();
    assert_eq!((several.layers, several.side()), (11, 3 * 768));
    assert_eq!((several.features, next.features.len()), (vec![4, 0, 11], 0));
    let plan = next
        .recipe
        .plan(Size::new(1024, 512), Detail::Auto)
        .unwrap();
    assert_eq!(plan.rows, 32 * 32 + 32 * 65);
    assert!(next.rows_max() >= 32 * 65);
    let rows: [(&str, Change); 8] = [
        ("feature_layer` is 13, must be 1 to 12", |out| {
            out.i32s("clip.vision.feature_layer", &[13]);
        }),
        ("feature_layer` is 0", |out| {
            out.i32s("clip.vision.feature_layer", &[0]);
        }),
        ("feature_layer` is 4, 13, must be 0 to 12", |out| {
            out.i32s("clip.vision.feature_layer", &[4, 13]);
        }),
        ("feature_layer` is 0, 0, must be", |out| {
            out.i32s("clip.vision.feature_layer", &[0, 0]);
        }),
        ("feature_layer` is 17, must be at most 16 long", |out| {
            out.i32s("clip.vision.feature_layer", &[1; 17]);
        }),
        ("pairs of multiples of 512, with 1 to 64 tiles", |out| {
            out.i32s("clip.vision.image_grid_pinpoints", &[512, 1024, 1024]);
        }),
        ("must be pairs of multiples of 512", |out| {
            out.i32s("clip.vision.image_grid_pinpoints", &[512, 1000]);
        }),
        ("must be pairs of multiples of 512", |out| {
            out.i32s("clip.vision.image_grid_pinpoints", &[-512, 1 << 30]);
        }),
    ];
    for (part, more) in rows {
        let said = refused("mlp", more);
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn tiles_of_internvl_and_lfm2_are_read_and_checked() {
    let rows_of = |config: &VisionConfig, width, height| {
        let plan = config.recipe.plan(Size::new(width, height), Detail::High);
        plan.unwrap().rows
    };
    let intern = config(&SMOLVLM, |out| {
        put_projector(out, "internvl");
        out.bool("clip.use_gelu", true);
    });
    let intern = intern.unwrap();
    assert_eq!(intern.activation, Activation::GeluErf);
    assert_eq!(intern.recipe.normalization, Normalization::IMAGENET);
    assert_eq!(intern.traits.norm, NormKind::Layer);
    // Two tiles and the whole.
    assert_eq!(rows_of(&intern, 1024, 512), 3 * 256);
    let sizes = ["embedding_length", "block_count", "attention.head_count"];
    let large = config(&[&SMOLVLM[..], &sizes].concat(), |out| {
        put_projector(out, "internvl");
        put(out, "embedding_length", 3200);
        put(out, "block_count", 45);
        put(out, "attention.head_count", 25);
    });
    assert_eq!(large.unwrap().traits.norm, NormKind::Rms);
    let liquid = config(&SMOLVLM, |out| {
        put_projector(out, "lfm2");
        out.bool("clip.use_gelu", true);
    });
    let liquid = liquid.unwrap();
    assert_eq!(liquid.activation, Activation::Gelu);
    assert_eq!(rows_of(&liquid, 512, 512), 256);
    assert_eq!(rows_of(&liquid, 1024, 512), 22 * 11);
    // 4 by 2 tiles, and the whole.
    assert_eq!(rows_of(&liquid, 2048, 1024), 8 * 256 + 22 * 11);
    assert!(liquid.rows_max() >= 256);
    let rows: [(&str, &str, Change); 4] = [
        (
            "internvl",
            "preproc_min_tiles` is 5, must be at most 4",
            |out| {
                put(out, "preproc_min_tiles", 5);
                put(out, "preproc_max_tiles", 4);
            },
        ),
        (
            "internvl",
            "preproc_max_tiles` is 65, must be 1 to 64",
            |out| {
                put(out, "preproc_max_tiles", 65);
            },
        ),
        (
            "lfm2",
            "image_min_pixels` is 300 rows, must be at most 256 rows",
            |out| {
                put(out, "image_min_pixels", 300 * 1024);
            },
        ),
        (
            "lfm2",
            "image_max_pixels` is 1023, must be 1024 to",
            |out| {
                put(out, "image_max_pixels", 1023);
            },
        ),
    ];
    for (projector, part, more) in rows {
        let said = refused(projector, more);
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// The error for a file with this projector and these keys.
fn refused(projector: &str, more: Change) -> String {
    let mut left_out = SMOLVLM.to_vec();
    left_out.retain(|key| *key != "projector_type");
    let gguf = file_of(&left_out, projector, more);
    VisionConfig::from_gguf(&gguf).unwrap_err().to_string()
}

fn put(out: &mut GgufWriter, key: &str, value: u32) {
    out.u32(&format!("clip.vision.{key}"), value);
}

fn put_projector(out: &mut GgufWriter, name: &str) {
    out.str("clip.projector_type", name);
}
