//! Texts as wide as published ones, with weights as transformers initializes them, next to transformers.
//! `tools/oracle/vision_wide.py` wrote the numbers and the seeds of weights, which are made here as there.
//!
//! Promise (Models): logits after an image equal those of transformers, of a text quantized to Q8_0 at load: cosine at least 0.999
//! at every position, in each class that is read from safetensors, with a width of 1024 and weights as transformers initializes
//! them, but for Gemma 4's norms of keys, whose gains have the factor of scores. Routers choose no expert by a near score.

use super::{configs, encoded, open, saved, text_as, tower_of};
use crate::support::saved::Stored;
use crate::tower_goldens::{Golden, goldens_of, logits_of};
use kernels::Format;
use weights::safetensors::Quantize;

const PART: &str = "wide/";

#[test]
fn logits_of_wide_texts_equal_those_of_transformers() {
    let goldens = goldens_of(PART);
    assert_eq!(goldens.len(), super::SAVED.len());
    for golden in &goldens {
        let class = golden.name.strip_prefix(PART).unwrap();
        let config = serde_json::from_slice(&golden.file("config.json")).unwrap();
        let folder = saved(class, &tensors(golden), &(config, configs(class).1));
        let mut tower = tower_of(open(&folder).unwrap()).unwrap();
        let grid = golden.grid(tower.tower().config());
        let rows = golden.encoded(&mut tower);
        for (quantize, least) in [(None, 0.9999), (Some(Quantize::Q8_0), 0.999)] {
            let mut text = text_as(&folder, quantize);
            let found = logits_of(&mut text, golden, (&rows, grid), || usize::MAX);
            let cosine = golden.cosine_of_logits(&found, &golden.floats());
            assert!(cosine >= least, "{class}, {quantize:?}: {cosine}");
        }
    }
}

/// The tensors of a case, in F16.
fn tensors(golden: &Golden) -> Vec<Stored> {
    let table = String::from_utf8(golden.file("tensors.tsv")).unwrap();
    let stored = |line: &str| {
        let [name, shape, rule] = *line.split('\t').collect::<Vec<_>>() else {
            panic!("{line}");
        };
        let shape: Vec<u64> = shape
            .split(' ')
            .filter_map(|size| size.parse().ok())
            .collect();
        let (kind, fields) = rule.split_once(' ').unwrap();
        let fields: Vec<f64> = fields
            .split(' ')
            .map(|field| field.parse().unwrap())
            .collect();
        let numbers = match (kind, &fields[..]) {
            ("~", &[seed, mean, deviation]) => {
                let count = shape.iter().product::<u64>();
                numbers(&format!("{seed} {name}"), count, mean, deviation)
            }
            _ => fields.iter().map(|number| *number as f32).collect(),
        };
        Stored {
            name: name.to_owned(),
            dtype: "F16".to_owned(),
            shape,
            bytes: encoded(Format::F16, &numbers),
        }
    };
    table.lines().map(stored).collect()
}

/// Numbers that are about normal: sums of eight integers of 16 bits, of splitmix64 from a hash of `seed` on.
fn numbers(seed: &str, count: u64, mean: f64, deviation: f64) -> Vec<f32> {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let start = seed.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    let scale = deviation / (65536.0 * (8.0 / 12.0_f64).sqrt());
    let number = |at: u64| {
        let sums = [2 * at + 1, 2 * at + 2].map(|step| {
            let state = start.wrapping_add(step.wrapping_mul(STEP));
            let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let state = state ^ (state >> 31);
            [0, 16, 32, 48]
                .map(|shift| state >> shift & 0xffff)
                .iter()
                .sum::<u64>()
        });
        let sum = (sums[0] + sums[1]) as f64 - 262_140.0;
        (mean + sum * scale) as f32
    };
    (0..count).map(number).collect()
}
