//! Reference implementation of AMX attention in plain Rust, with the same bits.

use super::{AttentionFixture, LAYER};
use crate::arch::amx_attention::{EXP2_COEFFICIENTS, EXP2_MIN};
use crate::kv::{KvBlock, LANES, SCALE_GROUP};
use crate::{Isa, KV_SPLIT_SLOTS, QueryRow};
use half::f16;
use std::ops::Range;

/// Elements and slots that one instruction adds.
const DEPTH: usize = 2 * LANES;

/// The nearest bf16, ties away from zero.
pub(in crate::attention) fn nearest(x: f32) -> f32 {
    f32::from_bits(x.to_bits().wrapping_add(0x8000) & 0xffff_0000)
}

/// The number truncated to bf16.
fn cut(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & 0xffff_0000)
}

/// The instruction flushes denormals to zero.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0 } else { x }
}

/// Adds 32 products: the first sixteen and the last sixteen separately, then both sums.
pub(in crate::attention) fn add(sum: &mut f32, a: &[f32], b: &[f32]) {
    let half = |range: Range<usize>| {
        let pairs = a[range.clone()].iter().zip(&b[range]);
        pairs.fold(0.0f32, |sum, (a, b)| flush(*a).mul_add(flush(*b), sum))
    };
    *sum += half(0..LANES) + half(LANES..DEPTH);
}

/// `e^(score - max)` for `base = -max log2(e)`.
pub(super) fn weight(score: f32, base: f32) -> f32 {
    weight_of_two(score.mul_add(std::f32::consts::LOG2_E, base))
}

/// `2^x`.
pub(in crate::attention) fn weight_of_two(x: f32) -> f32 {
    let x = x.max(EXP2_MIN);
    let f = x - x.floor();
    let p = EXP2_COEFFICIENTS
        .iter()
        .skip(1)
        .fold(EXP2_COEFFICIENTS[0], |p, c| p.mul_add(f, *c));
    let p = p.mul_add(f, 1.0);
    (f64::from(p) * f64::from(x.floor()).exp2()) as f32
}

/// Keys and values of one head as floats.
struct Sequence<'a> {
    world: &'a AttentionFixture,
    row: usize,
    kv_head: usize,
    slots: usize,
}

impl Sequence<'_> {
    /// The high and the low part of a key.
    fn key(&self, page: usize, slot: usize) -> [Vec<f32>; 2] {
        let dim = self.world.kv.shape().head_dim;
        let key = |d: usize| match self.block(page) {
            _ if d >= dim => 0.0,
            KvBlock::F16 { keys, .. } => f16::from_bits(keys[d * self.slots + slot]).to_f32(),
            KvBlock::Q8 { keys, .. } => {
                let quant = keys.quants[(d / 4 * self.slots + slot) * 4 + d % 4];
                self.scaled(quant, keys.scales[d / SCALE_GROUP * self.slots + slot])
            }
            KvBlock::Q4 { keys, .. } => {
                let quant = keys.quant((d / 4 * self.slots + slot) * 4 + d % 4);
                self.scaled(quant, keys.scales[d / SCALE_GROUP * self.slots + slot])
            }
        };
        let keys = (0..dim.next_multiple_of(DEPTH)).map(key);
        let high = keys.clone().map(cut).collect();
        [high, keys.map(|key| nearest(key - cut(key))).collect()]
    }

    fn value(&self, page: usize, slot: usize, element: usize) -> f32 {
        let at = slot * self.world.kv.padded().1 + element;
        nearest(match self.block(page) {
            KvBlock::F16 { values, .. } => f16::from_bits(values[at]).to_f32(),
            KvBlock::Q8 { values, .. } => {
                let scale = values.scales[element / SCALE_GROUP * self.slots + slot];
                self.scaled(values.quants[at], scale)
            }
            KvBlock::Q4 { values, .. } => {
                let scale = values.scales[element / SCALE_GROUP * self.slots + slot];
                self.scaled(values.quant(at), scale)
            }
        })
    }

    fn scaled(&self, quant: i8, scale: u16) -> f32 {
        f32::from(quant) * f16::from_bits(scale).to_f32()
    }

    fn block(&self, page: usize) -> KvBlock<'_> {
        let table = &self.world.tables[self.world.rows[self.row].pages.clone()];
        self.world.kv.block(LAYER, table[page], self.kv_head)
    }
}

/// Maximum score, sum of weights, and weighted values.
struct Part {
    max: f32,
    sum: f32,
    values: Vec<f32>,
}

