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

#[test]
fn packed_bytes_make_an_equal_matrix() {
    for format in Format::ALL {
        let (rows, cols) = (19, 512);
        let bytes = rows * cols / format.block_weights() * format.block_bytes();
        let raw: Vec<u8> = (0..bytes).map(|at| (at * 31 % 64) as u8).collect();
        for isa in Isa::available() {
            let pool = &mut Pool::new(2);
            let packed = Matrix::pack(isa, pool, format, rows, cols, &raw).unwrap();
            let bytes = PackedBytes::copied(pool, &packed.packed(), 1000, |_, _| true).unwrap();
            let again = Matrix::from_packed(isa, pool, format, rows, cols, bytes).unwrap();
            assert!(*again.packed() == *packed.packed(), "{format:?}");
            let (mut one, mut other) = (vec![0.0; cols], vec![0.0; cols]);
            packed.row(18, &mut one);
            again.row(18, &mut other);
            let bits = |row: &[f32]| row.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&one), bits(&other), "{format:?} {isa}");
        }
    }
}

#[test]
fn packed_bytes_of_another_shape_are_rejected() {
    let pool = &mut Pool::new(1);
    let packed = pack(Format::Q8_0, 16, 64, 16 * 68).unwrap().packed();
    let mut from = |format, rows, cols| {
        Matrix::from_packed(Isa::best(), pool, format, rows, cols, packed.clone()).err()
    };
    assert_eq!(from(Format::Q8_0, 16, 64), None);
    assert_eq!(from(Format::Q8_0, 16, 48), Some(PackError::Cols(48)));
    for (format, rows, cols) in [
        (Format::Q8_0, 32, 64),
        (Format::Q8_0, 16, 128),
        (Format::Q4_0, 16, 64),
        (Format::F32, usize::MAX, 4),
    ] {
        let refused = from(format, rows, cols);
        assert!(
            matches!(refused, Some(PackError::Size { .. })),
            "{format:?} {rows} {cols}: {refused:?}"
        );
    }
    let stack = |count| {
        let stack =
            MatrixStack::from_packed(Isa::best(), Format::Q8_0, count, (16, 64), packed.clone());
        stack.err()
    };
    assert_eq!(stack(1), None);
    assert!(matches!(stack(2), Some(PackError::Size { .. })));
    assert!(matches!(stack(usize::MAX), Some(PackError::Size { .. })));
}

#[test]
fn packing_into_a_stack_does_not_change_a_shared_handle() {
    let pool = &mut Pool::new(1);
    let mut stack = MatrixStack::new(Isa::best(), Format::F32, 2, 16, 4).unwrap();
    stack.pack(pool, 0, &[1; 256]).unwrap();
    let before = stack.packed();
    stack.pack(pool, 1, &[2; 256]).unwrap();
    assert!(before[256..].iter().all(|byte| *byte == 0));
    assert!(stack.packed()[256..].iter().all(|byte| *byte == 2));
    assert!(stack.packed()[..256] == before[..256]);
}
