//! Towers in safetensors and inside of a text model's GGUF: the rows of the same tower as `mmproj`, bit for bit, and errors
//! that name the field or the tensor. `tools/oracle/saved_towers.py` wrote the folders, as transformers saves them.
//!
//! Promise (Models): a tower in safetensors of transformers' classes, or inside of a model's own GGUF, gives the bits of the
//! same tower as `mmproj`, with F32, F16 and BF16; the text of such a model gives the bits of a text without a tower.

mod embedded;
mod minicpm;
mod refusals;
mod wide;

use crate::support::saved::{Saved, Stored, file};
use crate::support::{ids, logits, options, try_load};
use crate::tower_goldens::{Golden, goldens, least_cosine, stored_as};
use cpu::{Model, Tower, TowerAlone};
use half::{bf16, f16};
use kernels::{Format, Isa, Pool};
use media::Rule;
use media::plan::Fit;
use model::Forward;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use synth::{VISION_PRESETS, VisionSpec};
use weights::ModelFiles;
use weights::gguf::{Gguf, GgufWriter, TensorKind, TensorPlan};
use weights::safetensors::{Quantize, Safetensors};
use weights::vision::{EmbeddedTower, VisionConfig};

/// Cases whose models were saved.
const SAVED: [&str; 21] = [
    "idefics3",
    "gemma3",
    "qwen3vl",
    "qwen2vl",
    "qwen2.5vl",
    "internvl",
    "lfm2vl",
    "llava",
    "llava-next",
    "pixtral",
    "mistral3",
    "gemma4v",
    "gemma4v-e",
    "gemma4uv",
    "minicpmv4.6",
    "qwen3.5",
    "qwen3.5-moe",
    "qwen3vl-moe",
    "llava-siglip",
    "granite-vision",
    "minicpm-ocr",
];
const FORMATS: [(&str, Format); 3] = [
    ("F32", Format::F32),
    ("F16", Format::F16),
    ("BF16", Format::BF16),
];

fn golden(name: &str) -> Golden {
    goldens()
        .into_iter()
        .find(|golden| golden.name == name)
        .unwrap()
}

/// The numbers of a tensor of floats.
fn floats(kind: Format, bytes: &[u8]) -> Vec<f32> {
    let halves = |number: fn([u8; 2]) -> f32| {
        bytes
            .as_chunks::<2>()
            .0
            .iter()
            .map(move |two| number(*two))
            .collect()
    };
    match kind {
        Format::F32 => bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|four| f32::from_le_bytes(*four))
            .collect(),
        Format::F16 => halves(|two| f16::from_le_bytes(two).to_f32()),
        _ => halves(|two| bf16::from_le_bytes(two).to_f32()),
    }
}

/// The bytes of numbers in a format of floats.
fn encoded(kind: Format, floats: &[f32]) -> Vec<u8> {
    match kind {
        Format::F32 => floats.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Format::F16 => floats
            .iter()
            .flat_map(|x| f16::from_f32(*x).to_le_bytes())
            .collect(),
        _ => floats
            .iter()
            .flat_map(|x| bf16::from_f32(*x).to_le_bytes())
            .collect(),
    }
}

/// A number as the format has it.
fn rounded(kind: Format, number: f32) -> f32 {
    floats(kind, &encoded(kind, &[number]))[0]
}

/// The tensors of a file that transformers wrote in F16, in another format.
fn saved_tensors(name: &str, (dtype, kind): (&str, Format)) -> Vec<Stored> {
    let bytes = golden(name).file("safetensors");
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + len]).unwrap();
    let data = &bytes[8 + len..];
    let number = |value: &Value| value.as_u64().unwrap();
    let entries = header.iter().filter(|(name, _)| *name != "__metadata__");
    entries
        .map(|(name, entry)| {
            assert_eq!(entry["dtype"], "F16");
            let [start, end] = [0, 1].map(|at| number(&entry["data_offsets"][at]) as usize);
            Stored {
                name: name.clone(),
                dtype: dtype.to_owned(),
                shape: entry["shape"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(number)
                    .collect(),
                bytes: encoded(kind, &floats(Format::F16, &data[start..end])),
            }
        })
        .collect()
}

