//! Towers inside of a model's own GGUF: keys and tensors as Ollama's converter writes them, or joined from two files.

use super::*;

/// Keys and tensors of the text, then those of the tower as Ollama's converter writes them.
#[expect(clippy::too_many_lines, reason = "a table")]
fn of_ollama(name: &str) -> Vec<u8> {
    let tower = rewritten(
        golden(name).file("mmproj.gguf"),
        |_| false,
        |_| {},
        |stored, dims, numbers| {
            let kind = if dims.len() > 1 {
                Format::F16
            } else {
                Format::F32
            };
            if name == "gemma3" {
                return vec![(gemma3_name(stored), dims.to_vec(), kind, numbers)];
            }
            if let Some(part) = stored.split_once("attn_qkv.") {
                let third = numbers.len() / 3;
                let mut dims = dims.to_vec();
                *dims.last_mut().unwrap() /= 3;
                let parts = ["attn_q.", "attn_k.", "attn_v."]
                    .into_iter()
                    .zip(numbers.chunks(third));
                return parts
                    .map(|(to, numbers)| {
                        (
                            format!("{}{to}{}", part.0, part.1),
                            dims.clone(),
                            kind,
                            numbers.to_vec(),
                        )
                    })
                    .collect();
            }
            vec![(qwen3_name(stored), dims.to_vec(), kind, numbers)]
        },
    );
    let tower = Gguf::from_bytes(tower).unwrap();
    let vision = Gguf::from_bytes(golden(name).file("mmproj.gguf")).unwrap();
    let family = name;
    let keys = |out: &mut GgufWriter| {
        let number = |key: &str| vision.need::<u32>(&format!("clip.vision.{key}")).unwrap();
        for key in [
            "block_count",
            "embedding_length",
            "attention.head_count",
            "patch_size",
        ] {
            out.u32(&format!("{family}.vision.{key}"), number(key));
        }
        out.f32(
            &format!("{family}.vision.attention.layer_norm_epsilon"),
            1e-6,
        );
        if family == "gemma3" {
            out.u32(
                "gemma3.vision.feed_forward_length",
                number("feed_forward_length"),
            );
            out.u32("gemma3.vision.image_size", number("image_size"));
            out.u32("gemma3.mm.tokens_per_image", 16);
        } else {
            out.u32("qwen3vl.vision.spatial_merge_size", 2);
            out.u32("qwen3vl.vision.shortest_edge", 256);
            out.u32("qwen3vl.vision.longest_edge", 65536);
            out.i32s("qwen3vl.vision.deepstack_visual_indexes", &[0, 1]);
            out.f32s("qwen3vl.vision.image_mean", &[0.5; 3]);
            out.f32s("qwen3vl.vision.image_std", &[0.5; 3]);
        }
    };
    joined(
        golden(name).file("text.gguf"),
        &tower,
        |key| key != "qwen3vl.n_deepstack_layers",
        keys,
    )
}

/// A text's file with the tensors of another file.
fn joined(
    text: Vec<u8>,
    tower: &Gguf,
    kept: impl Fn(&str) -> bool,
    keys: impl Fn(&mut GgufWriter),
) -> Vec<u8> {
    let text = Gguf::from_bytes(text).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in text.metadata().filter(|(key, _)| kept(key)) {
        writer.value(key, value);
    }
    keys(&mut writer);
    let mut contents = Vec::new();
    let second = tower.tensor("v.patch_embed.weight.1");
    for tensor in text.tensors().chain(tower.tensors()) {
        let mut plan = TensorPlan {
            name: tensor.name.to_owned(),
            dims: tensor.dims.to_vec(),
            kind: tensor.kind,
        };
        match (tensor.name, &second) {
            ("v.patch_embed.weight.1", _) => continue,
            ("v.patch_embed.weight", Some(second)) => {
                // Both frames of each channel of each kernel, one after the other.
                let area = (tensor.dims[0] * tensor.dims[1] * 2) as usize;
                let pairs = tensor.bytes.chunks(area).zip(second.bytes.chunks(area));
                plan.dims = vec![
                    tensor.dims[0],
                    tensor.dims[1],
                    2,
                    tensor.dims[2] * tensor.dims[3],
                ];
                contents.push(pairs.flat_map(|(a, b)| [a, b].concat()).collect());
            }
            _ => contents.push(tensor.bytes.to_vec()),
        }
        writer.tensor(plan);
    }
    let (mut next, mut out) = (contents.into_iter(), Vec::new());
    let fill =
        |_: &TensorPlan, sink: &mut dyn std::io::Write| sink.write_all(&next.next().unwrap());
    writer.write(&mut out, fill).unwrap();
    out
}

