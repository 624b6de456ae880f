//! Reference implementations of the row-wise operations.

use crate::layout::{SWIGLU_ALPHA, SWIGLU_LIMIT};

/// `sqrt(2 / pi)`.
const GELU_FACTOR: f32 = 0.797_884_6;
const GELU_CUBIC: f32 = 0.044_715;

pub(super) fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().map(|x| x * x).sum()
}

pub(super) fn product(x: &[f32], weight: &[f32], factor: f32, out: &mut [f32]) {
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * factor * weight;
    }
}

pub(super) fn product_in_place(x: &mut [f32], weight: &[f32], factor: f32) {
    for (x, weight) in x.iter_mut().zip(weight) {
        *x *= factor;
        *x *= weight;
    }
}

pub(super) fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

pub(super) fn add_product(x: &mut [f32], y: &[f32], factor: f32) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y * factor;
    }
}

pub(super) fn add_products(x: &mut [f32], a: &[f32], b: &[f32]) {
    for ((x, a), b) in x.iter_mut().zip(a).zip(b) {
        *x += a * b;
    }
}

pub(super) fn silu_in_place(x: &mut [f32]) {
    for x in x {
        *x /= 1.0 + (-*x).exp();
    }
}

pub(super) fn quick_gelu_in_place(x: &mut [f32]) {
    for x in x {
        *x /= 1.0 + (-(SWIGLU_ALPHA * *x)).exp();
    }
}

pub(super) fn sigmoid(x: &mut [f32], gate: &[f32]) {
    for (x, gate) in x.iter_mut().zip(gate) {
        *x /= 1.0 + (-gate).exp();
    }
}

pub(super) fn exp_shifted(x: &mut [f32], shift: f32) {
    for x in x {
        *x = (*x - shift).exp();
    }
}

pub(super) fn scale(x: &mut [f32], factor: f32) {
    for x in x {
        *x *= factor;
    }
}

pub(super) fn silu(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = *gate / (1.0 + (-*gate).exp()) * up;
    }
}

/// The bound does not hide a NaN.
pub(super) fn squared_relu(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        let x = if *gate < 0.0 { 0.0 } else { *gate };
        *gate = x * x * up;
    }
}

/// Bounds do not hide a NaN.
pub(super) fn clamped_swiglu(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        let x = if *gate > SWIGLU_LIMIT {
            SWIGLU_LIMIT
        } else {
            *gate
        };
        let up = up.clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT);
        *gate = x / (1.0 + (-(SWIGLU_ALPHA * x)).exp()) * (up + 1.0);
    }
}

/// `0.5 x (1 + tanh(u))` is `x / (1 + e^-2u)`.
pub(super) fn gelu(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        let x = *gate;
        let u = GELU_FACTOR * (x + GELU_CUBIC * x * x * x);
        *gate = x / (1.0 + (-2.0 * u).exp()) * up;
    }
}

pub(super) fn softcap(x: &mut [f32], cap: f32) {
    for x in x {
        *x = cap * (*x / cap).tanh();
    }
}