/// The configuration of a case's model, and the image processor's file.
fn configs(name: &str) -> (Value, Value) {
    let config = serde_json::from_slice(&golden(name).file("config.json")).unwrap();
    let (mean, std) = match name {
        "internvl" => ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        "qwen2vl" | "qwen2.5vl" | "llava" | "llava-next" | "pixtral" | "mistral3" => (
            [0.48145466, 0.4578275, 0.40821073],
            [0.26862954, 0.26130258, 0.27577711],
        ),
        _ => ([0.5; 3], [0.5; 3]),
    };
    let mut processor = json!({"image_mean": mean, "image_std": std});
    processor["size"] = match name {
        "idefics3" => json!({"longest_edge": 64}),
        "gemma3" | "internvl" => json!({"height": 64, "width": 64}),
        "lfm2vl" => json!({"height": 512, "width": 512}),
        "llava" | "llava-next" => json!({"shortest_edge": 32}),
        "llava-siglip" | "granite-vision" => json!({"height": 36, "width": 36}),
        "minicpmv4.6" | "minicpm-ocr" => Value::Null,
        "pixtral" | "mistral3" => json!({"longest_edge": 96}),
        "gemma4v" | "gemma4v-e" | "gemma4uv" => Value::Null,
        _ => json!({"shortest_edge": 256, "longest_edge": 65536}),
    };
    if name == "lfm2vl" {
        processor["min_image_tokens"] = json!(4);
        processor["max_image_tokens"] = json!(256);
    }
    match name {
        "idefics3" => processor["max_image_size"] = json!({"longest_edge": 64}),
        "llava" | "llava-next" => processor["crop_size"] = json!({"height": 32, "width": 32}),
        "pixtral" | "mistral3" => processor["patch_size"] = json!({"height": 8, "width": 8}),
        // Levels that are not used.
        "gemma4v" | "gemma4v-e" | "gemma4uv" => processor["do_normalize"] = json!(false),
        _ => {}
    }
    if name == "llava-next" {
        processor["image_grid_pinpoints"] = json!([[32, 64], [64, 32], [64, 64]]);
    }
    if matches!(name, "minicpmv4.6" | "minicpm-ocr") {
        processor["scale_resolution"] = json!(64);
        processor["patch_size"] = json!(8);
    }
    (config, processor)
}

fn saved(name: &str, tensors: &[Stored], (config, processor): &(Value, Value)) -> Saved {
    let saved = Saved::empty();
    saved.put("config.json", config.to_string().as_bytes());
    saved.put("preprocessor_config.json", processor.to_string().as_bytes());
    let tokenizer = json!({"added_tokens": [{"id": 4, "content": "[IMG_BREAK]"}]});
    saved.put("tokenizer.json", tokenizer.to_string().as_bytes());
    saved.put_weights(tensors, if name == "qwen3vl" { 2 } else { 1 });
    saved
}

fn open(saved: &Saved) -> Result<ModelFiles, String> {
    let tower = Safetensors::open_tower(&saved.folder).map_err(|why| why.to_string())?;
    tower.map(Into::into).ok_or_else(|| "no tower".to_owned())
}

fn tower_of(files: ModelFiles) -> Result<TowerAlone, String> {
    let config = files.tower_config().map_err(|why| why.to_string())?;
    load_as(files, config)
}

fn load_as(files: ModelFiles, config: VisionConfig) -> Result<TowerAlone, String> {
    let mut pool = Pool::new(2);
    let tower = Tower::load(files, config, (Isa::detect(), &mut pool), &mut |_| {});
    tower
        .map(|tower| TowerAlone::new(tower, pool))
        .map_err(|why| why.to_string())
}

/// Bits of the rows of a case's picture.
fn bits(tower: &mut TowerAlone, golden: &Golden) -> Vec<u32> {
    let rows = golden.encoded(tower);
    rows.iter().map(|entry| entry.to_bits()).collect()
}

/// A GGUF with its tensors changed; `None` leaves one out.
fn rewritten(
    bytes: Vec<u8>,
    keys: impl Fn(&str) -> bool,
    more: impl Fn(&mut GgufWriter),
    change: impl Fn(&str, &[u64], Vec<f32>) -> Vec<(String, Vec<u64>, Format, Vec<f32>)>,
) -> Vec<u8> {
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata().filter(|(key, _)| keys(key)) {
        writer.value(key, value);
    }
    more(&mut writer);
    let mut contents = Vec::new();
    for tensor in gguf.tensors() {
        let numbers = floats(tensor.kind.format().unwrap(), tensor.bytes);
        for (name, dims, kind, numbers) in change(tensor.name, tensor.dims, numbers) {
            writer.tensor(TensorPlan {
                name,
                dims,
                kind: TensorKind::from(kind),
            });
            contents.push(encoded(kind, &numbers));
        }
    }
    let (mut next, mut out) = (contents.into_iter(), Vec::new());
    let fill =
        |_: &TensorPlan, sink: &mut dyn std::io::Write| sink.write_all(&next.next().unwrap());
    writer.write(&mut out, fill).unwrap();
    out
}