/// All heads of a row.
pub(super) fn row(world: &AttentionFixture, row: usize) -> Vec<f32> {
    let (shape, params) = (world.kv.shape(), &world.params);
    let (dim, group) = (shape.head_dim, params.heads / shape.kv_heads);
    let mut out = Vec::new();
    for head in 0..params.heads {
        let sequence = Sequence {
            world,
            row,
            kv_head: head / group,
            slots: world.kv.padded().0,
        };
        let query = &world.q[(row * params.heads + head) * dim..][..dim];
        let mut query: Vec<f32> = query.iter().map(|x| x * params.scale).collect();
        query.resize(dim.next_multiple_of(DEPTH), 0.0);
        let QueryRow { position, end, .. } = world.rows[row];
        let window = params.window;
        let first = window.map_or(0, |window| position.saturating_sub(window.before));
        let end = window.map_or(end, |window| end.min(position + window.after + 1));
        let split_pages = KV_SPLIT_SLOTS / sequence.slots;
        let tokens = split_pages * shape.page_tokens;
        let mut whole = Part {
            max: f32::NEG_INFINITY,
            sum: 0.0,
            values: vec![0.0; dim],
        };
        for split in first / tokens..end.div_ceil(tokens) {
            let visible = first.max(split * tokens)..end.min((split + 1) * tokens);
            merge(
                &mut whole,
                &part(&sequence, &query, &visible, split * split_pages),
            );
        }
        let sink = params.sinks.map(|sinks| (sinks[head] - whole.max).exp());
        let sum = sink.map_or(whole.sum, |sink| whole.sum + sink);
        let factor = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        out.extend(whole.values.iter().map(|value| value * factor));
    }
    out
}

/// The partial result of one KV split; `first_page` is the split's first page.
fn part(sequence: &Sequence<'_>, query: &[f32], visible: &Range<usize>, first_page: usize) -> Part {
    let shape = sequence.world.kv.shape();
    let high: Vec<f32> = query.iter().map(|x| nearest(*x)).collect();
    let low: Vec<f32> = query
        .iter()
        .zip(&high)
        .map(|(x, high)| nearest(x - high))
        .collect();
    let place = |at: usize| (at / shape.page_tokens, at % shape.page_tokens);
    let mut scores = [f32::NEG_INFINITY; KV_SPLIT_SLOTS];
    let mut slots = Vec::new();
    for at in visible.clone() {
        let (page, slot) = place(at);
        let at = (page - first_page) * sequence.slots + slot;
        let [key_high, key_low] = sequence.key(page, slot);
        let mut sum = 0.0;
        for d in (0..query.len()).step_by(DEPTH) {
            for (query, key) in [(&low, &key_high), (&high, &key_high), (&high, &key_low)] {
                add(&mut sum, &query[d..d + DEPTH], &key[d..d + DEPTH]);
            }
        }
        let mut score = [sum; LANES];
        if let Some(cap) = sequence.world.params.softcap {
            crate::softcap(Isa::best(), &mut score, cap);
        }
        scores[at] = score[0];
        slots.push((at, page, slot));
    }
    let max = scores
        .iter()
        .fold(f32::NEG_INFINITY, |most, score| most.max(*score));
    let base = crate::layout::softmax_shift(max) * -std::f32::consts::LOG2_E;
    let weights = scores.map(|score| nearest(weight(score, base)));
    let mut sums = [0.0; LANES];
    weights
        .iter()
        .enumerate()
        .for_each(|(at, weight)| sums[at % LANES] += weight);
    for half in [8, 4, 2, 1] {
        (0..half).for_each(|lane| sums[lane] += sums[lane + half]);
    }
    let values = (0..shape.head_dim).map(|element| {
        let mut values = [0.0; KV_SPLIT_SLOTS];
        for (at, page, slot) in &slots {
            values[*at] = sequence.value(*page, *slot, element);
        }
        let mut sum = 0.0;
        for at in (0..KV_SPLIT_SLOTS).step_by(DEPTH) {
            add(&mut sum, &weights[at..at + DEPTH], &values[at..at + DEPTH]);
        }
        sum
    });
    Part {
        max,
        sum: sums[0],
        values: values.collect(),
    }
}

fn merge(whole: &mut Part, part: &Part) {
    if part.max == f32::NEG_INFINITY {
        return;
    }
    let most = whole.max.max(part.max);
    let (old, new) = ((whole.max - most).exp(), (part.max - most).exp());
    whole.max = most;
    whole.sum = whole.sum * old + part.sum * new;
    for (whole, part) in whole.values.iter_mut().zip(&part.values) {
        *whole = whole.mul_add(old, part * new);
    }
}

#[test]
fn softmax_weights_are_within_their_bound() {
    for i in 0..200_000 {
        let x = -(i as f32) * 4e-4;
        let (found, wanted) = (f64::from(weight(x, 0.0)), f64::from(x).exp());
        let off = (found / wanted - 1.0).abs();
        // Error of the polynomial plus rounding of the exponent.
        let bound = (-18.0f64).exp2() + f64::from(x.abs()) * 1e-7;
        assert!(off <= bound, "e^{x} is {wanted}, not {found}");
    }
    assert_eq!(weight(f32::NEG_INFINITY, 0.0), 0.0);
    assert_eq!(weight(0.0, 0.0), 1.0);
}
