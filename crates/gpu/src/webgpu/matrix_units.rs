//! Matrix units of a device, as kernels use them.

use wgpu::{Adapter, CooperativeMatrixProperties, CooperativeScalarType, Features};

/// Properties of matrix units that kernels need.
pub(super) const FEATURES: Features =
    Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(Features::SHADER_F16);

/// Threads of the largest subgroup that the kernels divide a workgroup into.
const LANES_MAX: u32 = 64;

/// Squares that a device multiplies at once: f16 by f16, added in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixUnits {
    /// Rows, and columns, of a square: 8 or 16.
    pub size: u32,
    /// Threads of a subgroup, which multiply together.
    pub lanes: u32,
}

impl MatrixUnits {
    /// Those of an adapter; `None` where it has none, or where the size of its subgroups is not known before a kernel is compiled.
    pub(super) fn of(adapter: &Adapter) -> Option<Self> {
        let info = adapter.get_info();
        let lanes = info.subgroup_min_size;
        let is_known = lanes == info.subgroup_max_size && (1..=LANES_MAX).contains(&lanes);
        if !is_known || !adapter.features().contains(FEATURES) {
            return None;
        }
        let squares = adapter.cooperative_matrix_properties();
        let size = largest(&squares)?;
        Some(Self { size, lanes })
    }
}

/// The largest square of f16 with sums in f32 that the kernels have.
fn largest(squares: &[CooperativeMatrixProperties]) -> Option<u32> {
    let is_square = |size: u32, square: &CooperativeMatrixProperties| {
        [square.m_size, square.n_size, square.k_size] == [size; 3]
            && square.ab_type == CooperativeScalarType::F16
            && square.cr_type == CooperativeScalarType::F32
    };
    let has = |size: &u32| squares.iter().any(|square| is_square(*size, square));
    [16, 8].into_iter().find(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_square_of_f16_with_wide_sums_is_taken() {
        let square = |size, ab_type, cr_type| CooperativeMatrixProperties {
            m_size: size,
            n_size: size,
            k_size: size,
            ab_type,
            cr_type,
            saturating_accumulation: false,
        };
        let (half, single) = (CooperativeScalarType::F16, CooperativeScalarType::F32);
        let eight = square(8, half, single);
        assert_eq!(largest(&[]), None);
        assert_eq!(
            largest(&[square(16, half, half), square(8, single, single)]),
            None
        );
        assert_eq!(largest(&[eight, square(16, half, half)]), Some(8));
        assert_eq!(largest(&[eight, square(16, half, single)]), Some(16));
        let wide = CooperativeMatrixProperties {
            n_size: 8,
            ..square(16, half, single)
        };
        assert_eq!(largest(&[wide]), None);
    }
}
