//! Files of towers that anyone may have written: an error by name, or a tower that computes.
//!
//! Promise (Hostile input and memory): a damaged file of a tower ends with an error that names a key or a tensor; nothing panics.

use cpu::Tower;
use kernels::{Format, Isa, Pool};
use proptest::prelude::*;
use synth::{VISION_PRESETS, VisionSpec};
use weights::LoadError;
use weights::gguf::{Gguf, GgufWriter, TensorKind, TensorPlan};
use weights::parameters::TowerWeights;
use weights::vision::VisionConfig;

fn load(bytes: Vec<u8>) -> Result<Tower, String> {
    let gguf = Gguf::from_bytes(bytes).map_err(|error| error.to_string())?;
    let config = VisionConfig::from_gguf(&gguf).map_err(|error| error.to_string())?;
    let mut pool = Pool::new(1);
    let tower = Tower::load(gguf, config, (Isa::detect(), &mut pool), &mut |_| {});
    tower.map_err(|error: LoadError| error.to_string())
}

/// The file of a preset without tensors that `change` drops, and with others renamed.
fn changed(preset: &str, change: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let bytes = VisionSpec::preset(preset).unwrap().to_bytes().unwrap();
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        writer.value(key, value);
    }
    let mut contents = Vec::new();
    for tensor in gguf.tensors() {
        if let Some(name) = change(tensor.name) {
            let (dims, kind) = (tensor.dims.to_vec(), tensor.kind);
            writer.tensor(TensorPlan { name, dims, kind });
            contents.push(tensor.bytes.to_vec());
        }
    }
    let (mut next, mut out) = (contents.into_iter(), Vec::new());
    let fill =
        |_: &TensorPlan, sink: &mut dyn std::io::Write| sink.write_all(&next.next().unwrap());
    writer.write(&mut out, fill).unwrap();
    out
}

#[test]
fn missing_and_unknown_tensors_are_named() {
    let cases = [
        ("tiny-idefics3", "mm.model.fc.weight"),
        ("tiny-idefics3", "v.post_ln.bias"),
        ("tiny-idefics3", "v.blk.1.attn_q.weight"),
        ("tiny-idefics3", "v.blk.0.ffn_up.weight"),
        ("tiny-qwen3vl_merger", "v.deepstack.0.fc2.weight"),
        ("tiny-qwen3vl_merger", "mm.2.weight"),
        ("tiny-gemma3", "mm.soft_emb_norm.weight"),
        ("tiny-qwen2vl_merger", "v.blk.0.attn_k.weight"),
        ("tiny-qwen2vl_merger", "v.post_ln.bias"),
        ("tiny-qwen2.5vl_merger", "v.blk.1.ffn_up.weight"),
        ("tiny-qwen2.5vl_merger", "v.post_ln.weight"),
        ("tiny-pixtral", "v.pre_ln.weight"),
        ("tiny-pixtral", "v.token_embd.img_break"),
        ("tiny-pixtral", "mm.patch_merger.weight"),
        ("tiny-mlp", "v.class_embd"),
        ("tiny-mlp", "v.position_embd.weight"),
        ("tiny-mlp", "mm.0.weight"),
        ("tiny-gemma3", "v.patch_embd.weight"),
        ("tiny-gemma4v", "v.blk.0.attn_v.weight"),
        ("tiny-gemma4v", "mm.input_projection.weight"),
        ("tiny-gemma4uv", "v.patch_embd.weight"),
        ("tiny-gemma4uv", "v.patch_norm.3.bias"),
        ("tiny-internvl", "v.class_embd"),
        ("tiny-internvl", "mm.model.mlp.0.weight"),
        ("tiny-internvl", "mm.model.mlp.3.weight"),
        ("tiny-lfm2", "v.position_embd.weight"),
        ("tiny-lfm2", "mm.input_norm.bias"),
        ("tiny-lfm2", "mm.1.weight"),
        ("tiny-resampler", "resampler.query"),
        ("tiny-resampler", "resampler.kv.weight"),
        ("tiny-resampler", "resampler.attn.k.weight"),
        ("tiny-resampler", "resampler.ln_post.bias"),
        ("tiny-minicpmv4_6", "v.vit_merger.attn_q.weight"),
        ("tiny-minicpmv4_6", "v.vit_merger.ds_ffn_up.weight"),
        ("tiny-minicpmv4_6", "v.vit_merger.ds_ln.bias"),
        ("tiny-minicpmv4_6", "mm.input_norm.weight"),
        ("tiny-minicpmv4_6", "mm.down.weight"),
    ];
    for (preset, left_out) in cases {
        let bytes = changed(preset, |name| (name != left_out).then(|| name.to_owned()));
        let said = load(bytes).err().expect(left_out);
        assert_eq!(said, format!("tensor `{left_out}` is missing"));
    }
    let unknown = changed("tiny-idefics3", |name| {
        Some(name.replace("v.patch_embd.bias", "v.class_embd"))
    });
    let said = load(unknown).err().unwrap();
    assert!(said.contains("`v.class_embd` has no part"), "{said}");
}