fn renamed(rules: &[(&str, &str)], name: &str) -> String {
    rules.iter().fold(name.to_owned(), |name, (to, from)| {
        name.replacen(from, to, 1)
    })
}

/// The name of Ollama's converter: transformers' with `v` and `blk`.
fn gemma3_name(name: &str) -> String {
    renamed(
        &[
            ("v.patch_embedding", "v.patch_embd"),
            ("v.position_embedding", "v.position_embd"),
            ("v.post_layernorm", "v.post_ln"),
            (".layer_norm1", ".ln1"),
            (".layer_norm2", ".ln2"),
            (".attn_output", ".attn_out"),
            (".mlp.fc1", ".ffn_up"),
            (".mlp.fc2", ".ffn_down"),
            ("mm.mm_input_projection", "mm.input_projection"),
            ("mm.mm_soft_emb_norm", "mm.soft_emb_norm"),
        ],
        name,
    )
}

fn qwen3_name(name: &str) -> String {
    renamed(
        &[
            ("v.pos_embed", "v.position_embd"),
            ("v.patch_embed.", "v.patch_embd."),
            ("v.merger.norm", "v.post_ln"),
            ("v.merger.linear_fc1", "mm.0"),
            ("v.merger.linear_fc2", "mm.2"),
            (".mlp.linear_fc1", ".ffn_up"),
            (".mlp.linear_fc2", ".ffn_down"),
            (".norm1", ".ln1"),
            (".norm2", ".ln2"),
            ("v.deepstack_merger.0.", "v.deepstack.0."),
            ("v.deepstack_merger.1.", "v.deepstack.1."),
            (".linear_fc1", ".fc1"),
            (".linear_fc2", ".fc2"),
        ],
        name,
    )
}

fn embedded(bytes: Vec<u8>) -> Result<ModelFiles, String> {
    let gguf = Gguf::from_bytes(bytes).map_err(|why| why.to_string())?;
    let tower = EmbeddedTower::of(gguf).map_err(|why| why.to_string())?;
    tower.map(Into::into).ok_or_else(|| "no tower".to_owned())
}

