//! Towers: the same bits for all cuts and threads, refusals, and the rows of reference implementations.
//!
//! Promise (Models): the rows of an image have the same bits for every number of threads, and whatever is computed between two
//! units of an encoding.

use cpu::{Tower, TowerAlone};
use kernels::{Format, Isa, Pool};
use media::{Detail, Grid, Pixels, Rule, Size, View};
use model::{Encode, EncodeError, EncoderInput};
use std::sync::Arc;
use synth::{Mix, VISION_PRESETS, VisionSpec};
use weights::gguf::Gguf;
use weights::vision::{Projector, VisionConfig};

/// A tower with its own threads.
pub(crate) fn tower(bytes: Vec<u8>, threads: usize) -> TowerAlone {
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let config = VisionConfig::from_gguf(&gguf).unwrap();
    let mut pool = Pool::new(threads);
    let machine = (Isa::detect(), &mut pool);
    let tower = Tower::load(gguf, config, machine, &mut |_| {}).unwrap();
    TowerAlone::new(tower, pool)
}

/// Noise of this size.
pub(crate) fn noise(size: Size, seed: u32) -> Pixels {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let bytes = (0..size.rgb_bytes()).map(|_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    });
    Pixels::new(size, bytes.collect())
}

/// The views of an image of this size.
fn views(tower: &TowerAlone, size: Size, seed: u32) -> Vec<Arc<View>> {
    let mut recipe = tower.tower().config().recipe.clone();
    if matches!(recipe.rule, Rule::Budget(_)) {
        recipe.rows.high = 16;
    }
    let plan = recipe.plan(size, Detail::High).unwrap();
    recipe.inputs(&plan, &noise(size, seed))
}

/// The rows of a view, and the units that they took.
pub(crate) fn rows(tower: &mut TowerAlone, view: Arc<View>) -> (Vec<f32>, usize) {
    let input: EncoderInput = view;
    let units = tower.begin(&input).unwrap();
    for done in 1..=units {
        if let Some(rows) = tower.advance().unwrap() {
            assert_eq!(done, units);
            return (rows.to_vec(), units);
        }
    }
    panic!("no rows after {units} units");
}

fn bits(rows: &[f32]) -> Vec<u32> {
    rows.iter().map(|entry| entry.to_bits()).collect()
}

#[test]
fn rows_have_the_same_bits_with_all_threads_and_after_a_dropped_encoding() {
    for preset in VISION_PRESETS {
        for format in [Format::F32, Format::F16, Format::Q8_0] {
            let spec = VisionSpec {
                mix: Mix::Uniform(format),
                ..VisionSpec::preset(preset).unwrap()
            };
            let bytes = spec.to_bytes().unwrap();
            let (mut one, mut three) = (tower(bytes.clone(), 1), tower(bytes, 3));
            let size = Size::new(spec.image * 2, spec.image + 9);
            let views = views(&one, size, 7);
            for view in &views {
                let (wanted, _) = rows(&mut one, Arc::clone(view));
                let dims = one.dims();
                assert_eq!(wanted.len(), view.rows as usize * dims.row_width);
                assert!(wanted.iter().any(|entry| entry.abs() > 1e-3), "{preset}");
                // Another encoding that is given up leaves nothing behind.
                let other: EncoderInput = Arc::clone(&views[0]) as EncoderInput;
                let units = three.begin(&other).unwrap();
                for _ in 0..units / 2 {
                    three.advance().unwrap();
                }
                let (found, _) = rows(&mut three, Arc::clone(view));
                assert!(bits(&found) == bits(&wanted), "{preset} {format:?}");
            }
        }
    }
}

#[test]
fn a_pixel_changes_the_rows() {
    for preset in VISION_PRESETS {
        let spec = VisionSpec::preset(preset).unwrap();
        let mut tower = tower(spec.to_bytes().unwrap(), 2);
        let size = Size::square(spec.image);
        let view = views(&tower, size, 3).remove(0);
        let mut bytes = view.pixels.bytes().to_vec();
        bytes[0] ^= 0x80;
        let other = Arc::new(View {
            pixels: Pixels::new(view.pixels.size(), bytes),
            ..(*view).clone()
        });
        let view_rows = view.rows as usize;
        let marks = view_rows - view.merged.count() as usize;
        let (first, second) = (rows(&mut tower, view).0, rows(&mut tower, other).0);
        // Ends of lines have no pixels; without layers a row depends on its own patch alone.
        let is_alone = spec.projector == Projector::Gemma4Uv;
        let apart = if is_alone { view_rows - 1 } else { marks };
        let width = tower.dims().row_width;
        let same = first.chunks(width).zip(second.chunks(width));
        assert_eq!(same.filter(|(a, b)| a == b).count(), apart, "{preset}");
    }
}

#[test]
fn old_files_with_exchanged_names_give_the_same_rows() {
    let spec = VisionSpec::preset("tiny-idefics3").unwrap();
    // Weights depend on the tensors' names, so only the load and the shapes are compared.
    let swapped = VisionSpec {
        swapped: true,
        ..spec
    };
    let mut tower = tower(swapped.to_bytes().unwrap(), 1);
    let view = views(&tower, Size::square(32), 1).remove(0);
    assert_eq!(rows(&mut tower, view).0.len(), 4 * 64);
}

#[test]
fn inputs_of_another_kind_or_recipe_are_refused_and_leave_nothing() {
    let spec = VisionSpec::preset("tiny-qwen3vl_merger").unwrap();
    let mut tower = tower(spec.to_bytes().unwrap(), 1);
    let view = views(&tower, Size::square(48), 1).remove(0);
    let of = |pixels: Size, patches: Grid, merged: Grid| View {
        pixels: noise(pixels, 1),
        patches,
        merged,
        rows: merged.count(),
    };
    let cases: [(&str, EncoderInput); 5] = [
        ("no view", Arc::new("text".to_owned())),
        (
            "another recipe",
            Arc::new(of(Size::square(48), Grid::new(5, 6), Grid::new(3, 3))),
        ),
        (
            "another recipe",
            Arc::new(of(Size::square(48), Grid::new(6, 6), Grid::new(6, 6))),
        ),
        (
            "another recipe",
            Arc::new(of(Size::square(40), Grid::new(5, 5), Grid::new(2, 2))),
        ),
        (
            "another recipe",
            Arc::new(of(Size::square(8), Grid::new(1, 1), Grid::new(0, 0))),
        ),
    ];
    for (part, input) in cases {
        tower.begin(&(Arc::clone(&view) as EncoderInput)).unwrap();
        match tower.begin(&input) {
            Err(EncodeError::BadInput(why)) => {
                assert!(why.contains(part), "{why}");
            }
            other => panic!("{part}: {other:?}"),
        }
        assert!(tower.advance().is_err(), "{part}: nothing is under way");
    }
    assert!(rows(&mut tower, view).1 > 2);
}

#[test]
fn a_tower_without_finite_rows_says_so() {
    let spec = VisionSpec::preset("tiny-idefics3").unwrap();
    let mut bytes = spec.to_bytes().unwrap();
    let at = bytes.len() - 4 * 64;
    for float in bytes[at..].chunks_exact_mut(4) {
        float.copy_from_slice(&f32::INFINITY.to_le_bytes());
    }
    let mut tower = tower(bytes, 1);
    let view = views(&tower, Size::square(32), 1).remove(0);
    let units = tower.begin(&(view as EncoderInput)).unwrap();
    for _ in 1..units {
        assert_eq!(tower.advance(), Ok(None));
    }
    assert_eq!(tower.advance(), Err(EncodeError::NotFinite));
}
