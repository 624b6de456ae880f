//! Keys and values in pages: how each storage format rounds, and the bytes of a page.

use crate::operation::{CacheShape, SCALE_GROUP};
use half::f16;
use kernels::KvKind;

/// Multiples of the scale that the largest of a group may become in 4 bits.
const SIZES: [f32; 3] = [-8.0, -7.5, -7.0];

/// A scale, and the multiples of it.
type Group = (f16, Vec<i8>);

/// The elements of a head as they are read again.
pub(crate) fn rounded(kind: KvKind, head: &[f32]) -> Vec<f32> {
    match kind {
        KvKind::F16 => head.iter().map(|x| f16::from_f32(*x).to_f32()).collect(),
        KvKind::Q8_0 | KvKind::Q4_0 => {
            let groups = head.chunks(SCALE_GROUP as usize).map(|x| group(kind, x));
            let values = groups.flat_map(|(scale, quants)| {
                let quants = quants.into_iter();
                quants.map(move |quant| f32::from(quant) * scale.to_f32())
            });
            values.collect()
        }
    }
}

/// The nearest multiples of a scale of 11 bits: in 8 bits it is the largest element divided by 127, in 4 bits one of three with
/// the least squared error.
fn group(kind: KvKind, x: &[f32]) -> Group {
    let largest = |most: f32, x: &f32| if x.abs() > most.abs() { *x } else { most };
    let most = x.iter().fold(0.0, largest);
    if kind == KvKind::Q8_0 {
        return multiples(x, f16::from_f32(most.abs() / 127.0), (-127.0, 127.0));
    }
    let groups = SIZES.map(|size| multiples(x, f16::from_f32(most / size), (-8.0, 7.0)));
    let error = |(scale, quants): &Group| -> f32 {
        let pairs = quants.iter().zip(x);
        let off = pairs.map(|(quant, x)| f32::from(*quant) * scale.to_f32() - x);
        off.map(|off| off * off).sum()
    };
    let [first, second, third] = groups;
    let better = |a: Group, b: Group| if error(&b) < error(&a) { b } else { a };
    better(better(first, second), third)
}

fn multiples(x: &[f32], scale: f16, (least, most): (f32, f32)) -> Group {
    let step = scale.to_f32();
    let inverse = if step == 0.0 { 0.0 } else { 1.0 / step };
    let quants = x.iter().map(|x| {
        let near = (x * inverse).clamp(least, most);
        near.round_ties_even() as i8
    });
    (scale, quants.collect())
}

/// The bytes of one part of a page, keys or values, `(kv_heads, page_tokens, stride)`.
pub(crate) fn bytes_of(shape: &CacheShape, part: &[f32]) -> Vec<u8> {
    let (stride, kind) = (shape.stride() as usize, shape.kind);
    let mut bytes = Vec::new();
    for block in part.chunks(stride * shape.page_tokens as usize) {
        let mut scales = Vec::new();
        for row in block.chunks(stride) {
            if kind == KvKind::F16 {
                bytes.extend(row.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()));
                continue;
            }
            let first = scales.len();
            for x in row.chunks(SCALE_GROUP as usize) {
                let (scale, quants) = group(kind, x);
                scales.extend(scale.to_le_bytes());
                if kind == KvKind::Q8_0 {
                    bytes.extend(quants.iter().map(|quant| *quant as u8));
                } else {
                    let pairs = quants.as_chunks::<2>().0.iter();
                    bytes.extend(pairs.map(|[a, b]| *a as u8 & 15 | (*b as u8) << 4));
                }
            }
            scales.resize(first + shape.scale_words() as usize * 4, 0);
        }
        bytes.extend(scales);
    }
    bytes
}

/// The elements in the bytes of one part of a page.
pub(crate) fn values_of(shape: &CacheShape, bytes: &[u8]) -> Vec<f32> {
    let (tokens, row) = (shape.page_tokens as usize, shape.row_words() as usize * 4);
    let scale_bytes = shape.scale_words() as usize * 4;
    let mut values = Vec::new();
    for block in bytes.chunks(tokens * (row + scale_bytes)) {
        let (rows, scales) = block.split_at(tokens * row);
        for (slot, row) in rows.chunks(row).enumerate() {
            let half = |pair: &[u8; 2]| f16::from_le_bytes(*pair).to_f32();
            if shape.kind == KvKind::F16 {
                values.extend(row.as_chunks::<2>().0.iter().map(half));
                continue;
            }
            let scales = scales[slot * scale_bytes..][..scale_bytes]
                .as_chunks::<2>()
                .0;
            let quants: Vec<i8> = match shape.kind {
                KvKind::Q8_0 => row.iter().map(|byte| *byte as i8).collect(),
                _ => row
                    .iter()
                    .flat_map(|byte| [(*byte << 4) as i8 >> 4, *byte as i8 >> 4])
                    .collect(),
            };
            let groups = quants.chunks(SCALE_GROUP as usize).zip(scales);
            values.extend(groups.flat_map(|(quants, scale)| {
                quants
                    .iter()
                    .map(move |quant| f32::from(*quant) * half(scale))
            }));
        }
    }
    values
}
