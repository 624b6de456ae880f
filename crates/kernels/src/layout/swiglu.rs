//! Constants of the clamped SwiGLU of gpt-oss.

/// Bound of the gate from above, and of the magnitude of what it multiplies.
pub(crate) const SWIGLU_LIMIT: f32 = 7.0;
/// Factor of the gate in the sigmoid.
pub(crate) const SWIGLU_ALPHA: f32 = 1.702;
