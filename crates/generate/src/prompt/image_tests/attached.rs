//! Images of a prompt that are attached, recorded and restored.

use super::*;
use crate::images::{PreparedImage, prepare};
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
