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
            if name.starts_with("gemma4") {
                let same = (stored.to_owned(), dims.to_vec(), kind, numbers);
                if stored != "mm.input_projection.weight" || name == "gemma4v" {
                    return vec![same];
                }
                // Bounds of matrices are there a second time, in one tensor; and there is an encoder of sound.
                let more = ["v.clamp_data", "a.blk.0.ln1.weight", "mm.a.fc.bias"];
                let more = more.map(|name| (name.to_owned(), vec![60], Format::F32, vec![0.5; 60]));
                return [same].into_iter().chain(more).collect();
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
    let text = Gguf::from_bytes(golden(name).file("text.gguf")).unwrap();
    let family: &str = text.need("general.architecture").unwrap();
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
        } else if family == "gemma4" {
            out.u32("gemma4.vision.feed_forward_length", 112);
            out.u32("gemma4.vision.num_channels", 3);
            out.u32("gemma4.vision.projector.scale_factor", 3);
        } else {
            let key = |part: &str| format!("{family}.vision.{part}");
            let deepstack: &[i32] = match name {
                "qwen3vl" => &[0, 1],
                "qwen3vl-moe" => &[0],
                _ => &[],
            };
            out.u32(&key("spatial_merge_size"), 2);
            out.u32(&key("shortest_edge"), 256);
            out.u32(&key("longest_edge"), 65536);
            out.i32s(&key("deepstack_visual_indexes"), deepstack);
            out.f32s(&key("image_mean"), &[0.5; 3]);
            out.f32s(&key("image_std"), &[0.5; 3]);
        }
    };
    let text = if name.starts_with("qwen3.5") {
        qwen35_of_ollama(name, family)
    } else {
        golden(name).file("text.gguf")
    };
    let is_kept = |key: &str| !key.ends_with(".n_deepstack_layers");
    joined(text, &tower, is_kept, keys)
}

