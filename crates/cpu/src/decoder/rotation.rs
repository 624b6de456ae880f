//! Rotation of heads whose keys and values are stored in 4 bits.
//!
//! A few elements of keys are much larger than the rest, and would leave the others of their scale group two or three levels
//! of sixteen. An orthonormal Walsh–Hadamard transform spreads them over the head (QuaRot, Ashkboos et al. 2024). Queries are
//! transformed as keys are, which keeps scores; what attention computes from transformed values is transformed back.

use kernels::{KvCache, KvKind, Pool, walsh_hadamard};

/// Elements of the largest part of a head that is transformed as one.
const GROUP_MAX: usize = 256;

/// The rotation of the heads of one cache.
#[derive(Clone, Copy)]
pub(super) struct HeadRotation {
    /// Elements that are transformed together; 1: none.
    group: usize,
}

impl HeadRotation {
    /// The rotation of the heads that `kv` stores.
    pub(super) fn of(kv: &KvCache) -> Self {
        let shape = kv.shape();
        Self {
            group: match shape.kind {
                KvKind::F16 | KvKind::Q8_0 => 1,
                KvKind::Q4_0 => group_of(shape.head_dim),
            },
        }
    }

    /// Rotates the heads of `x`, shape `(rows, cols)`, or rotates them back.
    pub(super) fn apply(self, pool: &mut Pool, x: &mut [f32], cols: usize) {
        if self.group > 1 {
            pool.rows(x, cols, |_, heads| walsh_hadamard(heads, self.group));
        }
    }
}

/// The largest power of two that divides a head, up to [`GROUP_MAX`].
fn group_of(head_dim: usize) -> usize {
    1 << head_dim.trailing_zeros().min(GROUP_MAX.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_divide_heads() {
        for (head_dim, group) in [(64, 64), (80, 16), (96, 32), (512, 256), (576, 64), (5, 1)] {
            assert_eq!(group_of(head_dim), group, "{head_dim}");
        }
    }
}
