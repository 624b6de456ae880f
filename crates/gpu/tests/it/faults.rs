//! Batches, files and devices that fail.
//!
//! Promise (Arithmetic): a step on a device is one submit, one wait, one mapping and no new buffer, and a second submit where the
//! device draws its tokens; a device that is lost fails each batch until it is opened again, and no batch, file or driver ends the
//! process; a damaged file is refused before a buffer is made or anything is submitted; each kernel equals its definition, at
//! every load, too.
//! Also held by `gpu/tests/it/models.rs`, `gpu/src/selftest/tests.rs`.
//!
//! Promise (Arithmetic): a device that failed is opened again with the weights of before or not at all: a file that was written to
//! since is refused; a number that is not finite in one row changes no bit of another, in batches of all sizes, be the outputs
//! logits or hidden states.

use crate::support::{
    PAGES, ROWS, device, gguf, ids, load, logits, on_device, options, own_device, pages, poisoned,
    spec,
};
use gpu::{LoadError, Options, Unsupported};
use model::{AdapterSet, Batch, DeviceFault, Forward, ForwardError, SpanStates, Want};
use testing::folder::Folder;
use weights::gguf::Gguf;

#[test]
fn invalid_batches_are_refused_without_effect() {
    let Some(device) = device() else { return };
    let mut model = on_device(&spec("tiny-llama", "F32"), &device);
    let dims = model.dims();
    let prompt = ids(1, 20, dims.vocab);
    let before = logits(&mut model, &prompt, 0, &[20]);
    type Fill = Box<dyn Fn(&mut Batch)>;
    let rows: [(&str, Fill); 5] = [
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
    for preset in ["tiny-llama", "tiny-qwen3moe", "tiny-qwen35"] {
        let mut model = load(poisoned(preset, "F32"), &device, &options()).expect("a model");
        // Few rows, then enough for tiles.
        for neighbors in [2, 40] {
            let neighbors = vec![1; neighbors];
            let table = pages(0, neighbors.len());
            let mut batch = Batch::default();
            let alone = |batch: &mut Batch| {
                batch.clear();
                batch.push(&neighbors, 0, &table, Want::All);
                batch.set_states(Some(SpanStates::new(None, 0)));
            };
            alone(&mut batch);
            let before = model.forward(&batch).expect("a batch").to_vec();
            batch.push(&[7], 0, &[20], Want::Last);
            batch.set_states(Some(SpanStates::new(None, 1)));
            let error = model.forward(&batch).expect_err("NaN");
            let row = neighbors.len();
            assert_eq!(
                error,
                ForwardError::NotFinite { row },
                "{preset}, {row} rows"
            );
            alone(&mut batch);
            let after = model
                .forward(&batch)
                .expect("the next batch is none the worse");
            assert!(before == after, "{preset}");
        }
    }
}

#[test]
fn hidden_state_that_is_not_finite_is_that_of_its_request_alone() {
    let Some(device) = device() else { return };
    let files = poisoned("tiny-qwen3-embedding", "F32");
    let mut model = load(files, &device, &options()).expect("a model");
    let width = model.capabilities().hidden_dim;
    let ask = |model: &mut gpu::Model, with: &[u32]| {
        let mut batch = Batch::default();
        batch.push(&[1, 2, 3], 0, &pages(0, 3), Want::AllHidden);
        batch.push(with, 0, &pages(2, with.len()), Want::LastHidden);
        batch.push(&[4; 20], 0, &pages(4, 20), Want::AllHidden);
        model.forward(&batch).expect("a batch");
        model.hidden().to_vec()
    };
    let sound = ask(&mut model, &[5, 6]);
    let found = ask(&mut model, &[5, 7]);
    assert!(sound.iter().all(|x| x.is_finite()));
    let rows = found.chunks(width).zip(sound.chunks(width));
    for (row, (found, sound)) in rows.enumerate() {
        match row {
            3 => assert!(found.iter().any(|x| !x.is_finite())),
            _ => assert!(found == sound, "row {row}"),
        }
    }
}

#[test]
fn files_that_were_written_to_are_not_uploaded_once_more() {
    let Some(device) = own_device() else { return };
    let folder = Folder::new("gpu-files");
    let path = folder.0.join("model.gguf");
    let mut bytes = spec("tiny-llama", "Q8_0").to_bytes().expect("a model");
    std::fs::write(&path, &bytes).expect("a file");
    let files = Gguf::open(&path).expect("a file");
    let mut model = load(files, &device, &options()).expect("a model");
    let prompt = ids(2, 12, model.dims().vocab);
    let before = logits(&mut model, &prompt, 0, &[12]);
    // The file has another name: the weights are those of before.
    let moved = folder.0.join("moved.gguf");
    std::fs::rename(&path, &moved).expect("a folder");
    device.lose();
    model.recover().expect("the device is there again");
    assert!(logits(&mut model, &prompt, 0, &[12]) == before);
    model.device().lose();
    *bytes.last_mut().expect("weights") ^= 1;
    std::fs::write(&moved, &bytes).expect("a file");
    let refused = ForwardError::Device(DeviceFault::Failed);
    assert_eq!(model.recover(), Err(refused));
    let mut batch = Batch::default();
    batch.push(&prompt, 0, &pages(0, 12), Want::Last);
    assert!(model.forward(&batch).is_err());
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

#[test]
fn damaged_files_are_refused_or_computed_and_never_panic() {
    let Some(device) = device() else { return };
    let sound = spec("tiny-llama", "Q8_0").to_bytes().expect("a model");
    let tensors = Gguf::from_bytes(sound.clone()).expect("a file");
    let first = tensors.tensors().map(|tensor| tensor.offset).min();
    let metadata = first.expect("tensors") as usize;
    let (mut refused, mut computed) = (0, 0);
    for seed in 0..60 {
        let mut bytes = sound.clone();
        let noise = ids(seed, 2, metadata);
        match seed % 3 {
            0 => bytes.truncate(noise[0] as usize * bytes.len() / metadata),
            1 => bytes[noise[0] as usize] ^= 1 << (noise[1] % 8),
            // Weights and scales of any bits.
            _ => bytes[metadata..]
                .iter_mut()
                .step_by(97)
                .for_each(|byte| *byte = !*byte),
        }
        let before = device.counts();
        let loaded = Gguf::from_bytes(bytes).map_err(drop);
        let loaded = loaded.and_then(|files| load(files, &device, &options()).map_err(drop));
        let Ok(mut model) = loaded else {
            assert_eq!(device.counts(), before, "{seed}: the device did something");
            refused += 1;
            continue;
        };
        let mut batch = Batch::default();
        batch.push(&[1, 2, 3], 0, &pages(0, 3), Want::All);
        // Numbers that are not finite end the request.
        let ran = model.forward(&batch).map(drop);
        let is_ok = matches!(
            ran,
            Ok(()) | Err(ForwardError::NotFinite { .. } | ForwardError::BadBatch(_))
        );
        assert!(is_ok, "{seed}: {ran:?}");
        computed += 1;
    }
    assert!(
        refused > 10 && computed > 10,
        "{refused} refused, {computed} computed"
    );
}
