//! Formats against hand-computed blocks, an independent implementation, and their own inverse.

use super::*;
use crate::Format;
use Format::*;
use proptest::prelude::*;

/// Formats that are written.
pub(crate) const FORMATS: [Format; 16] = [
    F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS,
    MXFP4,
];

const ONE: [u8; 2] = [0x00, 0x3c];
const TWO: [u8; 2] = [0x00, 0x40];

/// Bytes of a block from its fields in order: `(how many, byte)`.
fn bytes(fields: &[(usize, &[u8])]) -> Vec<u8> {
    fields
        .iter()
        .flat_map(|(times, bytes)| bytes.repeat(*times))
        .collect()
}

/// One block, and the weights expected at some places.
#[track_caller]
fn check(label: &str, format: Format, raw: &[u8], expected: &[(usize, f32)]) {
    let mut out = vec![f32::NAN; format.block_weights() * raw.len() / format.block_bytes()];
    dequantize(format, raw, &mut out);
    for &(e, value) in expected {
        assert_eq!(out[e], value, "{label}: weight {e}");
    }
}

#[test]
fn hand_computed_blocks_match_ggml() {
    check("f32 -1.5", F32, &(-1.5f32).to_le_bytes(), &[(0, -1.5)]);
    check("f16 2", F16, &TWO, &[(0, 2.0)]);
    check(
        "bf16 is the upper half of an f32",
        BF16,
        &[0x80, 0xbf],
        &[(0, -1.0)],
    );
    let raw = bytes(&[(1, &TWO), (16, &[0x2f])]);
    check(
        "q4_0: low nibbles first, minus 8",
        Q4_0,
        &raw,
        &[(0, 14.0), (15, 14.0), (16, -12.0)],
    );
    let raw = bytes(&[(1, &TWO), (1, &ONE), (16, &[0x2f])]);
    check(
        "q4_1: times d plus m",
        Q4_1,
        &raw,
        &[(0, 31.0), (16, 5.0), (31, 5.0)],
    );
    let raw = bytes(&[(1, &ONE), (1, &[1, 0, 0, 0x80]), (16, &[0x2f])]);
    let expected = [(0, 15.0), (1, -1.0), (30, -14.0), (31, 2.0)];
    check(
        "q5_0: fifth bits in order of weights, minus 16",
        Q5_0,
        &raw,
        &expected,
    );
    let raw = bytes(&[(1, &ONE), (1, &TWO), (1, &[1, 0, 0, 0x80]), (16, &[0x2f])]);
    let expected = [(0, 33.0), (1, 17.0), (30, 4.0), (31, 20.0)];
    check("q5_1: times d plus m", Q5_1, &raw, &expected);
    let raw = bytes(&[(1, &TWO), (31, &[0x80]), (1, &[127])]);
    check(
        "q8_0: signed bytes",
        Q8_0,
        &raw,
        &[(0, -256.0), (31, 254.0)],
    );
}

#[test]
fn hand_computed_mxfp4_blocks_match_ggml() {
    let raw = bytes(&[(1, &[128]), (16, &[0x9f])]);
    let expected = [(0, -12.0), (15, -12.0), (16, -1.0), (31, -1.0)];
    check("mxfp4: low nibbles first", MXFP4, &raw, &expected);
    for (byte, scale) in [
        (0, f32::from_bits(1 << 21)),
        (1, f32::from_bits(1 << 22)),
        (2, f32::MIN_POSITIVE),
        (127, 0.5),
        (254, 2f32.powi(126)),
        (255, 2f32.powi(127)),
    ] {
        let raw = bytes(&[(1, &[byte]), (16, &[0x19])]);
        let expected = [(0, -scale), (16, scale)];
        check("mxfp4: powers of two", MXFP4, &raw, &expected);
    }
}