#[test]
fn tower_inside_of_a_models_file_has_the_bits_of_mmproj() {
    for name in ["gemma3", "qwen3vl"] {
        let golden = golden(name);
        let mut theirs =
            tower_of(Gguf::from_bytes(golden.file("mmproj.gguf")).unwrap().into()).unwrap();
        let text = said(try_load(golden.file("text.gguf"), 2).unwrap());
        let mmproj = Gguf::from_bytes(golden.file("mmproj.gguf")).unwrap();
        let with_clip = joined(
            golden.file("text.gguf"),
            &mmproj,
            |_| true,
            |out| {
                for (key, value) in mmproj
                    .metadata()
                    .filter(|(key, _)| key.starts_with("clip."))
                {
                    out.value(key, value);
                }
            },
        );
        for bytes in [of_ollama(name), with_clip] {
            let mut ours = tower_of(embedded(bytes.clone()).unwrap()).unwrap();
            assert_eq!(ours.tower().config(), theirs.tower().config(), "{name}");
            assert!(
                bits(&mut ours, &golden) == bits(&mut theirs, &golden),
                "{name}"
            );
            let model = try_load(bytes, 2).unwrap();
            assert_eq!(
                model.config().deepstack,
                ours.tower().config().deepstack.len()
            );
            assert!(said(model) == text, "{name}");
        }
        assert_eq!(
            embedded(golden.file("text.gguf")).err().as_deref(),
            Some("no tower")
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn keys_of_a_models_file_are_named() {
    let change = |from: &'static str, to: Option<u32>| {
        let bytes = of_ollama("gemma3");
        rewritten(
            bytes,
            move |key| key != from,
            move |out| {
                if let Some(to) = to {
                    out.u32(from, to);
                }
            },
            |name, dims, numbers| {
                let kind = if dims.len() > 1 {
                    Format::F16
                } else {
                    Format::F32
                };
                vec![(name.to_owned(), dims.to_vec(), kind, numbers)]
            },
        )
    };
    for (key, to, part) in [
        (
            "gemma3.vision.block_count",
            None,
            "`gemma3.vision.block_count` is missing",
        ),
        (
            "gemma3.vision.attention.head_count",
            Some(7),
            "`gemma3.vision.attention.head_count` is 7",
        ),
        (
            "gemma3.vision.block_count",
            Some(3),
            "tensor `v.blk.2.attn_q.weight` is missing",
        ),
        (
            "gemma3.vision.feed_forward_length",
            Some(113),
            "`v.blk.0.mlp.fc1.weight`",
        ),
        ("gemma3.mm.tokens_per_image", Some(1), "`v.blk"),
    ] {
        let said = embedded(change(key, to))
            .and_then(tower_of)
            .map(|_| ())
            .err();
        if key == "gemma3.mm.tokens_per_image" {
            assert_eq!(said, None, "the mean of all patches is a row");
            continue;
        }
        let said = said.expect(part);
        assert!(said.contains(part), "{part}: {said}");
    }
    let other = rewritten(
        of_ollama("gemma3"),
        |key| key != "general.architecture",
        |out| {
            out.str("general.architecture", "llama4");
        },
        |name, dims, numbers| vec![(name.to_owned(), dims.to_vec(), Format::F32, numbers)],
    );
    let said = embedded(other).and_then(tower_of).err().unwrap();
    assert!(said.contains("is llama4, must be one of"), "{said}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Bytes of a model's file, and of the header of safetensors, are exchanged: an error, or a tower.
    #[test]
    fn damaged_sources_end_with_an_error_or_a_tower(
        name in prop::sample::select(&["gemma3", "qwen3vl"][..]),
        changes in prop::collection::vec((0..6000_usize, any::<u8>()), 1..4),
    ) {
        let mut inside = of_ollama(name);
        let mut stored = file(&saved_tensors(name, FORMATS[1]));
        for (at, byte) in changes {
            inside[at] = byte;
            stored[at] = byte;
        }
        if let Err(said) = embedded(inside).and_then(tower_of) {
            prop_assert!(!said.is_empty());
        }
        let (folder, config) = (Saved::empty(), configs(name).0);
        folder.put("config.json", config.to_string().as_bytes());
        folder.put("model.safetensors", &stored);
        if let Err(said) = open(&folder).and_then(tower_of) {
            prop_assert!(!said.is_empty());
        }
    }
}

/// Synthetic towers of every kind keep their bits when they are inside of a text's file.
#[test]
fn synthetic_towers_are_found_inside_of_their_texts() {
    for preset in VISION_PRESETS
        .iter()
        .filter(|preset| preset.starts_with("tiny-"))
    {
        let spec = VisionSpec::preset(preset).unwrap();
        let bytes = spec.to_bytes().unwrap();
        let mmproj = Gguf::from_bytes(bytes.clone()).unwrap();
        let text = spec.text().unwrap().to_bytes().unwrap();
        let both = joined(
            text,
            &mmproj,
            |_| true,
            |out| {
                for (key, value) in mmproj
                    .metadata()
                    .filter(|(key, _)| key.starts_with("clip."))
                {
                    out.value(key, value);
                }
            },
        );
        let ours = embedded(both).unwrap().tower_config().unwrap();
        assert_eq!(
            ours,
            ModelFiles::from(Gguf::from_bytes(bytes).unwrap())
                .tower_config()
                .unwrap(),
            "{preset}"
        );
    }
}
