//! MiniCPM-V before 4.6, whose class comes with the weights: the numbers of a golden's `mmproj` and text under the published names
//! (`modeling_minicpmv.py`, `resampler.py`), since transformers saves no such model.

use super::*;
use crate::nested_texts::read_bytes;

/// Parts of names in an `mmproj`, and the published ones.
const NAMES: [(&str, &str); 14] = [
    ("v.patch_embd.", "vpm.embeddings.patch_embedding."),
    ("v.position_embd.", "vpm.embeddings.position_embedding."),
    ("v.post_ln.", "vpm.post_layernorm."),
    ("v.blk.", "vpm.encoder.layers."),
    (".ln1.", ".layer_norm1."),
    (".ln2.", ".layer_norm2."),
    (".attn_q.", ".self_attn.q_proj."),
    (".attn_k.", ".self_attn.k_proj."),
    (".attn_v.", ".self_attn.v_proj."),
    (".attn_out.", ".self_attn.out_proj."),
    (".ffn_up.", ".mlp.fc1."),
    (".ffn_down.", ".mlp.fc2."),
    ("resampler.kv.", "resampler.kv_proj."),
    ("resampler.attn.out.", "resampler.attn.out_proj."),
];
const PATCH: usize = 8;

/// The tensors of a golden's tower, all in one format.
fn tower_tensors(name: &str, (dtype, kind): (&str, Format)) -> Vec<Stored> {
    let gguf = Gguf::from_bytes(mmproj_as(name, kind)).unwrap();
    let stored = |name: String, shape: Vec<u64>, numbers: &[f32]| Stored {
        name,
        dtype: dtype.to_owned(),
        shape,
        bytes: encoded(kind, numbers),
    };
    let numbers = |name: &str| {
        let tensor = gguf.tensor(name).unwrap();
        floats(tensor.kind.format().unwrap(), tensor.bytes)
    };
    let mut all = Vec::new();
    for tensor in gguf.tensors() {
        let shape: Vec<u64> = tensor.dims.iter().rev().copied().collect();
        let name = NAMES
            .iter()
            .fold(tensor.name.to_owned(), |name, (from, to)| {
                name.replacen(from, to, 1)
            });
        match tensor.name {
            // Sines and cosines, which the published code computes.
            "resampler.pos_embed_k" => {}
            "resampler.proj.weight" => {
                let (numbers, edge) = (numbers(tensor.name), tensor.rows());
                let turned: Vec<f32> = (0..edge * edge)
                    .map(|at| numbers[at % edge * edge + at / edge])
                    .collect();
                all.push(stored("resampler.proj".to_owned(), shape, &turned));
            }
            "resampler.attn.q.weight" | "resampler.attn.q.bias" => {
                let kind = tensor.name.rsplit_once('.').unwrap().1;
                let parts =
                    ["q", "k", "v"].map(|part| numbers(&format!("resampler.attn.{part}.{kind}")));
                let shape = [&[3 * shape[0]], &shape[1..]].concat();
                let name = format!("resampler.attn.in_proj_{kind}");
                all.push(stored(name, shape, &parts.concat()));
            }
            other if other.starts_with("resampler.attn.k.") => {}
            other if other.starts_with("resampler.attn.v.") => {}
            other => all.push(stored(name, shape, &numbers(other))),
        }
    }
    // Of MiniCPM-o, an encoder of sound and what speaks.
    for name in [
        "apm.conv1.bias",
        "audio_projection_layer.linear1.bias",
        "tts.emb_text.weight",
    ] {
        all.push(stored(name.to_owned(), vec![4], &[0.5; 4]));
    }
    all
}

/// The files of a golden: those of 2.5 on a llama, those of 2.6 on a Qwen 2.
fn parts(name: &str, kind: (&str, Format)) -> (Value, Value, Vec<Stored>) {
    let family = if name == "minicpmv2.5" {
        "llama"
    } else {
        "qwen2"
    };
    let text = read_bytes(golden(name).file("text.gguf"), family);
    let mut config = text.config.clone();
    let queries = golden(name).numbers().0.len() / text.number("embedding_length") as usize;
    let slices = if name == "minicpmv2.5" { 1 } else { 3 };
    for (field, value) in [
        ("architectures", json!(["MiniCPMV"])),
        ("model_type", json!("minicpmv")),
        (
            "num_key_value_heads",
            json!(text.number("attention.head_count_kv")),
        ),
        ("rope_theta", json!(1e4)),
        ("query_num", json!(queries / slices)),
        ("drop_vision_last_layer", json!(false)),
        (
            "slice_config",
            json!({"max_slice_nums": 9, "patch_size": PATCH, "scale_resolution": 40}),
        ),
        (
            "vision_config",
            json!({"hidden_size": 64, "image_size": 80, "intermediate_size": 96, "num_attention_heads": 2,
                "num_hidden_layers": 2, "patch_size": PATCH, "model_type": "siglip"}),
        ),
    ] {
        config[field] = value;
    }
    if name == "minicpmv2.6" {
        config["version"] = json!(2.6);
    }
    let processor = json!({"norm_mean": [0.5, 0.5, 0.5], "norm_std": [0.5, 0.5, 0.5], "patch_size": PATCH, "slice_mode": true,
        "image_feature_size": queries / slices});
    let tensors = [tower_tensors(name, kind), text.tensors("llm.model.")].concat();
    (config, processor, tensors)
}