#[test]
fn hand_computed_2_and_3_bit_blocks_match_ggml() {
    // Scale 3 and min 1 for the first 16 weights, scale 15 and min 15 for the last.
    let raw = bytes(&[
        (1, &[0x13]),
        (14, &[0]),
        (1, &[0xff]),
        (64, &[0xe4]),
        (1, &ONE),
        (1, &TWO),
    ]);
    let expected = [(0, -2.0), (15, -2.0), (16, 0.0), (255, 15.0 * 3.0 - 30.0)];
    check(
        "q2_k: bits 0-1 of a byte, then 2-3 32 weights on",
        Q2_K,
        &raw,
        &expected,
    );
    // ScaleKind: low nibbles 1 in byte 0 (scale 0) and 2 above (scale 8); high bits 10 for 0, 4, 8, 12.
    let scales = bytes(&[(1, &[0x21]), (7, &[0]), (1, &[0xaa]), (3, &[0])]);
    let raw = bytes(&[
        (1, &[0x11]),
        (31, &[0]),
        (64, &[0x02]),
        (1, &scales),
        (1, &ONE),
    ]);
    let expected = [
        (0, 2.0),
        (1, -2.0),
        (16, 64.0),
        (128, 4.0),
        (129, -4.0),
        (32, 128.0),
    ];
    check(
        "q3_k: high bit clear means minus 4, scales minus 32",
        Q3_K,
        &raw,
        &expected,
    );
}

#[test]
fn hand_computed_blocks_with_6_bit_scales_match_ggml() {
    // Scale 0 is 63, scale 4 is 0x35 (its top bits 3 above scale 0); min 4 is 0x1a.
    let scales: [u8; 12] = [0xff, 0, 0, 0, 0x41, 0, 0, 0, 0xa5, 0, 0, 0];
    let raw = bytes(&[(1, &ONE), (1, &TWO), (1, &scales), (128, &[0x21])]);
    let expected = [
        (0, 61.0),
        (32, 0.0),
        (128, 53.0 - 52.0),
        (159, 53.0 - 52.0),
        (160, 0.0),
    ];
    check("q4_k: six-bit scales and mins", Q4_K, &raw, &expected);
    let raw = bytes(&[
        (1, &ONE),
        (1, &TWO),
        (1, &scales),
        (1, &[0x11]),
        (31, &[0]),
        (128, &[0x21]),
    ]);
    let expected = [
        (0, 17.0 * 63.0 - 2.0),
        (1, 61.0),
        (128, 17.0 * 53.0 - 52.0),
        (129, 1.0),
    ];
    check("q5_k: fifth bits by group of 32", Q5_K, &raw, &expected);
    let scales = bytes(&[(1, &[1]), (14, &[0xff]), (1, &[0x80])]);
    let raw = bytes(&[
        (128, &[0xf0]),
        (64, &[0b11_10_01_00]),
        (1, &scales),
        (1, &TWO),
    ]);
    let expected = [
        (0, -64.0),
        (32, 32.0),
        (64, -30.0),
        (96, -62.0),
        (255, 31.0 * -256.0),
    ];
    check(
        "q6_k: two high bits, minus 32, signed scales",
        Q6_K,
        &raw,
        &expected,
    );
}

/// Three blocks (96 floats) of arbitrary bytes, with f16 numbers of moderate size at `halves`.
fn arbitrary_raw(format: Format, halves: &[usize]) -> Vec<u8> {
    let mut state = 12345u32;
    let mut raw = Vec::new();
    for block in 0..if halves.is_empty() { 96 } else { 3u16 } {
        let start = raw.len();
        for _ in 0..format.block_bytes() {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12345);
            raw.push((state >> 16) as u8);
        }
        for (k, &at) in (0u16..).zip(halves) {
            let sign = if block == 1 { 0x8000 } else { 0 };
            let half = 0x2c00 + sign + 37 * block + 5 * k;
            raw[start + at..][..2].copy_from_slice(&half.to_le_bytes());
        }
        if halves.is_empty() {
            *raw.last_mut().expect("a block has bytes") &= 0x3f;
        }
    }
    raw
}

