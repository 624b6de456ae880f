//! Recurrent layers: a causal convolution, and scans: the gated delta rule (Yang et al. 2025, "Gated Delta Networks") and that
//! of Mamba-2 (Dao and Gu 2024).
//!
//! Both keep what they need of earlier tokens in a state of fixed size ([`StateStore`]). A batch reads the states before its
//! spans and writes others ([`ScanPlan`]): a state is never changed.
//!
//! A prompt is a loop over tokens, of the same steps as decoding, so the result does not depend on how the prompt was
//! divided. Workers share the heads and, in each, blocks of columns of the state ([`block_columns`]), which stay in the first
//! cache over all tokens of a span. One pass over a block updates it for a token and reads it for the next.

#![allow(unsafe_code)] // Workers write disjoint states and columns; each block says why they are.

pub(crate) mod reference;
mod scan_plan;
#[cfg(test)]
mod tests;

pub use scan_plan::ScanPlan;

use crate::dispatch::by_isa;
use crate::pool::DisjointSlice;
use crate::{Isa, Pool, ZeroedBuffer, add_mul, silu_in_place};
use scan_plan::ScanSpan;
use std::ops::Range;

/// The most columns of a head's state that are computed together.
const BLOCK_COLUMNS_MAX: usize = 64;

/// Columns of a head's state are a multiple of this.
pub const STATE_COLUMN_GROUP: usize = 16;

/// How a token changes the state of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanRule {
    /// The gated delta rule. A row has queries, keys, values.
    Delta,
    /// Mamba-2: the value is added, without a correction. A row has values, keys, queries.
    Linear,
}

/// Heads of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanShape {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, a multiple of the heads of keys.
    pub value_heads: usize,
    /// Elements of a query and of a key.
    pub key_dim: usize,
    /// Elements of a value, a multiple of [`STATE_COLUMN_GROUP`].
    pub value_dim: usize,
    /// Whether consecutive heads of values have the same key; else each `key_heads`-th.
    pub grouped: bool,
    /// The rule, and the order of a row.
    pub rule: ScanRule,
}

impl ScanShape {
    /// Columns of queries, keys and values together.
    pub fn cols(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_cols()
    }

    /// Columns of all values.
    pub fn value_cols(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Entries of the states of all heads.
    pub fn state_len(&self) -> usize {
        self.value_cols() * self.key_dim
    }

    fn key_head(&self, value_head: usize) -> usize {
        if self.grouped {
            value_head / (self.value_heads / self.key_heads)
        } else {
            value_head % self.key_heads
        }
    }
}

/// A convolution over time, column by column.
#[derive(Clone, Copy, Debug)]
pub struct Convolution<'a> {
    /// Shape `(conv_rows + 1, cols)`, the last row for the present.
    pub taps: &'a [f32],
    /// Added to the sum (cols).
    pub bias: Option<&'a [f32]>,
    /// Whether silu is applied.
    pub silu: bool,
}

/// Convolves each column of `x` over time. `x` and `out` have shape `(rows, cols)`. Writes the convolution's part of the
/// states.
///
/// # Panics
/// If the shapes differ from those of the plan and the store.
pub fn causal_conv(
    isa: Isa,
    pool: &mut Pool,
    plan: &ScanPlan,
    (store, layer): (&mut StateStore, usize),
    convolution: Convolution<'_>,
    x: &[f32],
    out: &mut [f32],
) {
    let shape = *store.shape();
    let (cols, kept) = (shape.conv_cols, shape.conv_rows);
    let rows = plan.span_of_row.len();
    let Convolution { taps, bias, silu } = convolution;
    assert!(layer < shape.layers && taps.len() == (kept + 1) * cols);
    assert!(x.len() == rows * cols && out.len() == rows * cols);
    let floats = &store.floats;
    let before = |span: &ScanSpan, at: usize| {
        let start = shape.start(span.before?, layer) + at * cols;
        Some(&floats[start..][..cols])
    };
    pool.rows(out, cols, |row, out| {
        let span = &plan.spans[plan.span_of_row[row] as usize];
        match bias {
            Some(bias) => out.copy_from_slice(bias),
            None => out.fill(0.0),
        }
        for (tap, weights) in taps.chunks_exact(cols).enumerate() {
            // Tap `kept` is for the present; where earlier rows are missing, nothing is added.
            let at = row - span.rows.start + tap;
            let input = match at.checked_sub(kept) {
                Some(at) => Some(&x[(span.rows.start + at) * cols..][..cols]),
                None => before(span, at),
            };
            if let Some(input) = input {
                add_mul(isa, out, weights, input);
            }
        }
        if silu {
            silu_in_place(isa, out);
        }
    });
    keep_inputs(plan, store, layer, x);
}

