//! Row-wise arithmetic. (Stub.)

use crate::Isa;

/// `out = x / rms(x) * weight`, one row.
pub fn rms_norm(_isa: Isa, _x: &[f32], _weight: &[f32], _eps: f32, _out: &mut [f32]) {
    todo!()
}
/// `x += y`.
pub fn add_assign(_isa: Isa, _x: &mut [f32], _y: &[f32]) {
    todo!()
}
/// `gate = silu(gate) * up`.
pub fn silu_mul(_isa: Isa, _gate: &mut [f32], _up: &[f32]) {
    todo!()
}
/// `gate = gelu_tanh(gate) * up`.
pub fn gelu_mul(_isa: Isa, _gate: &mut [f32], _up: &[f32]) {
    todo!()
}
/// `x = cap * tanh(x / cap)`.
pub fn softcap(_isa: Isa, _x: &mut [f32], _cap: f32) {
    todo!()
}
