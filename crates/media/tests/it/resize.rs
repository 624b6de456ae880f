//! Resizes, byte for byte as Pillow 13 makes them, and what Pillow's bytes imply.

use crate::pattern::{golden, pattern};
use media::{Filter, Pixels, Size, file_digest, resize};
use proptest::prelude::*;

fn filter(name: &str) -> Filter {
    match name {
        "bilinear" => Filter::Bilinear,
        "bicubic" => Filter::Bicubic,
        "lanczos" => Filter::Lanczos,
        name => panic!("{name} is no filter"),
    }
}

fn hex(digest: [u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn resized_bytes_are_those_of_pillow() {
    let table = std::fs::read_to_string(golden().join("resize.tsv")).expect("the table");
    let mut count = 0;
    for line in table.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let edge = |at: usize| columns[at].parse::<u32>().expect("a number");
        let from = pattern(columns[5], Size::new(edge(0), edge(1)));
        let resized = resize(&from, Size::new(edge(2), edge(3)), filter(columns[4]));
        let digest = hex(file_digest(resized.bytes()));
        assert_eq!(digest, columns[6], "{line}");
        count += 1;
    }
    assert!(count >= 120, "{count} rows");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Weights of each output add up to one, so a picture of one color keeps it.
    #[test]
    fn one_color_stays_one_color(
        from in (1_u32..70, 1_u32..70),
        to in (1_u32..70, 1_u32..70),
        color: [u8; 3],
        name in prop::sample::select(vec!["bilinear", "bicubic", "lanczos"]),
    ) {
        let size = Size::new(from.0, from.1);
        let picture = Pixels::new(size, color.repeat(size.pixels() as usize));
        let resized = resize(&picture, Size::new(to.0, to.1), filter(name));
        prop_assert_eq!(resized.size(), Size::new(to.0, to.1));
        prop_assert!(resized.bytes().chunks(3).all(|pixel| pixel == color));
    }
}
