//! Errors and size of packing.

use super::*;

fn pack(format: Format, rows: usize, cols: usize, bytes: usize) -> Result<Matrix, PackError> {
    Matrix::pack(
        Isa::best(),
        &mut Pool::new(1),
        format,
        rows,
        cols,
        &vec![0; bytes],
    )
}

#[test]
fn bytes_of_another_shape_are_rejected() {
    let rows = [
        (
            "one byte short",
            Format::Q4_0,
            2,
            64,
            71,
            PackError::Size {
                wanted: 72,
                given: 71,
            },
        ),
        (
            "one block more",
            Format::Q4_0,
            2,
            64,
            90,
            PackError::Size {
                wanted: 72,
                given: 90,
            },
        ),
        ("half a block", Format::Q8_0, 1, 48, 34, PackError::Cols(48)),
        (
            "half a super-block",
            Format::Q6_K,
            1,
            128,
            105,
            PackError::Cols(128),
        ),
        (
            "more than can be counted",
            Format::F32,
            usize::MAX,
            usize::MAX,
            4,
            PackError::Size {
                wanted: usize::MAX,
                given: 4,
            },
        ),
    ];
    for (label, format, rows, cols, bytes, expected) in rows {
        assert_eq!(
            pack(format, rows, cols, bytes).err(),
            Some(expected),
            "{label}"
        );
    }
}

#[test]
fn packed_weights_are_at_most_slightly_larger_than_the_file() {
    let rows = [
        (Format::F32, 1.0),
        (Format::F16, 1.0),
        (Format::BF16, 1.0),
        (Format::Q4_0, 1.0),
        (Format::Q4_1, 1.0),
        (Format::Q5_0, 1.0),
        (Format::Q5_1, 1.0),
        (Format::Q8_0, 1.0),
        (Format::Q2_K, 1.0),
        (Format::Q3_K, 1.06),
        (Format::Q4_K, 1.03),
        (Format::Q5_K, 1.03),
        (Format::Q6_K, 1.01),
    ];
    for (format, most) in rows {
        let raw = 64 * 512 / format.block_weights() * format.block_bytes();
        let packed = pack(format, 64, 512, raw).expect("the sizes agree").bytes();
        assert!(
            packed as f64 <= raw as f64 * most,
            "{format:?}: {packed} for {raw}"
        );
    }
}

#[test]
#[should_panic(expected = "row 3 of 3")]
fn padding_row_of_a_panel_is_rejected() {
    let matrix = pack(Format::F32, 3, 8, 96).expect("the sizes agree");
    matrix.row(3, &mut [0.0; 8]);
}
