//! Sets of characters as sorted ranges.

use std::fmt::Write;

/// Ranges of Unicode scalar values, inclusive, sorted and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct CharSet(Vec<(u32, u32)>);

/// All characters: no surrogates.
const ALL: [(u32, u32); 2] = [(0, 0xD7FF), (0xE000, 0x10_FFFF)];

impl CharSet {
    /// These ranges, in any order.
    pub(super) fn of(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self(merged)
    }

    pub(super) fn single(char: char) -> Self {
        Self(vec![(char.into(), char.into())])
    }

    /// Every character.
    pub(super) fn all() -> Self {
        Self(ALL.to_vec())
    }

    /// Every character that is not in the set.
    pub(super) fn complement(&self) -> Self {
        let mut left = Vec::new();
        for (low, high) in ALL {
            let mut from = low;
            for &(start, end) in &self.0 {
                if end < from || start > high {
                    continue;
                }
                if start > from {
                    left.push((from, start - 1));
                }
                from = end + 1;
            }
            if from <= high {
                left.push((from, high));
            }
        }
        Self(left)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        Self::of([self.0.as_slice(), &other.0].concat())
    }

    pub(super) fn intersects(&self, other: &Self) -> bool {
        let meets = |a: &(u32, u32)| other.0.iter().any(|b| a.0 <= b.1 && b.0 <= a.1);
        self.0.iter().any(meets)
    }

    pub(super) fn has(&self, value: u32) -> bool {
        self.0
            .iter()
            .any(|&(low, high)| (low..=high).contains(&value))
    }

    /// The first value of each range, and the first one behind each range.
    pub(super) fn boundaries(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|&(low, high)| [low, high + 1])
    }

    /// The set as a class of a regular expression.
    pub(super) fn write_regex(&self, out: &mut String) {
        out.push('[');
        for &(low, high) in &self.0 {
            // A string takes everything.
            let _ = write!(out, "\\x{{{low:x}}}-\\x{{{high:x}}}");
        }
        out.push(']');
    }
}