/// Writes the convolution's part of the states: the last inputs.
fn keep_inputs(plan: &ScanPlan, store: &mut StateStore, layer: usize, x: &[f32]) {
    let shape = *store.shape();
    let (cols, kept) = (shape.conv_cols, shape.conv_rows);
    for span in &plan.spans {
        for write in &plan.writes[span.writes.clone()] {
            let to = shape.start(write.state, layer);
            let done = write.row - span.rows.start;
            for at in 0..kept {
                let to = to + at * cols..to + (at + 1) * cols;
                match ((done + at).checked_sub(kept), span.before) {
                    (Some(row), _) => {
                        let row = &x[(span.rows.start + row) * cols..][..cols];
                        store.floats[to].copy_from_slice(row);
                    }
                    (None, Some(before)) => {
                        let from = shape.start(before, layer) + (done + at) * cols;
                        store.floats.copy_within(from..from + cols, to.start);
                    }
                    (None, None) => store.floats[to].fill(0.0),
                }
            }
        }
    }
}

/// Input of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanRows<'a> {
    /// Queries, keys and values of all heads in the order of the rule, shape `(rows, cols)`.
    pub mixed: &'a [f32],
    /// Of each head the factor of the state, and the share of a correction or of a value; shape `(rows, 2 * value_heads)`.
    pub gates: &'a [f32],
}

/// Scans the rows of all spans. `out` has shape `(rows, value_cols)`. Writes the recurrent part of the states.
///
/// # Panics
/// If the shapes differ from those of the plan and the store.
pub fn scan(
    isa: Isa,
    pool: &mut Pool,
    plan: &ScanPlan,
    (store, layer): (&mut StateStore, usize),
    heads: &ScanShape,
    rows: ScanRows<'_>,
    out: &mut [f32],
) {
    let (shape, count) = (*store.shape(), plan.span_of_row.len());
    assert!(layer < shape.layers && shape.scan_len == heads.state_len());
    assert_eq!(rows.mixed.len(), count * heads.cols());
    assert_eq!(rows.gates.len(), count * 2 * heads.value_heads);
    assert_eq!(out.len(), count * heads.value_cols());
    let width = block_columns(isa);
    let blocks = heads.value_dim.div_ceil(width);
    let floats = DisjointSlice::new(&mut store.floats);
    let out = DisjointSlice::new(out);
    let run = |task: usize| {
        let block = HeadBlock::new(heads, width, task / blocks, task % blocks);
        let part = |state: u32| {
            let start = shape.start(state, layer) + shape.scan_start() + block.start;
            // SAFETY: the parts of different tasks do not overlap; a task uses the parts of different states at one
            // time, since the plan holds no state that is written twice, or read and written.
            unsafe { floats.part(start..start + block.len) }
        };
        for span in &plan.spans {
            let writes = &plan.writes[span.writes.clone()];
            let Some((first, rest)) = writes.split_first() else {
                continue;
            };
            let mut state = part(first.state);
            match span.before {
                Some(before) => state.copy_from_slice(part(before)),
                None => state.fill(0.0),
            }
            let step = |state: &mut [f32], range: Range<usize>| {
                let out = |row: usize| {
                    // SAFETY: each row's columns belong to one task, which holds those of one row at a time.
                    unsafe { out.part(block.out_columns(row)) }
                };
                block.run(isa, state, rows, range, out);
            };
            step(state, span.rows.start..first.row);
            let mut row = first.row;
            for write in rest {
                let next = part(write.state);
                next.copy_from_slice(state);
                state = next;
                step(state, row..write.row);
                row = write.row;
            }
        }
    };
    pool.guided(heads.value_heads * blocks, 1, |tasks| tasks.for_each(&run));
}

/// Columns of a head's state that are computed together: with 128 rows half of a first cache of 32 KiB, beside the keys,
/// queries and values of the tokens; as many as make four vectors.
fn block_columns(isa: Isa) -> usize {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        crate::isa::Level::Avx512 => BLOCK_COLUMNS_MAX,
        _ => BLOCK_COLUMNS_MAX / 2,
    }
}

/// Some columns of one head.
struct HeadBlock {
    rule: ScanRule,
    head: usize,
    /// Columns of a row of the scan, and of all values.
    cols: usize,
    value_cols: usize,
    /// Gates of a row.
    gates: usize,
    /// Where the queries, the keys and the values of the block begin in a row.
    query: Range<usize>,
    key: Range<usize>,
    value: Range<usize>,
    /// Where the block begins in a row of the output.
    column: usize,
    /// Where the block begins in the recurrent part of a state, and its entries.
    start: usize,
    len: usize,
}

impl HeadBlock {
    fn new(heads: &ScanShape, width: usize, head: usize, block: usize) -> Self {
        let (key_dim, value_dim) = (heads.key_dim, heads.value_dim);
        let first = block * width;
        let columns = width.min(value_dim - first);
        let (keys, values) = (heads.key_heads * key_dim, heads.value_cols());
        let within = heads.key_head(head) * key_dim;
        let column = head * value_dim + first;
        let (query, key, value) = match heads.rule {
            ScanRule::Delta => (within, keys + within, 2 * keys + column),
            ScanRule::Linear => (values + keys + within, values + within, column),
        };
        Self {
            rule: heads.rule,
            head,
            cols: heads.cols(),
            value_cols: heads.value_cols(),
            gates: 2 * heads.value_heads,
            query: query..query + key_dim,
            key: key..key + key_dim,
            value: value..value + columns,
            column,
            start: column * key_dim,
            len: columns * key_dim,
        }
    }

