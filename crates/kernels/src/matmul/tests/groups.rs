//! Products of groups of rows against products with each matrix alone.

use super::{FORMATS, Random};
use crate::{
    Activations, Format, Isa, Matrix, MatrixStack, PackError, Pool, RowGroup, matmul, matmul_groups,
};

const COLS: usize = 512;
const COUNT: usize = 5;

fn stack(isa: Isa, format: Format, rows: usize, raw: &[Vec<u8>]) -> MatrixStack {
    let mut stack = MatrixStack::new(isa, format, raw.len(), rows, COLS).unwrap();
    for (index, raw) in raw.iter().enumerate() {
        stack.pack(&mut Pool::new(1), index, raw).unwrap();
    }
    stack
}

/// Groups with these numbers of rows for the matrices that have any.
fn groups(lens: [usize; COUNT]) -> Vec<RowGroup> {
    let mut end = 0;
    let all = lens.into_iter().enumerate().map(|(matrix, len)| {
        end += len;
        let rows = end - len..end;
        RowGroup { matrix, rows }
    });
    all.filter(|group| !group.rows.is_empty()).collect()
}

/// A row has the bits of its product with its matrix alone, whatever the sizes of the groups.
#[test]
fn groups_equal_products_with_single_matrices() {
    for isa in Isa::available().map(Isa::without_amx) {
        for format in FORMATS {
            for rows in [16, 49] {
                let mut random = Random(7);
                let raw: Vec<_> = (0..COUNT)
                    .map(|_| random.raw(format, rows * COLS))
                    .collect();
                let stack = stack(isa, format, rows, &raw);
                for (lens, threads) in [([0, 1, 9, 0, 3], 2), ([20, 0, 0, 1, 8], 3)] {
                    check(isa, &stack, &raw, &groups(lens), threads);
                }
            }
        }
    }
}

fn check(isa: Isa, stack: &MatrixStack, raw: &[Vec<u8>], groups: &[RowGroup], threads: usize) {
    let (format, rows) = (stack.format(), stack.rows());
    let count = groups.last().unwrap().rows.end;
    let floats = Random(3).floats(40 * COLS);
    // Rows in another order than they are stored.
    let sources: Vec<u32> = (0..count as u32).map(|row| (row * 7 + 3) % 40).collect();
    let pool = &mut Pool::new(threads);
    let mut x = Activations::new(count, COLS);
    x.load_gathered(isa, pool, &floats, &sources, COLS);
    let mut found = vec![0.0; count * rows];
    matmul_groups(pool, stack, groups, &x, &mut found);
    for group in groups {
        let w = Matrix::pack(isa, pool, format, rows, COLS, &raw[group.matrix]).unwrap();
        for row in group.rows.clone() {
            let source = &floats[sources[row] as usize * COLS..][..COLS];
            let mut alone = Activations::new(1, COLS);
            alone.load(isa, pool, source, 1, COLS);
            let mut wanted = vec![0.0; rows];
            matmul(pool, &w, &alone, &mut wanted);
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let found = &found[row * rows..][..rows];
            assert_eq!(bits(found), bits(&wanted), "{isa}, {format:?}, row {row}");
        }
    }
}

#[test]
fn stack_rejects_other_sizes() {
    let stack = |cols| MatrixStack::new(Isa::detect(), Format::Q4_0, 2, 16, cols);
    assert_eq!(stack(33).err(), Some(PackError::Cols(33)));
    let found = stack(64).unwrap().pack(&mut Pool::new(1), 1, &[0; 7]);
    let wanted = 16 * 2 * Format::Q4_0.block_bytes();
    assert_eq!(found, Err(PackError::Size { wanted, given: 7 }));
}

#[test]
#[should_panic(expected = "rows of groups ascend")]
fn overlapping_groups_are_rejected() {
    let stack = MatrixStack::new(Isa::detect(), Format::F32, 2, 16, 32).unwrap();
    let pool = &mut Pool::new(1);
    let mut x = Activations::new(2, 32);
    x.load(Isa::detect(), pool, &[0.0; 64], 2, 32);
    let groups = [0..2, 1..2].map(|rows| RowGroup { matrix: 0, rows });
    matmul_groups(pool, &stack, &groups, &x, &mut [0.0; 32]);
}
