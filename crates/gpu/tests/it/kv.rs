//! Keys and values of 8 and 4 bits.
//!
//! Promise (Arithmetic): on a device, with keys and values of 8 or 4 bits, logits have a cosine ≥ 0.999 or 0.995 with those of the
//! CPU with the same ones in floats, a quarter of the distance to those with keys and values of 16 bits, and their cuts and their
//! copied pages change no bit below 16 rows.

use crate::support::{
    cosine, device, gguf, ids, load, logits, on_cpu, on_cpu_with, options, pages, spec,
};
use gpu::Options;
use kernels::KvKind;
use model::{Batch, ExportPages, Forward, Want};

/// Least cosine of a row of logits: a quant that is rounded to the other side is 1/127 or 1/8 of the largest.
const fn cosine_min(kind: KvKind) -> f64 {
    match kind {
        KvKind::Q4_0 => 0.995,
        _ => 0.999,
    }
}

#[test]
fn logits_with_quantized_keys_and_values_equal_the_processors() {
    let Some(device) = device() else { return };
    for kind in [KvKind::Q8_0, KvKind::Q4_0] {
        for preset in ["small-llama", "tiny-gemma3", "tiny-deepseek2"] {
            let spec = spec(preset, "F32");
            let options = Options {
                kv: kind,
                ..options()
            };
            let ours = load(gguf(&spec), &device, &options);
            let mut ours = ours.unwrap_or_else(|why| panic!("{preset}: {why}"));
            let mut theirs = on_cpu_with(&spec, kind);
            assert!(
                ours.bytes().kv <= theirs.bytes().kv as u64 * 5 / 4,
                "{preset}"
            );
            let prompt = ids(7, 50, ours.dims().vocab);
            let wanted = logits(&mut theirs, &prompt, 0, &[50]);
            let whole = logits(&mut on_cpu(&spec), &prompt, 0, &[50]);
            let found = logits(&mut ours, &prompt, 0, &[15, 1, 34]);
            let (mut off, mut of_format) = (0.0, 0.0);
            for (row, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                let found = cosine(found, wanted);
                assert!(
                    found >= cosine_min(kind),
                    "{preset} {kind} {row}: cosine {found}"
                );
                off += 1.0 - found;
                of_format += 1.0 - cosine(&whole[row], wanted);
            }
            // Steps are those of the processor, not others that are as near to the numbers.
            assert!(
                off < of_format / 4.0,
                "{preset} {kind}: {off} of {of_format}"
            );
            let few = logits(&mut ours, &prompt[..20], 8, &[15, 5]);
            let singles = logits(&mut ours, &prompt[..20], 10, &[1; 20]);
            assert!(few == singles, "{preset} {kind}: a cut changes bits");
            check_pages(&mut ours, preset);
        }
    }
}

/// A page that was copied, and one that was exported and imported, have the bits of the first.
fn check_pages(model: &mut gpu::Model, preset: &str) {
    // The page of positions 0 to 15 of `few` above; a model with states has no logits without them.
    if model.capabilities().states > 0 {
        return;
    }
    let next = |page: u32, model: &mut gpu::Model| {
        let mut batch = Batch::default();
        batch.push(&[9], 16, &[page, 30], Want::Last);
        model.forward(&batch).expect("a batch").to_vec()
    };
    let wanted = next(pages(8, 1)[0], model);
    model.copy_page(8, 20);
    assert!(next(20, model) == wanted, "{preset}: copied");
    let mut bytes = vec![0; model.page_bytes()];
    model.export_page(8, &mut bytes).expect("a page");
    model.import_page(21, &bytes);
    assert!(next(21, model) == wanted, "{preset}: imported");
}