fn fnv1a(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The hashes are of what the Python package gguf 0.19 makes of the same bytes; for the IQ formats llama.cpp's own
/// `dequantize_row_*` was compared, too.
#[test]
fn arbitrary_blocks_dequantize_like_the_gguf_package() {
    let rows: [(Format, &[usize], u64); 21] = [
        (F32, &[], 0x33a2_7d97_0269_83ad),
        (F16, &[], 0xeede_15c3_a1ce_3eaf),
        (BF16, &[], 0xdb40_53b8_e833_8b0d),
        (Q4_0, &[0], 0x781a_64be_b459_7cba),
        (Q4_1, &[0, 2], 0x1c9b_bb4a_f44a_957d),
        (Q5_0, &[0], 0xa9e9_763b_76fc_e46a),
        (Q5_1, &[0, 2], 0x9b04_09e1_0925_8e7c),
        (Q8_0, &[0], 0xda35_c28f_5aad_c0bd),
        (Q2_K, &[80, 82], 0x0666_d260_70d1_6a47),
        (Q3_K, &[108], 0xba7e_cc70_00d4_5f5d),
        (Q4_K, &[0, 2], 0x5c19_b85e_43a5_deed),
        (Q5_K, &[0, 2], 0xa375_6a46_0b57_89d7),
        (Q6_K, &[208], 0x06ee_f4f7_675a_0f77),
        (IQ4_NL, &[0], 0x71ba_b1e6_9e12_2a23),
        (IQ4_XS, &[0], 0x582d_5e67_2b5b_a665),
        (IQ3_S, &[0], 0xe6fb_55bf_d075_ec35),
        (IQ3_XXS, &[0], 0xfed5_ac9c_1d72_6041),
        (IQ2_S, &[0], 0x5c8a_4134_04ac_b9b9),
        (IQ2_XS, &[0], 0x04e7_4a4e_23b8_b690),
        (IQ2_XXS, &[0], 0x18bc_1bdd_383c_c394),
        (MXFP4, &[], 0x9b98_b961_fa4f_277a),
    ];
    for (format, halves, expected) in rows {
        let raw = arbitrary_raw(format, halves);
        let mut out = vec![0.0; raw.len() / format.block_bytes() * format.block_weights()];
        dequantize(format, &raw, &mut out);
        assert_eq!(fnv1a(&out), expected, "{format:?}");
    }
}

/// The largest error of a format, as a part of the largest weight of its block: half a step
/// (a whole one at the clipped end), and for super-blocks what rounding the scales adds.
fn error_bound(format: Format) -> f32 {
    match format {
        F32 => 0.0,
        F16 => 1.0 / 2048.0,
        BF16 => 1.0 / 256.0,
        Q4_0 => 1.01 / 8.0,
        Q4_1 => 1.02 / 15.0,
        Q5_0 => 1.01 / 16.0,
        Q5_1 => 1.02 / 31.0,
        Q8_0 => 0.51 / 127.0,
        Q2_K => 0.5,
        Q3_K => 0.32,
        Q4_K => 0.1,
        Q5_K => 0.07,
        Q6_K => 0.045,
        IQ4_NL => 0.14,
        IQ4_XS => 0.16,
        MXFP4 => 0.251,
        _ => unreachable!("{format:?} is not written"),
    }
}

proptest! {
    #[test]
    fn quantized_weights_are_within_one_step(
        weights in prop::collection::vec(-1.0f32..1.0, 512),
        log_size in -8i32..8,
    ) {
        let size = (log_size as f32).exp2();
        let weights: Vec<f32> = weights.iter().map(|w| w * size).collect();
        for format in FORMATS {
            let mut back = vec![0.0; weights.len()];
            dequantize(format, &quantize(format, &weights), &mut back);
            for (e, (a, b)) in weights.iter().zip(&back).enumerate() {
                prop_assert!((a - b).abs() <= error_bound(format) * size, "{format:?} {e}: {a} {b}");
            }
        }
    }

    #[test]
    fn decoded_block_encodes_to_its_bytes(
        raw in prop::collection::vec(any::<u8>(), 210),
    ) {
        for format in FORMATS.into_iter().filter(|format| QuantFormat::of(*format).is_some()) {
            let raw = &raw[..format.block_bytes()];
            let mut block = QuantBlock::default();
            block.decode(format, raw);
            let mut again = vec![0; raw.len()];
            block.encode(format, &mut again);
            prop_assert_eq!(raw, &again, "{:?}", format);
        }
    }
}

#[test]
fn non_finite_weights_quantize_without_a_panic() {
    for (label, value) in [
        ("nan", f32::NAN),
        ("inf", f32::INFINITY),
        ("huge", f32::MAX),
        ("zero", 0.0),
    ] {
        for format in FORMATS {
            let mut weights = vec![0.25; 256];
            weights[17] = value;
            let mut out = vec![0.0; 256];
            dequantize(format, &quantize(format, &weights), &mut out);
            if value == 0.0 {
                assert!((out[17]).abs() <= error_bound(format), "{label} {format:?}");
            }
        }
    }
}
