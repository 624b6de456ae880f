//! The adapters (LoRA) of a sequence.

/// Adapters of one model.
pub const ADAPTERS_MAX: usize = 64;
/// Adapters of one sequence.
pub const SEQUENCE_ADAPTERS_MAX: usize = 4;
/// Largest magnitude of a scale, of a request as well as of a file.
pub const ADAPTER_SCALE_MAX: f32 = 1000.0;

/// Adapters of a sequence with their scales, by ascending number. Two sets are equal if they have the same adapters with
/// the same scales, bit for bit; an adapter with scale 0 is in no set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AdapterSet {
    /// Number of the adapter and bits of the scale; `(0, 0)` from `len` on.
    entries: [(u16, u32); SEQUENCE_ADAPTERS_MAX],
    len: u8,
}

impl AdapterSet {
    /// No adapters.
    pub const NONE: Self = Self {
        entries: [(0, 0); SEQUENCE_ADAPTERS_MAX],
        len: 0,
    };

    /// The set of these adapters and scales, in any order. `None` if there are more than [`SEQUENCE_ADAPTERS_MAX`] with a
    /// scale, an adapter is named twice, or a scale is no number from -[`ADAPTER_SCALE_MAX`] to [`ADAPTER_SCALE_MAX`].
    pub fn new(given: impl IntoIterator<Item = (usize, f32)>) -> Option<Self> {
        let mut set = Self::NONE;
        for (adapter, scale) in given {
            if !(-ADAPTER_SCALE_MAX..=ADAPTER_SCALE_MAX).contains(&scale) {
                return None;
            }
            if scale == 0.0 {
                continue;
            }
            let adapter = u16::try_from(adapter).ok()?;
            let at = usize::from(set.len);
            if set.entries[..at].iter().any(|(known, _)| *known == adapter) {
                return None;
            }
            *set.entries.get_mut(at)? = (adapter, scale.to_bits());
            set.len += 1;
        }
        set.entries[..usize::from(set.len)].sort_unstable();
        Some(set)
    }

    /// Whether there are no adapters.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Numbers and scales, by ascending number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, f32)> + '_ {
        let entries = self.entries[..usize::from(self.len)].iter();
        entries.map(|&(adapter, bits)| (usize::from(adapter), f32::from_bits(bits)))
    }

    /// The greatest number.
    pub fn last(&self) -> Option<usize> {
        self.iter().last().map(|(adapter, _)| adapter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_equal_whatever_the_order() {
        let one = AdapterSet::new([(3, 0.5), (1, -2.0), (2, 0.0)]);
        assert_eq!(one, AdapterSet::new([(1, -2.0), (3, 0.5)]));
        assert_ne!(one, AdapterSet::new([(1, -2.0), (3, 0.25)]));
        let one = one.expect("a set");
        assert_eq!(one.iter().collect::<Vec<_>>(), [(1, -2.0), (3, 0.5)]);
        assert_eq!((one.last(), one.is_empty()), (Some(3), false));
        assert_eq!(AdapterSet::new([(9, -0.0)]), Some(AdapterSet::NONE));
    }

    #[test]
    fn sets_beyond_a_bound_are_none() {
        let many = (0..=SEQUENCE_ADAPTERS_MAX).map(|adapter| (adapter, 1.0));
        let rows: [(&str, Vec<(usize, f32)>); 5] = [
            ("too many", many.collect()),
            ("twice", vec![(1, 1.0), (1, 2.0)]),
            ("NaN", vec![(1, f32::NAN)]),
            ("too large", vec![(1, 1000.5)]),
            ("no number", vec![(1 << 16, 1.0)]),
        ];
        for (label, given) in rows {
            assert_eq!(AdapterSet::new(given), None, "{label}");
        }
    }
}
