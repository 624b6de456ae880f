//! Batches, files and devices that fail.
//!
//! Promise (Arithmetic): a step on a device is one submit, one wait, one mapping and no new buffer; a device that is lost fails
//! each batch until it is opened again, and no batch, file or driver ends the process; each kernel equals its definition, at
//! every load, too.
//! Also held by `gpu/tests/it/models.rs`, `gpu/src/selftest/tests.rs`.

use crate::support::{
    PAGES, ROWS, device, gguf, ids, load, logits, on_device, options, own_device, pages, spec,
};
use gpu::{LoadError, Options, Unsupported};
use model::{AdapterSet, Batch, DeviceFault, Forward, ForwardError, Want};
use weights::gguf::Gguf;

#[test]
fn invalid_batches_are_refused_without_effect() {
    let Some(device) = device() else { return };
    let mut model = on_device(&spec("tiny-llama", "F32"), &device);
    let dims = model.dims();
    let prompt = ids(1, 20, dims.vocab);
    let before = logits(&mut model, &prompt, 0, &[20]);
    type Fill = Box<dyn Fn(&mut Batch)>;
    let rows: [(&str, Fill); 6] = [
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
        ("too short", Box::new(|b| b.push(&[1], 0, &[], Want::Last))),
        (
            "see each other",
            Box::new(|b| {
                b.push(&[1; 3], 0, &[0], Want::Last);
                b.add_block(0..2);
            }),
        ),
        (
            "adapter",
            Box::new(|b| {
                let set = AdapterSet::new([(0, 1.0)]).expect("a set");
                b.push_adapted(&[1], 0, &[0], Want::Last, set);
            }),
        ),
    ];
    for (part, fill) in rows {
        let mut batch = Batch::default();
        fill(&mut batch);
        let error = model.forward(&batch).expect_err(part);
        let named = matches!(error, ForwardError::BadBatch(why) if why.contains(part));
        assert!(named, "{part}: {error}");
    }
    assert_eq!(
        model.forward(&Batch::default()).map(|rows| rows.len()),
        Ok(0)
    );
    assert!(logits(&mut model, &prompt, 0, &[20]) == before);
}

#[test]
fn row_that_is_not_finite_is_named_and_its_neighbors_are_not() {
    let Some(device) = device() else { return };
    let mut bytes = spec("tiny-llama", "F32").to_bytes().expect("a model");
    let found = Gguf::from_bytes(bytes.clone()).expect("a file");
    // The embedding of id 7 is not a number, so neither are its logits.
    let embedding = found.tensor("token_embd.weight").expect("an embedding");
    let at = embedding.offset as usize + 7 * embedding.cols() * 4;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let files = Gguf::from_bytes(bytes).expect("a file");
    let mut model = load(files, &device, &options()).expect("a model");
    let mut batch = Batch::default();
    batch.push(&[1, 2], 0, &[0], Want::All);
    batch.push(&[7], 0, &[1], Want::Last);
    let error = model.forward(&batch).expect_err("NaN");
    assert_eq!(error, ForwardError::NotFinite { row: 2 });
    batch.clear();
    batch.push(&[1, 2], 0, &[0], Want::All);
    assert!(
        model.forward(&batch).is_ok(),
        "the next batch is none the worse"
    );
}

#[test]
fn lost_device_fails_every_batch_until_the_model_recovers() {
    let Some(device) = own_device() else { return };
    let mut model = on_device(&spec("tiny-qwen3", "Q8_0"), &device);
    let prompt = ids(2, 12, model.dims().vocab);
    let before = logits(&mut model, &prompt, 0, &[12]);
    device.lose();
    let mut batch = Batch::default();
    batch.push(&prompt, 0, &pages(0, 12), Want::Last);
    for _ in 0..2 {
        let error = model.forward(&batch).expect_err("a lost device");
        assert_eq!(error, ForwardError::Device(DeviceFault::Lost));
    }
    // Nothing of this reaches the device, and nothing panics.
    model.copy_page(0, 1);
    let pages = model.page_export().expect("pages can be exported");
    let mut bytes = vec![0; pages.page_bytes()];
    let exported = pages.export_page(0, &mut bytes);
    assert_eq!(exported, Err(ForwardError::Device(DeviceFault::Lost)));
    pages.import_page(0, &bytes);
    model.recover().expect("the device is there again");
    assert!(logits(&mut model, &prompt, 0, &[12]) == before);
}

#[test]
fn what_does_not_run_is_named() {
    let Some(device) = device() else { return };
    let refused = |preset: &str, options: &Options| {
        let loaded = load(gguf(&spec(preset, "F32")), &device, options);
        loaded.map(|_| ()).expect_err(preset)
    };
    for (preset, part) in [
        ("tiny-gemma3n", Unsupported::States),
        ("tiny-gemma-embedding", Unsupported::Bidirectional),
    ] {
        let error = refused(preset, &options());
        assert!(
            matches!(&error, LoadError::Unsupported(found) if *found == part),
            "{error}"
        );
    }
    let wrong = Options {
        pages: 0,
        ..options()
    };
    assert!(refused("tiny-llama", &wrong).to_string().contains("pages"));
    let many = Options {
        pages: 1 << 24,
        ..options()
    };
    let error = refused("tiny-llama", &many).to_string();
    for part in [
        "does not fit",
        "MiB of weights",
        "keys and values",
        "workspace",
    ] {
        assert!(error.contains(part), "{error}");
    }
}