#[test]
fn rows_and_text_of_minicpm_have_the_bits_of_gguf() {
    for (name, version, class) in [
        ("minicpmv2.5", Value::Null, "MiniCPMV"),
        ("minicpmv2.5", json!("4"), "MiniCPMV"),
        ("minicpmv2.6", json!(2.6), "MiniCPMV"),
        ("minicpmv2.6", json!("2.6"), "MiniCPMO"),
    ] {
        let golden = golden(name);
        for kind in FORMATS {
            let gguf = Gguf::from_bytes(mmproj_as(name, kind.1)).unwrap();
            let mut theirs = tower_of(gguf.into()).unwrap();
            let (mut config, processor, tensors) = parts(name, kind);
            config["version"] = version.clone();
            config["architectures"] = json!([class]);
            let folder = saved(name, &tensors, &(config, processor));
            let mut ours = tower_of(open(&folder).unwrap()).unwrap();
            let mut wanted = theirs.tower().config().clone();
            wanted.resampler.as_mut().unwrap().is_first = version.is_null();
            assert_eq!(*ours.tower().config(), wanted, "{name} {version}");
            let label = format!("{name} {version} {kind:?}");
            assert!(
                bits(&mut ours, &golden) == bits(&mut theirs, &golden),
                "{label}"
            );
            let (found, (rows, _)) = (golden.encoded(&mut ours), golden.numbers());
            let cosine = least_cosine(&found, &rows, wanted.projection_dim);
            assert!(
                cosine >= 0.9999 || kind.1 == Format::BF16,
                "{label}: {cosine}"
            );
            let text = try_load(golden.file("text.gguf"), 2).unwrap();
            assert!(said(text_of(&folder)) == said(text), "{label}");
        }
    }
}

type Change = fn(&mut Value, &mut Value, &mut Vec<Stored>);

/// Promise (Hostile input and memory): versions, fields and tensors of MiniCPM-V that do not fit are refused by name.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_does_not_fit_in_minicpm_is_named() {
    let rows: [(&str, Change); 12] = [
        (
            "`version` is 2.0 of class MiniCPMV, must be one of 2.5, 2.6, 4.0, 4.5; 4.6 has a class",
            |config, _, _| {
                config["version"] = Value::Null;
                config["hidden_size"] = json!(2304);
                config["query_num"] = json!(64);
            },
        ),
        (
            "`version` is 4.0 of class MiniCPMO, must be one of 2.6, 4.5",
            |config, _, _| {
                config["architectures"] = json!(["MiniCPMO"]);
                config["version"] = json!(4);
            },
        ),
        ("`version` is true, must be a number", |config, _, _| {
            config["version"] = json!(true);
        }),
        ("`slice_mode` is false", |_, processor, _| {
            processor["slice_mode"] = json!(false);
        }),
        ("`use_image_id` is false", |_, processor, _| {
            processor["use_image_id"] = json!(false);
        }),
        ("`patch_size` is 16, must be 8", |_, processor, _| {
            processor["patch_size"] = json!(16);
        }),
        (
            "`image_feature_size` is 9, must be 8, as `query_num`",
            |_, processor, _| {
                processor["image_feature_size"] = json!(9);
            },
        ),
        ("`norm_std` has 2 numbers", |_, processor, _| {
            processor["norm_std"] = json!([0.5, 0.5]);
        }),
        (
            "`config.json: scale_resolution` is 7, must be 8 to",
            |_, processor, _| {
                processor["scale_resolution"] = json!(7);
            },
        ),
        (
            "`config.json: query_num` is 2000, must be 0 to 1024",
            |config, processor, _| {
                config["query_num"] = json!(2000);
                processor["image_feature_size"] = Value::Null;
            },
        ),
        // The published code leaves out the last layer, unless the file says otherwise.
        ("vpm.encoder.layers.1.", |config, _, _| {
            config["drop_vision_last_layer"] = Value::Null;
        }),
        ("resampler.attn.in_proj_weight", |_, _, tensors| {
            tensors.retain(|tensor| tensor.name != "resampler.attn.in_proj_weight");
        }),
    ];
    for (part, change) in rows {
        let (mut config, mut processor, mut tensors) = parts("minicpmv2.6", FORMATS[1]);
        change(&mut config, &mut processor, &mut tensors);
        let folder = saved("minicpmv2.6", &tensors, &(config, processor));
        let said = open(&folder).and_then(tower_of).err().expect(part);
        assert!(said.contains(part), "{part}: {said}");
        if part.starts_with("`version`") {
            let Err(of_text) = Safetensors::open(&folder.folder, None) else {
                panic!("{part}");
            };
            assert_eq!(of_text.to_string(), said);
        }
    }
}

