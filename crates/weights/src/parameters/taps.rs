//! Parameters that recurrent layers of several kinds have.

use super::linear::Names;
use super::tensors::Tensors;
use crate::LoadError;

/// The taps of a convolution of `cols` columns, as `(taps, cols)`.
pub(super) fn load_taps<T: Tensors>(
    tensors: &mut T,
    name: &str,
    cols: usize,
    taps: usize,
) -> Result<Vec<f32>, LoadError> {
    let by_column = tensors.table(name, cols, taps)?;
    let of_tap = |tap: usize| by_column.iter().skip(tap).step_by(taps).copied();
    Ok((0..taps).flat_map(of_tap).collect())
}

/// The factor of each head's decay; with a positive one a state would grow without bound.
pub(super) fn load_decay_factor<T: Tensors>(
    tensors: &mut T,
    names: &Names,
    heads: usize,
) -> Result<Vec<f32>, LoadError> {
    let tensor = format!("blk.{}.ssm_a", names.layer);
    let factors = tensors.per_head(&tensor, heads)?;
    match factors.iter().position(|&factor| factor > 0.0) {
        Some(index) => Err(LoadError::Value { tensor, index }),
        None => Ok(factors),
    }
}
