//! The model that the tests see with, next to the arithmetic by which it was trained: `tools/train/vision/pictures.py` wrote the
//! numbers, of an implementation in numpy (`reference.py`).

use crate::support::{pages, try_load};
use crate::tower_goldens::least_cosine;
use crate::towers::{rows, tower};
use media::{Detail, Pixels, Size};
use model::{Batch, Forward, Want};
use std::path::PathBuf;

/// The id that stands for a row of the picture in the prompt.
const ROW: u32 = 7;

fn read(path: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../millrace");
    std::fs::read(folder.join(path)).unwrap()
}

fn floats(path: &str) -> Vec<f32> {
    let bytes = read(path);
    let floats = bytes.as_chunks::<4>().0.iter();
    floats.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The prompt's ids, in a file with the picture's name before them.
fn prompt() -> Vec<u32> {
    let text = String::from_utf8(read("tests/pictures/golden/ids.json")).unwrap();
    let (_, list) = text.split_once('[').unwrap();
    let list = list.split(']').next().unwrap();
    list.split(", ").map(|id| id.parse().unwrap()).collect()
}

/// Promise (Images): rows of the small trained model, and the logits after them, equal those of its training: cosine at least
/// 0.9999 for rows, and 0.999 for the logits.
#[test]
fn rows_and_logits_of_the_trained_model_are_those_of_its_training() {
    let mut tower = tower(read("mini/millrace-mini-vision.mmproj.gguf"), 2);
    let tile = Pixels::new(Size::square(64), read("tests/pictures/golden/tile.rgb"));
    let recipe = tower.tower().config().recipe.clone();
    let plan = recipe.plan(tile.size(), Detail::Low).unwrap();
    let view = recipe.inputs(&plan, &tile).remove(0);
    assert_eq!(view.pixels, tile, "one tile, as it is");
    let (found, _) = rows(&mut tower, view);
    let wanted = floats("tests/pictures/golden/rows.f32");
    assert_eq!(found.len(), wanted.len());
    let width = tower.tower().config().projection_dim;
    let cosine = least_cosine(&found, &wanted, width);
    assert!(cosine >= 0.9999, "{cosine}");

    let mut model = try_load(read("mini/millrace-mini-vision.gguf"), 2).unwrap();
    let ids = prompt();
    let first = ids.iter().position(|id| *id == ROW).unwrap();
    let run = first..first + wanted.len() / width;
    assert!(ids[run.clone()].iter().all(|id| *id == ROW));
    let mut batch = Batch::default();
    batch.push(&ids, 0, &pages(0, ids.len()), Want::Last);
    batch.set_vectors(run, &wanted);
    let logits = model.forward(&batch).unwrap();
    let wanted = floats("tests/pictures/golden/logits.f32");
    assert_eq!(logits.len(), wanted.len());
    let cosine = least_cosine(logits, &wanted, wanted.len());
    assert!(cosine >= 0.999, "{cosine}");
    let best = |logits: &[f32]| (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    assert_eq!(best(logits), best(&wanted));
}