/// Fields of version 4.6, and of MiniCPM-OCR, that ask for something else.
#[test]
fn what_does_not_fit_in_minicpm46_is_named() {
    let rows: [(&str, Change); 8] = [
        (
            "`downsample_mode` is 8x, must be 16x or 4x",
            |config, _, _| {
                config["downsample_mode"] = json!("8x");
            },
        ),
        ("`downsample_mode` is 4x, must be 16x", |_, processor, _| {
            processor["downsample_mode"] = json!("4x");
        }),
        (
            "`merge_kernel_size` is [4, 4], must be [2, 2]",
            |config, _, _| {
                config["merge_kernel_size"] = json!([4, 4]);
            },
        ),
        (
            "`vision_config.window_kernel_size` is [1, 1], must be",
            |config, _, _| {
                config["vision_config"]["window_kernel_size"] = json!([1, 1]);
            },
        ),
        ("`merger_times` is 2", |config, _, _| {
            config["merger_times"] = json!(2);
        }),
        ("`drop_vision_last_layer` is true", |config, _, _| {
            config["drop_vision_last_layer"] = json!(true);
        }),
        (
            "`config.json: insert_layer_id` is 3, must be 0 to 2",
            |config, _, _| {
                config["insert_layer_id"] = json!(3);
            },
        ),
        (
            "minicpmv4_7, whose rows have places on a canvas, is not computed; MiniCPM-V 2.5, 2.6",
            |config, _, _| {
                config["architectures"] = json!(["MiniCPMV4_7ForConditionalGeneration"]);
            },
        ),
    ];
    let name = "minicpmv4.6";
    for (part, change) in rows {
        let ((mut config, mut processor), mut tensors) =
            (configs(name), saved_tensors(name, FORMATS[1]));
        change(&mut config, &mut processor, &mut tensors);
        let folder = saved(name, &tensors, &(config, processor));
        let said = open(&folder).and_then(tower_of).err().expect(part);
        assert!(said.contains(part), "{part}: {said}");
    }
    let name = "minicpm-ocr";
    let (mut config, mut processor) = configs(name);
    config["downsample_mode"] = Value::Null;
    processor["small_image_upsize"] = json!("adaptive");
    let folder = saved(name, &saved_tensors(name, FORMATS[1]), &(config, processor));
    let said = open(&folder).err().unwrap();
    assert!(
        said.contains("`small_image_upsize` is adaptive, must be always"),
        "{said}"
    );
}

/// The text of 4.6 as it was published is a Qwen 3.5, whose fields another reader knows.
#[test]
fn a_qwen35_is_the_text_of_minicpm46() {
    let name = "qwen3.5";
    let (mut config, processor) = configs(name);
    config["architectures"] = json!(["MiniCPMV4_6ForConditionalGeneration"]);
    let mut tensors = saved_tensors(name, FORMATS[1]);
    for tensor in &mut tensors {
        let pairs = [
            ("model.visual.merger.", "model.merger."),
            ("model.visual.", "model.vision_tower."),
        ];
        for (from, to) in pairs {
            tensor.name = tensor.name.replacen(from, to, 1);
        }
    }
    assert!(
        tensors
            .iter()
            .any(|tensor| tensor.name.starts_with("model.merger."))
    );
    let folder = saved(name, &tensors, &(config, processor));
    let gguf = try_load(golden(name).file("text.gguf"), 2).unwrap();
    assert!(said(text_of(&folder)) == said(gguf));
}