    fn out_columns(&self, row: usize) -> Range<usize> {
        let start = row * self.value_cols + self.column;
        start..start + self.value.len()
    }

    /// The rows `range`, one after another; `out` gives the block's columns of a row.
    fn run<'a>(
        &self,
        isa: Isa,
        state: &mut [f32],
        rows: ScanRows<'_>,
        range: Range<usize>,
        out: impl Fn(usize) -> &'a mut [f32],
    ) {
        let vectors = |row: usize| {
            let mixed = &rows.mixed[row * self.cols..][..self.cols];
            [&self.key, &self.query, &self.value].map(|part| &mixed[part.clone()])
        };
        let gates = |row: usize| {
            let gates = &rows.gates[row * self.gates + 2 * self.head..];
            [gates[0], gates[1]]
        };
        if self.rule == ScanRule::Linear {
            range.for_each(|row| linear_step(isa, state, vectors(row), gates(row), out(row)));
            return;
        }
        let next = |row: usize| {
            let ([key, ..], [decay, _]) = (vectors(row), gates(row));
            (key, decay)
        };
        let mut known = [0.0; BLOCK_COLUMNS_MAX];
        let known = &mut known[..self.value.len()];
        if !range.is_empty() {
            let (key, decay) = next(range.start);
            delta_start(isa, state, key, decay, known);
        }
        for row in range.clone() {
            let next = (row + 1 < range.end).then(|| next(row + 1));
            let [_, rate] = gates(row);
            delta_step(isa, state, vectors(row), rate, next, known, out(row));
        }
    }
}

by_isa! {
    reference::delta_start, crate::arch::recurrent::delta_start;
    fn delta_start(state: &mut [f32], key: &[f32], decay: f32, known: &mut [f32])
}

by_isa! {
    reference::delta_step, crate::arch::recurrent::delta_step;
    fn delta_step(
        state: &mut [f32],
        vectors: [&[f32]; 3],
        rate: f32,
        next: Option<(&[f32], f32)>,
        known: &mut [f32],
        out: &mut [f32],
    )
}

by_isa! {
    reference::linear_step, crate::arch::recurrent::linear_step;
    fn linear_step(state: &mut [f32], vectors: [&[f32]; 3], gate: [f32; 2], out: &mut [f32])
}

/// Floats in a cache line: parts of states begin at one.
const LINE_FLOATS: usize = 16;

/// Sizes of a sequence's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Recurrent layers.
    pub layers: usize,
    /// Inputs of the convolution that are kept: one less than its taps.
    pub conv_rows: usize,
    /// Columns of the convolution.
    pub conv_cols: usize,
    /// Entries of the recurrent part, all heads together.
    pub scan_len: usize,
}

impl StateShape {
    /// Floats of one layer's state.
    fn layer_len(&self) -> usize {
        self.scan_start() + self.scan_len.next_multiple_of(LINE_FLOATS)
    }

    /// Where the recurrent part begins.
    fn scan_start(&self) -> usize {
        (self.conv_rows * self.conv_cols).next_multiple_of(LINE_FLOATS)
    }

    /// Where the part of a layer begins in a state.
    fn start(&self, state: u32, layer: usize) -> usize {
        (state as usize * self.layers + layer) * self.layer_len()
    }

    /// Bytes of one state, all layers; `None` if they overflow.
    pub fn bytes(&self) -> Option<usize> {
        let conv = self.conv_rows.checked_mul(self.conv_cols)?;
        let conv = conv.checked_next_multiple_of(LINE_FLOATS)?;
        let scan = self.scan_len.checked_next_multiple_of(LINE_FLOATS)?;
        let layer = conv.checked_add(scan)?.checked_mul(size_of::<f32>())?;
        layer.checked_mul(self.layers)
    }
}

/// The states of all sequences, shape `(states, layers, ...)`. Touched only as used.
pub struct StateStore {
    shape: StateShape,
    states: usize,
    floats: ZeroedBuffer<f32>,
}

impl StateStore {
    /// Memory for `states` states.
    ///
    /// # Panics
    /// If the size in bytes overflows.
    pub fn new(shape: StateShape, states: usize) -> Self {
        let len = shape.bytes().and_then(|bytes| bytes.checked_mul(states));
        let len = len.expect("states in bytes") / size_of::<f32>();
        Self {
            shape,
            states,
            floats: ZeroedBuffer::new(len),
        }
    }

    /// The shape of a state.
    pub fn shape(&self) -> &StateShape {
        &self.shape
    }

    /// Number of states.
    pub fn states(&self) -> usize {
        self.states
    }

    /// Bytes with every state used.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.floats[..])
    }
}