/// A case's `mmproj` with numbers of another format; vectors are F32, as converters write them.
fn mmproj_as(name: &str, kind: Format) -> Vec<u8> {
    rewritten(
        golden(name).file("mmproj.gguf"),
        |_| true,
        |_| {},
        |name, dims, mut numbers| {
            // Saved in F16, and in full in the file.
            if name.starts_with("v.std_") {
                let halves = numbers.iter_mut();
                halves.for_each(|x| *x = rounded(Format::F16, *x));
            }
            // The norm has one added after it was rounded.
            let shift = if name == "mm.soft_emb_norm.weight" {
                1.0
            } else {
                0.0
            };
            numbers
                .iter_mut()
                .for_each(|x| *x = rounded(kind, *x - shift) + shift);
            let kind = if dims.len() > 1 { kind } else { Format::F32 };
            vec![(name.to_owned(), dims.to_vec(), kind, numbers)]
        },
    )
}

#[test]
fn rows_of_safetensors_have_the_bits_of_mmproj() {
    for name in SAVED {
        let golden = golden(name);
        for kind in FORMATS {
            let gguf = Gguf::from_bytes(mmproj_as(name, kind.1)).unwrap();
            let mut theirs = tower_of(gguf.into()).unwrap();
            let folder = saved(name, &saved_tensors(name, kind), &configs(name));
            let mut ours = tower_of(open(&folder).unwrap()).unwrap();
            let wanted = VisionConfig {
                // No row of a tower without a table depends on the size of one.
                table_edge: ours.tower().config().table_edge,
                // The `mmproj` of LLaVA has the layers alone that are computed.
                stored_layers: ours.tower().config().stored_layers,
                ..theirs.tower().config().clone()
            };
            let has_table = wanted.traits.positions.is_some();
            let table_edge = theirs.tower().config().table_edge;
            assert!(!has_table || table_edge == wanted.table_edge, "{name}");
            assert_eq!(*ours.tower().config(), wanted, "{name}");
            assert!(
                bits(&mut ours, &golden) == bits(&mut theirs, &golden),
                "{name} {kind:?}"
            );
        }
    }
}

/// Beginnings of names that transformers 4.52 and later have in memory, and may have in files.
const NEW: &[(&str, &str)] = &[
    ("vision_tower.", "model.vision_tower."),
    ("multi_modal_projector.", "model.multi_modal_projector."),
    ("image_newline", "model.image_newline"),
    ("language_model.model.", "model.language_model."),
    ("language_model.lm_head.", "lm_head."),
];

/// Names of other versions of transformers, as published files have them.
#[test]
fn names_with_and_without_prefixes_are_the_same_tower() {
    let renames: [(&str, &[(&str, &str)]); 7] = [
        (
            "idefics3",
            &[
                ("model.vision_model.", "vision_model."),
                ("model.connector.", "connector."),
                ("model.text_model.", "text_model."),
            ],
        ),
        (
            "gemma3",
            &[
                ("vision_tower.", "vision_tower.vision_model."),
                ("multi_modal_projector.", "multi_modal_projector."),
            ],
        ),
        (
            "gemma3",
            &[
                ("vision_tower.", "model.vision_tower."),
                ("multi_modal_projector.", "model.multi_modal_projector."),
                ("language_model.model.", "model.language_model."),
            ],
        ),
        // LLaVA 1.5 as it was published.
        ("llava", &[("vision_tower.", "vision_tower.vision_model.")]),
        ("llava-next", NEW),
        ("mistral3", NEW),
        ("pixtral", NEW),
    ];
    for (name, pairs) in renames {
        let (golden, kind) = (golden(name), FORMATS[1]);
        let mut tensors = saved_tensors(name, kind);
        let plain = saved(name, &tensors, &configs(name));
        for tensor in &mut tensors {
            let pair = pairs
                .iter()
                .find(|(start, _)| tensor.name.starts_with(start));
            if let Some((start, other)) = pair {
                tensor.name = tensor.name.replacen(start, other, 1);
            }
        }
        let renamed = saved(name, &tensors, &configs(name));
        let [mut plain_tower, mut other] =
            [&plain, &renamed].map(|folder| tower_of(open(folder).unwrap()).unwrap());
        assert!(
            bits(&mut plain_tower, &golden) == bits(&mut other, &golden),
            "{name}"
        );
        let [mut plain_text, mut other] = [&plain, &renamed].map(|folder| said(text_of(folder)));
        assert!(plain_text == other, "{name}");
        plain_text.append(&mut other);
    }
}

fn text_of(folder: &Saved) -> Model {
    text_as(folder, None)
}

fn text_as(folder: &Saved, quantize: Option<Quantize>) -> Model {
    let files = Safetensors::open(&folder.folder, quantize).unwrap_or_else(|why| panic!("{why}"));
    let pool = Pool::new(2);
    Model::load(files, Isa::detect(), pool, &options(None), &mut |_| {})
        .unwrap_or_else(|why| panic!("{why}"))
}

