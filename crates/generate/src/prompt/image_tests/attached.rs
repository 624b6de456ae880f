//! Images of a prompt that are attached, recorded and restored.

use super::*;
use crate::images::{PreparedImage, examine, prepare, prepare_unless};
use std::time::Duration;

#[test]
fn attached_images_survive_a_record_and_others_are_told_apart() {
    let model = model(SMOL_VLM, ImageMarks::Idefics3, tiles());
    let vision = model.vision.as_deref().expect("eyes");
    let images = [picture(32, 16), picture(16, 16)];
    let content = json!([image_part(1), text_part("a"), image_part(0)]);
    let prompt = conversation(vec![message("user", content)]);
    let mut prompt = prepared(&model, prompt, &images, Truncation::Disabled).expect("a prompt");
    let decoded = |images: &[ImagePart]| -> Vec<Option<PreparedImage>> {
        let measured = measure(vision, images).expect("images");
        let decode = |(i, part): (usize, &ImagePart)| {
            let image = measured.image(i).expect("measured");
            prepare(vision, part, image, &|| Duration::ZERO).ok()
        };
        images.iter().enumerate().map(decode).collect()
    };
    let pictures = decoded(&images);
    assert!(
        prompt.attach(&pictures[..1]).is_err(),
        "an image is missing"
    );
    prompt.attach(&pictures).expect("both");
    let places: Vec<_> = prompt
        .media
        .iter()
        .map(|input| input.rows.clone())
        .collect();
    let runs: Vec<_> = prompt
        .image_runs
        .iter()
        .map(|run| run.rows.clone())
        .collect();
    // Three runs of the one, five of the other, which is enlarged.
    assert_eq!((places.len(), &places), (8, &runs));
    let mut keys: Vec<_> = prompt.media.iter().map(|input| input.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 8, "a key for each run");
    let record = serde_json::to_string(&prompt.to_record()).expect("JSON");
    let record: PromptRecord = serde_json::from_str(&record).expect("a record");
    let restore = |record: PromptRecord| {
        PromptEncoder::new(&model, 0).restore(record, ParseOptions::default())
    };
    let mut again = restore(record.clone()).expect("a prompt");
    again.attach(&pictures).expect("the same images");
    let media = |prompt: &PreparedPrompt| -> Vec<_> {
        prompt
            .media
            .iter()
            .map(|input| (input.key, input.rows.clone(), input.grid))
            .collect()
    };
    assert_eq!((media(&again), &again.ids), (media(&prompt), &prompt.ids));
    let others = decoded(&[picture(32, 16), picture(15, 16)]);
    assert_eq!(
        again.attach(&others).expect_err("another image").code,
        "image_changed"
    );
    let mut damaged = record;
    damaged.images[1].rows = damaged.images[0].rows.clone();
    assert!(restore(damaged).is_err(), "runs overlap");
}

/// Promise (Cluster): a request for an engine of another process names its images by digest, and its rows by the keys that the
/// engine computes.
#[test]
fn files_of_a_prompt_have_the_keys_of_decoded_images() {
    let model = model(SMOL_VLM, ImageMarks::Idefics3, tiles());
    let vision = model.vision.as_deref().expect("eyes");
    let images = [picture(32, 16), picture(16, 16), picture(32, 16)];
    let content = json!([image_part(1), text_part("a"), image_part(0), image_part(2)]);
    let prompt = conversation(vec![message("user", content)]);
    let mut prompt = prepared(&model, prompt, &images, Truncation::Disabled).expect("a prompt");
    let measured = measure(vision, &images).expect("images");
    let part = |number: usize| (&images[number], measured.image(number).expect("measured"));
    let decoded: Vec<_> = (0..3)
        .map(|number| prepare(vision, part(number).0, part(number).1, &|| Duration::ZERO).ok())
        .collect();
    let examined: Vec<_> = (0..3)
        .map(|number| {
            examine(|_| false, (vision, part(number).0, part(number).1), &|| {
                Duration::ZERO
            })
            .ok()
        })
        .collect();
    let held: Arc<dyn Send + Sync> = Arc::new(());
    assert!(prompt.attach_files(&examined[..2], &held).is_err());
    prompt.attach_files(&examined, &held).expect("all");
    let record = prompt.to_record();
    prompt.attach(&decoded).expect("the same keys");
    assert_eq!(record, prompt.to_record());
    let files = prompt.files.as_ref().expect("files");
    let places = [1, 0, 2].map(|number| files.place(number));
    assert_eq!(
        places,
        [Some(0), Some(1), Some(2)],
        "in the order of the prompt"
    );
    assert_eq!(files.place(3), None);
    assert_eq!(files.records.len(), 3);
    assert_eq!(files.files.files.len(), 2, "equal files are sent once");
    let numbered = files.files.numbered(&prompt.ids);
    for (run, input) in prompt.image_runs.iter().zip(&prompt.media) {
        let [a, b, c, d, ..] = input.key;
        let number = u32::from_le_bytes([a, b, c, d]);
        assert!(numbered[run.rows.clone()].iter().all(|id| *id == number));
    }
    let others = [examined[1].clone(), examined[0].clone(), None];
    let error = prompt.attach_files(&others, &held).expect_err("others");
    assert_eq!(error.code, "image_changed");
    let mut cut = images[0].clone();
    cut.bytes = cut.bytes[..cut.bytes.len() / 2].into();
    let broken = examine(|_| false, (vision, &cut, part(0).1), &|| Duration::ZERO);
    let why = broken.expect_err("a broken image").message;
    assert!(why.contains("cannot be decoded"), "{why}");
}

#[test]
fn image_that_is_known_is_not_decoded() {
    let model = model(SMOL_VLM, ImageMarks::Idefics3, tiles());
    let vision = model.vision.as_deref().expect("eyes");
    let whole = picture(16, 16);
    let cut = ImagePart {
        bytes: whole.bytes[..whole.bytes.len() - 9].into(),
        ..whole.clone()
    };
    let measured = measure(vision, &[whole.clone(), cut.clone()]).expect("whole headers");
    let images = [(&whole, 0), (&cut, 1)];
    let [whole, cut] = images.map(|(part, i)| (vision, part, measured.image(i).expect("measured")));
    let now = || Duration::ZERO;
    let known = prepare_unless(|_| None, whole, &now).expect("an image");
    assert!(prepare_unless(|_| None, cut, &now).is_err(), "broken");
    let found = prepare_unless(|_| Some(known.clone()), cut, &now).expect("known");
    assert_eq!(found.key(), known.key());
    let named = prepare_unless(
        |key| (key == known.key()).then(|| known.clone()),
        whole,
        &now,
    );
    assert!(named.is_ok(), "the key is that of the file and the plan");
    let examined = examine(|key| key == known.key(), whole, &now).expect("an image");
    assert_eq!(examined.key(), known.key());
    assert!(examine(|_| true, cut, &now).is_ok(), "not decoded");
    assert!(examine(|key| key == known.key(), cut, &now).is_err());
}
