//! All levels against naive loops over f64; divisions of spans and batches, bit by bit.

use super::*;
use crate::isa::Level;

const CONV: usize = 3;

/// A batch of spans with their states: `(rows, state before, writes)`.
type Spans<'a> = &'a [(usize, Option<u32>, &'a [(usize, u32)])];

fn plan(spans: Spans<'_>) -> ScanPlan {
    let mut plan = ScanPlan::new(16, 256);
    for (rows, before, writes) in spans {
        let pushed = plan.push(*rows, *before, writes.iter().copied());
        assert_eq!(pushed, Ok(()));
    }
    plan
}

fn noise(len: usize, seed: usize) -> Vec<f32> {
    let one = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0;
    (0..len).map(one).collect()
}

fn shapes() -> [ScanShape; 6] {
    let shape = |key_heads, value_heads, key_dim, value_dim, grouped| ScanShape {
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        grouped,
        rule: ScanRule::Delta,
    };
    let linear = |key_heads, value_heads, key_dim, value_dim| ScanShape {
        rule: ScanRule::Linear,
        ..shape(key_heads, value_heads, key_dim, value_dim, true)
    };
    [
        shape(2, 4, 8, 16, false),
        shape(2, 4, 8, 16, true),
        shape(1, 3, 32, 144, false),
        shape(4, 4, 128, 128, true),
        linear(1, 3, 32, 80),
        linear(2, 4, 128, 64),
    ]
}

fn store(shape: &ScanShape) -> StateStore {
    let shape = StateShape {
        layers: 2,
        conv_rows: CONV,
        conv_cols: shape.cols(),
        scan_len: shape.state_len(),
    };
    StateStore::new(shape, 16)
}

/// Rows of a sequence: the convolution's input, and the gates.
struct Sequence {
    taps: Vec<f32>,
    x: Vec<f32>,
    gates: Vec<f32>,
}

impl Sequence {
    fn new(shape: &ScanShape, rows: usize, seed: usize) -> Self {
        let gates = noise(rows * 2 * shape.value_heads, seed + 1);
        Self {
            // Keys stay short, or the recurrence would grow without bound.
            taps: noise((CONV + 1) * shape.cols(), 9)
                .iter()
                .map(|tap| tap * 0.2)
                .collect(),
            x: noise(rows * shape.cols(), seed),
            gates: gates.iter().map(|gate| gate.abs() * 0.9).collect(),
        }
    }

    /// Without a bias and with silu, or the other way round.
    fn convolution(&self, shape: &ScanShape) -> Convolution<'_> {
        let linear = shape.rule == ScanRule::Linear;
        Convolution {
            taps: &self.taps,
            bias: linear.then(|| &self.taps[1..][..shape.cols()]),
            silu: !linear,
        }
    }

    /// Convolution and scan over these rows of the sequence.
    fn run(
        &self,
        isa: Isa,
        shape: &ScanShape,
        store: &mut StateStore,
        plan: &ScanPlan,
        rows: Range<usize>,
    ) -> (Vec<f32>, Vec<f32>) {
        let (mut pool, cols, gates) = (Pool::new(2), shape.cols(), 2 * shape.value_heads);
        let x = &self.x[rows.start * cols..rows.end * cols];
        let mut mixed = vec![0.0; x.len()];
        let convolution = self.convolution(shape);
        causal_conv(isa, &mut pool, plan, (store, 1), convolution, x, &mut mixed);
        let mut out = vec![0.0; rows.len() * shape.value_cols()];
        let input = ScanRows {
            mixed: &mixed,
            gates: &self.gates[rows.start * gates..rows.end * gates],
        };
        scan(isa, &mut pool, plan, (store, 1), shape, input, &mut out);
        (mixed, out)
    }
}

fn naive_conv(sequence: &Sequence, shape: &ScanShape) -> Vec<f64> {
    let (cols, linear) = (shape.cols(), shape.rule == ScanRule::Linear);
    let rows = sequence.x.len() / cols;
    let one = |row: usize, col: usize| {
        let taps = (0..=CONV).filter(|tap| row + tap >= CONV);
        let sum: f64 = taps
            .map(|tap| {
                let x = sequence.x[(row + tap - CONV) * cols + col];
                f64::from(x) * f64::from(sequence.taps[tap * cols + col])
            })
            .sum();
        if linear {
            sum + f64::from(sequence.taps[1 + col])
        } else {
            sum / (1.0 + (-sum).exp())
        }
    };
    (0..rows * cols).map(|i| one(i / cols, i % cols)).collect()
}

fn naive_scan(shape: &ScanShape, mixed: &[f64], gates: &[f32]) -> Vec<f64> {
    let (keys, values) = (shape.key_dim, shape.value_dim);
    let rows = mixed.len() / shape.cols();
    let mut out = vec![0.0; rows * shape.value_cols()];
    for head in 0..shape.value_heads {
        let mut state = vec![0.0; keys * values];
        let group = shape.value_heads / shape.key_heads;
        let key_head = if shape.grouped {
            head / group
        } else {
            head % shape.key_heads
        };
        for row in 0..rows {
            let mixed = &mixed[row * shape.cols()..][..shape.cols()];
            let (all, linear) = (shape.key_heads * keys, shape.rule == ScanRule::Linear);
            let [query, key, value] = if linear {
                [shape.value_cols() + all, shape.value_cols(), 0]
            } else {
                [0, all, 2 * all]
            };
            let query = &mixed[query + key_head * keys..][..keys];
            let key = &mixed[key + key_head * keys..][..keys];
            let value = &mixed[value + head * values..][..values];
            let gates = &gates[(row * shape.value_heads + head) * 2..];
            state
                .iter_mut()
                .for_each(|entry| *entry *= f64::from(gates[0]));
            for column in 0..values {
                let said: f64 = (0..keys).map(|i| key[i] * state[i * values + column]).sum();
                let said = if linear { 0.0 } else { said };
                let delta = (value[column] - said) * f64::from(gates[1]);
                (0..keys).for_each(|i| state[i * values + column] += key[i] * delta);
                let sum = (0..keys)
                    .map(|i| query[i] * state[i * values + column])
                    .sum();
                out[row * shape.value_cols() + head * values + column] = sum;
            }
        }
    }
    out
}

#[test]
fn scan_equals_the_naive_recurrence_on_all_levels() {
    for shape in shapes() {
        let (rows, last) = (13, [(13, 3)]);
        let sequence = Sequence::new(&shape, rows, 5);
        let mixed = naive_conv(&sequence, &shape);
        let wanted = naive_scan(&shape, &mixed, &sequence.gates);
        let size = wanted.iter().map(|x| x.abs()).fold(0.0, f64::max);
        for isa in Isa::available() {
            let plan = plan(&[(rows, None, &last)]);
            let (_, found) = sequence.run(isa, &shape, &mut store(&shape), &plan, 0..rows);
            for (found, wanted) in found.iter().zip(&wanted) {
                let far = (f64::from(*found) - wanted).abs();
                assert!(
                    far < 1e-5 * size.max(1.0),
                    "{isa}, {shape:?}: {found}, {wanted}"
                );
            }
        }
    }
}

#[test]
fn division_of_a_sequence_changes_no_bit() {
    for shape in shapes() {
        let rows = 11;
        let sequence = Sequence::new(&shape, rows, 2);
        for isa in Isa::available() {
            let whole = plan(&[(rows, None, &[(1, 0), (4, 1), (11, 2)])]);
            let mut states = store(&shape);
            let (_, wanted) = sequence.run(isa, &shape, &mut states, &whole, 0..rows);
            // From each state that was kept on the way, and token by token.
            for (from, state) in [(0, None), (1, Some(0)), (4, Some(1))] {
                let mut before = state;
                let mut found = wanted[..from * shape.value_cols()].to_vec();
                for row in from..rows {
                    let after = 4 + (row % 2) as u32;
                    let one = plan(&[(1, before, &[(1, after)])]);
                    found.extend(sequence.run(isa, &shape, &mut states, &one, row..row + 1).1);
                    before = Some(after);
                }
                let same = found
                    .iter()
                    .zip(&wanted)
                    .all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{isa}, {shape:?}, from {from}");
            }
        }
    }
}

#[test]
fn spans_of_a_batch_do_not_change_each_other() {
    let shape = shapes()[2];
    let isa = Isa::detect();
    let sequence = Sequence::new(&shape, 12, 3);
    let mut states = store(&shape);
    let cols = shape.value_cols();
    // Two sequences that share a state, and one that begins.
    let first = plan(&[(5, None, &[(5, 0)])]);
    sequence.run(isa, &shape, &mut states, &first, 0..5);
    let batch = plan(&[
        (3, Some(0), &[(3, 1)]),
        (2, None, &[(2, 2)]),
        (2, Some(0), &[(2, 3)]),
    ]);
    let (_, together) = sequence.run(isa, &shape, &mut states, &batch, 5..12);
    let alone = |rows: Range<usize>, before| {
        let mut states = store(&shape);
        let first = plan(&[(5, None, &[(5, 0)])]);
        sequence.run(isa, &shape, &mut states, &first, 0..5);
        let one = plan(&[(rows.len(), before, &[(rows.len(), 1)])]);
        sequence.run(isa, &shape, &mut states, &one, rows).1
    };
    assert!(together[..3 * cols] == alone(5..8, Some(0)));
    assert!(together[3 * cols..5 * cols] == alone(8..10, None));
    assert!(together[5 * cols..] == alone(10..12, Some(0)));
}

#[test]
fn vector_levels_give_equal_bits() {
    let shape = shapes()[2];
    let sequence = Sequence::new(&shape, 9, 4);
    let vector = Isa::available().filter(|isa| isa.level() != Level::Scalar);
    let mut all = vector.map(|isa| {
        let plan = plan(&[(9, None, &[(9, 0)])]);
        sequence.run(isa, &shape, &mut store(&shape), &plan, 0..9).1
    });
    let Some(first) = all.next() else { return };
    assert!(all.all(|other| other == first));
}