/// The text of Qwen 3.5 as Ollama's converter wrote it: heads of each layer, three sections, another name, and an MTP head.
fn qwen35_of_ollama(name: &str, family: &str) -> Vec<u8> {
    let [heads, sections] =
        ["attention.head_count_kv", "rope.dimension_sections"].map(|key| format!("{family}.{key}"));
    rewritten(
        golden(name).file("text.gguf"),
        |key| key != heads && key != sections,
        |out| {
            out.i32s(&heads, &[0, 2, 0]).i32s(&sections, &[3, 3, 2]);
        },
        |stored, dims, numbers| {
            let is_matrix = dims.len() > 1;
            let kind = if is_matrix { Format::F16 } else { Format::F32 };
            let theirs = stored.replace("ssm_dt.bias", "ssm_dt");
            let head = (stored == "output_norm.weight").then(|| {
                (
                    "mtp.norm.weight".to_owned(),
                    dims.to_vec(),
                    kind,
                    numbers.clone(),
                )
            });
            let same = (theirs, dims.to_vec(), kind, numbers);
            [same].into_iter().chain(head).collect()
        },
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
    for name in [
        "gemma3",
        "qwen3vl",
        "qwen3vl-moe",
        "qwen3.5",
        "qwen3.5-moe",
        "gemma4v",
        "gemma4v-e",
    ] {
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

/// The file as one of a text of another family, with further keys.
fn of_family(bytes: Vec<u8>, families: [&str; 2], more: impl Fn(&mut GgufWriter)) -> Vec<u8> {
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let [from, to] = families.map(|family| format!("{family}."));
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        match key {
            "general.architecture" => _ = writer.str(key, families[1]),
            key => _ = writer.value(&key.replacen(&from, &to, 1), value),
        }
    }
    more(&mut writer);
    let mut contents = Vec::new();
    for tensor in gguf.tensors() {
        let (name, dims, kind) = (tensor.name.to_owned(), tensor.dims.to_vec(), tensor.kind);
        writer.tensor(TensorPlan { name, dims, kind });
        contents.push(tensor.bytes.to_vec());
    }
    let (mut next, mut out) = (contents.into_iter(), Vec::new());
    let fill =
        |_: &TensorPlan, sink: &mut dyn std::io::Write| sink.write_all(&next.next().unwrap());
    writer.write(&mut out, fill).unwrap();
    out
}

/// Tokens of Mistral 3, of which one ends a line of rows.
fn with_tokens(out: &mut GgufWriter) {
    let tokens: Vec<String> = (0..96).map(|id| format!("token {id}")).collect();
    let mut tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    tokens[4] = "[IMG_BREAK]";
    out.strings("tokenizer.ggml.tokens", &tokens);
}

/// Mistral 3 as Ollama's converter writes it: rows of queries and keys in the order of transformers, no epsilon, and no row for
/// the end of a line, which is an embedding of the text.
fn mistral3_of_ollama(tokens: impl Fn(&mut GgufWriter)) -> Vec<u8> {
    let names = [
        ("v.patch_conv", "v.patch_embd"),
        ("v.encoder_norm", "v.pre_ln"),
        (".attn_output", ".attn_out"),
        (".attn_norm", ".ln1"),
        (".ffn_norm", ".ln2"),
        ("mm.linear_1", "mm.1"),
        ("mm.linear_2", "mm.2"),
        ("mm.norm", "mm.input_norm"),
        ("mm.patch_merger.merging_layer", "mm.patch_merger"),
    ];
    let heads = 2;
    let tower = rewritten(
        golden("mistral3").file("mmproj.gguf"),
        |_| false,
        |_| {},
        |stored, dims, numbers| {
            if stored == "v.token_embd.img_break" {
                return Vec::new();
            }
            let is_matrix = dims.len() > 1;
            let kind = if is_matrix { Format::F16 } else { Format::F32 };
            let is_turned = stored.contains("attn_q.") || stored.contains("attn_k.");
            let mut rows: Vec<&[f32]> = numbers.chunks(dims[0] as usize).collect();
            if is_turned {
                let head = rows.len() / heads;
                let source = |row: usize| {
                    let (half, pair) = (row % head / (head / 2), row % (head / 2));
                    row / head * head + 2 * pair + half
                };
                rows = (0..rows.len()).map(|row| rows[source(row)]).collect();
            }
            vec![(renamed(&names, stored), dims.to_vec(), kind, rows.concat())]
        },
    );
    let keys = |out: &mut GgufWriter| {
        for (key, number) in [
            ("vision.block_count", 2),
            ("vision.embedding_length", 64),
            ("vision.feed_forward_length", 96),
            ("vision.attention.head_count", heads as u32),
            ("vision.image_size", 96),
            ("vision.patch_size", 8),
            ("spatial_merge_size", 2),
        ] {
            out.u32(&format!("mistral3.{key}"), number);
        }
        out.f32("mistral3.vision.rope.freq_base", 1e4);
    };
    let text = golden("mistral3").file("text.gguf");
    let tower = Gguf::from_bytes(tower).unwrap();
    let both = joined(text, &tower, |_| true, keys);
    of_family(both, ["llama", "mistral3"], tokens)
}

#[test]
fn tower_of_mistral3_has_the_bits_of_mmproj() {
    let golden = golden("mistral3");
    let mmproj = Gguf::from_bytes(golden.file("mmproj.gguf")).unwrap();
    let mut theirs = tower_of(mmproj.into()).unwrap();
    let bytes = mistral3_of_ollama(with_tokens);
    let mut ours = tower_of(embedded(bytes.clone()).unwrap()).unwrap();
    assert_eq!(ours.tower().config(), theirs.tower().config());
    assert!(bits(&mut ours, &golden) == bits(&mut theirs, &golden));
    let text = said(try_load(golden.file("text.gguf"), 2).unwrap());
    assert!(said(try_load(bytes, 2).unwrap()) == text);
    let said = embedded(mistral3_of_ollama(|_| {}))
        .and_then(tower_of)
        .err()
        .unwrap();
    assert!(
        said.contains("a tower of Mistral 3 without a token [IMG_BREAK]"),
        "{said}"
    );
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
