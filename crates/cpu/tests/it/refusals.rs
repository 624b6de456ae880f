//! Errors of files name the cause; an invalid batch is rejected without effect.

use crate::support::{PAGES, ROWS, bytes, ids, load, logits, options, pages, try_load};
use cpu::Model;
use model::{Batch, Forward, ForwardError, Want};
use weights::gguf::Gguf;
use weights::{Architecture, LoadError};

const LLAMA: &str = "llama preset=tiny-llama mix=F32 tied=false";

/// The smallest model of a family.
fn tiny(family: Architecture) -> Vec<u8> {
    let few = match family {
        Architecture::Gemma3n => " layers=2 shared_kv=0",
        _ => "",
    };
    bytes(&format!("x preset=tiny-{family} mix=F32{few}"))
}

/// Offset of a tensor's info after the name.
fn info_at(bytes: &[u8], name: &str) -> usize {
    // With its length, since one name may be the beginning of another.
    let named = [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
    let found = bytes
        .windows(named.len())
        .position(|window| window == named);
    found.unwrap_or_else(|| panic!("{name} is in the file")) + named.len()
}

/// Required tensors of a family.
fn names(bytes: &[u8]) -> Vec<String> {
    let gguf = Gguf::from_bytes(bytes.to_vec()).unwrap();
    gguf.tensors()
        .map(|tensor| tensor.name.to_owned())
        .collect()
}

/// The tensor that is reported as missing without `name`: without the fused projection, the first of its
/// parts, except in a recurrent layer.
fn missed(family: Architecture, name: &str) -> String {
    match family {
        Architecture::Qwen35 | Architecture::Qwen35Moe | Architecture::Qwen3Next => name.to_owned(),
        _ => name.replace("attn_qkv", "attn_q"),
    }
}

fn refused(bytes: Vec<u8>) -> LoadError {
    match try_load(bytes, 1) {
        Ok(_) => panic!("loaded"),
        Err(error) => error,
    }
}

#[test]
fn missing_and_unknown_tensors_are_named() {
    for family in Architecture::all() {
        let whole = tiny(family);
        for name in names(&whole) {
            let mut bytes = whole.clone();
            let at = info_at(&bytes, &name);
            bytes[at - 1] = b'_'; // weight -> weigh_
            let renamed = format!("{}_", &name[..name.len() - 1]);
            match refused(bytes) {
                LoadError::Missing { tensor } => assert_eq!(tensor, missed(family, &name)),
                LoadError::Unused { tensor } => assert_eq!(tensor, renamed, "{name}"),
                other => panic!("{name}: {other}"),
            }
        }
    }
}

#[test]
fn missing_required_tensors_are_errors() {
    let optional = ["output.weight", "rope_", ".bias", "layer_output_scale"];
    for family in Architecture::all() {
        let whole = tiny(family);
        for name in names(&whole) {
            // Without this norm, StableLM's blocks run side by side.
            let side_by_side = family == Architecture::StableLm && name.contains("ffn_norm");
            // Without values, Gemma takes keys for them.
            let gemma = matches!(family, Architecture::Gemma3n | Architecture::Gemma4);
            let keys_as_values = gemma && name.contains("attn_v.");
            let norm_of_some = family == Architecture::FalconH1 && name.contains("ssm_norm");
            let left_out = side_by_side || keys_as_values || norm_of_some;
            if left_out || optional.iter().any(|part| name.contains(part)) {
                continue;
            }
            let mut bytes = whole.clone();
            let at = info_at(&bytes, &name);
            bytes[at - 1] = b'_';
            let tensor = missed(family, &name);
            assert_eq!(refused(bytes), LoadError::Missing { tensor });
        }
    }
}

#[test]
fn transposed_tensor_is_rejected_with_shapes() {
    let whole = bytes(LLAMA);
    for name in [
        "token_embd.weight",
        "blk.1.ffn_up.weight",
        "blk.0.attn_k.weight",
    ] {
        let mut bytes = whole.clone();
        let dims = info_at(&bytes, name) + 4;
        let (cols, rows) = bytes[dims..dims + 16].split_at(8);
        let swapped = [rows, cols].concat();
        bytes[dims..dims + 16].copy_from_slice(&swapped);
        let error = refused(bytes);
        let LoadError::Shape {
            tensor,
            wanted,
            found,
        } = &error
        else {
            panic!("{error}")
        };
        assert_eq!(tensor, name);
        if name != "token_embd.weight" {
            assert_eq!(
                wanted.iter().rev().collect::<Vec<_>>(),
                found.iter().collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn tensor_of_unsupported_kind_is_rejected() {
    let whole = bytes(LLAMA);
    for (name, dims) in [("blk.0.attn_q.weight", 2), ("output_norm.weight", 1)] {
        let mut bytes = whole.clone();
        let kind = info_at(&bytes, name) + 4 + 8 * dims;
        assert_eq!(bytes[kind], 0, "f32");
        bytes[kind] = 26; // i32: the same size
        let error = refused(bytes);
        let LoadError::Kind { tensor, .. } = &error else {
            panic!("{error}")
        };
        assert!(
            tensor == name && error.to_string().contains("I32"),
            "{error}"
        );
    }
}

#[test]
fn norm_that_is_not_finite_is_rejected() {
    let mut bytes = bytes(LLAMA);
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    let at = gguf.tensor("blk.1.ffn_norm.weight").unwrap().offset as usize + 4 * 5;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let tensor = "blk.1.ffn_norm.weight".to_owned();
    assert_eq!(refused(bytes), LoadError::Value { tensor, index: 5 });
}

#[test]
fn options_out_of_bounds_are_rejected_by_name() {
    type Change = fn(&mut cpu::LoadOptions);
    let rows: [(&str, Change); 7] = [
        ("page_tokens", |o| o.page_tokens = 0),
        ("page_tokens", |o| o.page_tokens = 1 << 20),
        ("pages", |o| o.pages = 0),
        ("pages", |o| o.pages = usize::MAX),
        ("rows_max", |o| o.rows_max = 0),
        ("logit_rows_max", |o| o.logit_rows_max = o.rows_max + 1),
        ("context_length", |o| o.context_max = Some(1 << 20)),
    ];
    for (name, change) in rows {
        let mut options = options(None);
        change(&mut options);
        let gguf = Gguf::from_bytes(bytes(LLAMA)).unwrap();
        let pool = kernels::Pool::new(1);
        let loaded = Model::load(gguf, kernels::Isa::detect(), pool, &options, &mut |_| {});
        let Err(error) = loaded else {
            panic!("{name}: loaded")
        };
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn load_progress_increases_to_total() {
    let gguf = Gguf::from_bytes(bytes(LLAMA)).unwrap();
    let all: u64 = gguf.tensors().map(|tensor| tensor.bytes.len() as u64).sum();
    let mut seen = Vec::new();
    let (isa, pool) = (kernels::Isa::detect(), kernels::Pool::new(1));
    let tensors = gguf.tensors().count() as u64;
    let mut progress = |packed: weights::Packed| seen.push(packed);
    assert!(Model::load(gguf, isa, pool, &options(None), &mut progress).is_ok());
    let done = |p: &weights::Packed| (p.bytes_done, p.tensors_done);
    assert_eq!(done(&seen[0]), (0, 0));
    assert_eq!(done(seen.last().unwrap()), (all, tensors));
    assert!(
        seen.iter()
            .all(|p| (p.bytes_total, p.tensors_total) == (all, tensors))
    );
    assert!(seen.is_sorted_by_key(done) && seen.len() as u64 > tensors);
}

/// Fills a batch.
type Fill = Box<dyn Fn(&mut Batch)>;

#[track_caller]
fn check_refused(model: &mut Model, part: &str, fill: &dyn Fn(&mut Batch)) {
    let mut batch = Batch::default();
    fill(&mut batch);
    let error = model.forward(&batch).unwrap_err();
    let named = matches!(error, ForwardError::BadBatch(why) if why.contains(part));
    assert!(named, "{part}: {error}");
}

#[test]
fn rows_that_are_more_than_tokens_are_rejected_without_effect() {
    let mut model = load(LLAMA, 2);
    let (dim, prompt) = (model.config().dim, ids(1, 20, model.dims().vocab));
    let before = logits(&mut model, &prompt, 0);
    let rows: [(&str, Fill); 2] = [
        (
            "not as wide",
            Box::new(move |b| b.set_vectors(1..2, &vec![0.5; dim + 1])),
        ),
        ("three axes", Box::new(|b| b.set_axes(&[[0; 3]; 3]))),
    ];
    assert!(model.blocks().is_none());
    for (part, add) in rows {
        check_refused(&mut model, part, &|batch| {
            batch.push(&[1; 3], 0, &[0], Want::Last);
            add(batch);
        });
    }
    assert_eq!(logits(&mut model, &prompt, 0), before);
}

#[test]
fn invalid_batch_is_rejected_without_effect() {
    let mut model = load(LLAMA, 2);
    let dims = model.dims();
    let prompt = ids(1, 20, dims.vocab);
    let before = logits(&mut model, &prompt, 0);
    let all = pages(0, dims.context_max);
    let rows: Vec<(&str, Fill)> = vec![
        (
            "rows_max",
            Box::new(|b| b.push(&[1; ROWS + 1], 0, &pages(0, ROWS + 1), Want::None)),
        ),
        (
            "vocabulary",
            Box::new(move |b| b.push(&[dims.vocab as u32], 0, &[0], Want::Last)),
        ),
        (
            "page does not",
            Box::new(|b| b.push(&[1], 0, &[PAGES as u32], Want::Last)),
        ),
        (
            "too short",
            Box::new(|b| b.push(&[1; 17], 0, &[3], Want::Last)),
        ),
        ("too short", Box::new(|b| b.push(&[1], 0, &[], Want::Last))),
        (
            "context_max",
            Box::new(move |b| b.push(&[1], dims.context_max, &all, Want::Last)),
        ),
        (
            "context_max",
            Box::new(|b| b.push(&[1], usize::MAX, &[0], Want::Last)),
        ),
    ];
    for (part, fill) in rows {
        check_refused(&mut model, part, &*fill);
    }
    assert_eq!(model.forward(&Batch::default()).unwrap().len(), 0);
    assert_eq!(logits(&mut model, &prompt, 0), before);
}

#[test]
fn logits_that_are_not_finite_are_an_error_with_the_row() {
    let mut bytes = bytes(LLAMA);
    let gguf = Gguf::from_bytes(bytes.clone()).unwrap();
    // The embedding of id 7 is not a number, so neither are its logits.
    let embedding = gguf.tensor("token_embd.weight").unwrap();
    let at = embedding.offset as usize + 7 * embedding.cols() * 4;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let mut model = try_load(bytes, 1).unwrap();
    let mut batch = Batch::default();
    batch.push(&[1, 2], 0, &[0], Want::All);
    batch.push(&[7], 0, &[1], Want::Last);
    assert_eq!(
        model.forward(&batch).unwrap_err(),
        ForwardError::NotFinite { row: 2 }
    );
    batch.clear();
    batch.push(&[1, 2], 0, &[0], Want::All);
    assert!(
        model.forward(&batch).is_ok(),
        "the next batch is none the worse"
    );
}