#[test]
fn a_described_tower_has_the_bytes_and_the_errors_of_a_loaded_one() {
    let spec = VisionSpec::preset("small-qwen3vl_merger").unwrap();
    let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
    let config = VisionConfig::from_gguf(&gguf).unwrap();
    let files = gguf.into();
    let described = TowerWeights::describe(&files, &config, &mut Pool::new(1)).unwrap();
    let mut pool = Pool::new(1);
    let tower = Tower::load(files, config, (Isa::detect(), &mut pool), &mut |_| {}).unwrap();
    let (loaded, _) = tower.bytes();
    let ratio = loaded as f64 / described.bytes() as f64;
    assert!(
        (0.95..1.05).contains(&ratio),
        "{loaded}, {}",
        described.bytes()
    );
    let short = changed("tiny-gemma3", |name| {
        (name != "v.post_ln.weight").then(|| name.to_owned())
    });
    let gguf = Gguf::from_bytes(short.clone()).unwrap();
    let config = VisionConfig::from_gguf(&gguf).unwrap();
    let error = TowerWeights::describe(&gguf.into(), &config, &mut Pool::new(1)).err();
    assert_eq!(error.map(|error| error.to_string()), load(short).err());
}

/// The shapes of a resampler and of a merger between layers, whatever the file says of them.
#[test]
fn shapes_that_do_not_fit_are_named() {
    let swapped = |preset: &str, first: &'static str, second: &'static str| {
        let bytes = changed(preset, |name| {
            Some(if name == first {
                second.to_owned()
            } else if name == second {
                first.to_owned()
            } else {
                name.to_owned()
            })
        });
        load(bytes).err().expect(first)
    };
    let said = swapped(
        "tiny-resampler",
        "resampler.kv.weight",
        "resampler.attn.k.weight",
    );
    assert!(said.contains("`resampler."), "{said}");
    let said = swapped("tiny-resampler", "resampler.query", "resampler.ln_q.bias");
    assert!(said.contains("`resampler."), "{said}");
    let (up, down) = (
        "v.vit_merger.ds_ffn_up.weight",
        "v.vit_merger.ds_ffn_down.weight",
    );
    let said = swapped("tiny-minicpmv4_6", up, down);
    assert!(said.contains("`v.vit_merger.ds_ffn_"), "{said}");
}

#[test]
fn pictures_beyond_the_workspace_are_refused_at_load() {
    let spec = VisionSpec::preset("tiny-qwen3vl_merger").unwrap();
    let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
    let mut config = VisionConfig::from_gguf(&gguf).unwrap();
    config.recipe.rows.high = 20_000;
    let mut pool = Pool::new(1);
    let error = Tower::load(gguf, config, (Isa::detect(), &mut pool), &mut |_| {}).err();
    assert_eq!(
        error.map(|error| error.to_string()).as_deref(),
        Some("the number of patches of the largest picture is 80000, must be 1 to 65536")
    );
}

/// Tables of axes are as long as their tensor; clamps with numbers that are no bounds are none; an encoder of sound is left
/// out.
#[test]
fn further_tensors_of_gemma4_are_read_or_left_out() {
    let renamed = changed("tiny-gemma4v", |name| {
        Some(name.replace("v.position_embd.weight", "v.position"))
    });
    let said = load(renamed).err().unwrap();
    assert!(said.contains("v.position_embd.weight"), "{said}");
    let with_sound = |name: &str| {
        let spec = VisionSpec::preset("tiny-gemma4v").unwrap();
        let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
        with_tensor(&gguf, name, f32::INFINITY)
    };
    assert_eq!(load(with_sound("a.blk.0.ln1.weight")).err(), None);
    assert_eq!(load(with_sound("mm.a.input_projection.weight")).err(), None);
    assert_eq!(load(with_sound("v.blk.0.attn_q.input_max")).err(), None);
    let said = load(with_sound("v.std_shift")).err().unwrap();
    assert!(said.contains("`v.std_shift` has no part"), "{said}");
}

/// The file with a further tensor of one number.
fn with_tensor(gguf: &Gguf, name: &str, number: f32) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        writer.value(key, value);
    }
    let mut contents = Vec::new();
    for tensor in gguf.tensors() {
        let (name, dims, kind) = (tensor.name.to_owned(), tensor.dims.to_vec(), tensor.kind);
        writer.tensor(TensorPlan { name, dims, kind });
        contents.push(tensor.bytes.to_vec());
    }
    let kind = TensorKind::from(Format::F32);
    let (name, dims) = (name.to_owned(), vec![1]);
    writer.tensor(TensorPlan { name, dims, kind });
    contents.push(number.to_le_bytes().to_vec());
    let (mut next, mut out) = (contents.into_iter(), Vec::new());
    let fill =
        |_: &TensorPlan, sink: &mut dyn std::io::Write| sink.write_all(&next.next().unwrap());
    writer.write(&mut out, fill).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Bytes of the header are exchanged; most files are refused, and none panics.
    #[test]
    fn damaged_headers_end_with_an_error_or_a_tower(
        preset in prop::sample::select(&VISION_PRESETS[..11]),
        changes in prop::collection::vec((0..1600_usize, any::<u8>()), 1..4),
    ) {
        let mut bytes = VisionSpec::preset(preset).unwrap().to_bytes().unwrap();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        if let Err(said) = load(bytes) {
            prop_assert!(!said.is_empty());
        }
    }
}