fn said(mut model: Model) -> Vec<Vec<f32>> {
    let vocab = model.dims().vocab;
    logits(&mut model, &ids(4, 40, vocab), 0)
}

#[test]
fn text_of_such_a_folder_has_the_bits_of_a_gguf() {
    for name in &SAVED[1..] {
        let folder = saved(name, &saved_tensors(name, FORMATS[1]), &configs(name));
        let gguf = try_load(golden(name).file("text.gguf"), 2).unwrap();
        let ours = text_of(&folder);
        assert_eq!(ours.config().deepstack, gguf.config().deepstack, "{name}");
        assert_eq!(ours.config().rope.axes, gguf.config().rope.axes, "{name}");
        assert!(said(ours) == said(gguf), "{name}");
    }
}

/// The picture of LLaVA 1.5, whose class does not tell the tower.
#[test]
fn a_picture_is_stretched_for_siglip_and_padded_for_clip() {
    for (name, wanted) in [
        ("llava-siglip", Fit::Stretch),
        ("llava", Fit::Pad([122, 116, 104])),
    ] {
        let gguf = Gguf::from_bytes(golden(name).file("mmproj.gguf")).unwrap();
        let recipe = VisionConfig::from_gguf(&gguf).unwrap().recipe;
        let found = match recipe.rule {
            Rule::Square(square) => Some(square.fit),
            _ => None,
        };
        assert_eq!(found, Some(wanted), "{name}");
    }
}

/// Experts of Qwen3-VL as they were published, and as transformers saves them since version 5.
#[test]
fn experts_with_exchanged_rows_and_columns_are_the_same_text() {
    let (name, width) = ("qwen3vl-moe", 2);
    let mut tensors = saved_tensors(name, FORMATS[1]);
    let saved_now = saved(name, &tensors, &configs(name));
    let mut count = 0;
    for tensor in tensors
        .iter_mut()
        .filter(|tensor| tensor.name.contains(".experts."))
    {
        let &[experts, rows, cols] = &tensor.shape[..] else {
            panic!("{}", tensor.name);
        };
        let (height, across) = (rows as usize, cols as usize);
        let turned = (0..tensor.bytes.len() / width).flat_map(|at| {
            let expert = at / (height * across);
            let (col, row) = (at / height % across, at % height);
            let from = (expert * height + row) * across + col;
            tensor.bytes[from * width..][..width].to_vec()
        });
        tensor.bytes = turned.collect();
        tensor.shape = vec![experts, cols, rows];
        count += 1;
    }
    assert_eq!(count, 2 * 2);
    // The field of published files in place of `num_local_experts`.
    let mut config = configs(name);
    let text = config.0["text_config"].as_object_mut().unwrap();
    let experts = text.remove("num_local_experts").unwrap();
    text.insert("num_experts".to_owned(), experts);
    let published = saved(name, &tensors, &config);
    assert!(said(text_of(&published)) == said(text_of(&saved_now)));
}

/// Promise (Models): with `vision.quantize` the cosine of each row with that of F32 is at least 0.9995.
#[test]
fn rows_of_a_quantized_tower_are_near_those_of_floats() {
    let mut missed = Vec::new();
    for golden in goldens() {
        let bytes = stored_as(golden.file("mmproj.gguf"), Format::F32);
        let load = |quantize| {
            let files: ModelFiles = Gguf::from_bytes(bytes.clone()).unwrap().into();
            let config = VisionConfig {
                quantize,
                ..files.tower_config().unwrap()
            };
            load_as(files, config).unwrap()
        };
        let [mut floats, mut eight] = [None, Some(Format::Q8_0)].map(load);
        assert!(
            eight.tower().bytes().0 < floats.tower().bytes().0,
            "{}",
            golden.name
        );
        let width = floats.tower().config().projection_dim;
        let [wanted, found] = [golden.encoded(&mut floats), golden.encoded(&mut eight)];
        let cosine = least_cosine(&found, &wanted, width);
        if cosine < 0.9995 {
            missed.push((golden.name.clone(), cosine));
        }
        // The same bits as a file that was quantized before.
        let stored = stored_as(golden.file("mmproj.gguf"), Format::Q8_0);
        let mut stored = tower_of(Gguf::from_bytes(stored).unwrap().into()).unwrap();
        let stored = golden.encoded(&mut stored);
        let cosine = least_cosine(&found, &stored, width);
        assert!(cosine >= 0.9995, "{}: {cosine}", golden.name);
    }
    assert!(missed.is_empty(), "{missed:?}");
}
