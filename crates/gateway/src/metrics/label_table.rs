//! Values by label, for small sets of labels that are not known at compile time.

use std::sync::OnceLock;

/// Up to `N` labels, each with a value, and one more value for all further labels.
///
/// A label takes the first free slot and keeps the slot: slots are filled from the front and never emptied. Two
/// threads with new labels meet at one slot, where one wins; the other compares that slot again, so that no label
/// appears twice.
#[derive(Debug)]
pub struct LabelTable<V, const N: usize> {
    slots: [LabelSlot<V>; N],
    beyond: V,
}

#[derive(Debug)]
struct LabelSlot<V> {
    label: OnceLock<Box<str>>,
    value: V,
}

/// Label of the value for labels without a slot.
pub const BEYOND: &str = "other";

impl<V, const N: usize> LabelTable<V, N> {
    /// The value of a label. The first use of a label allocates; others do not.
    pub fn value_of(&self, label: &str) -> &V {
        for slot in &self.slots {
            let taken = slot.label.get_or_init(|| Box::from(label));
            if **taken == *label {
                return &slot.value;
            }
        }
        &self.beyond
    }

    /// All labels in use, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        let named = self
            .slots
            .iter()
            .map_while(|slot| Some((&**slot.label.get()?, &slot.value)));
        named.chain([(BEYOND, &self.beyond)])
    }
}

impl<V: Default, const N: usize> Default for LabelTable<V, N> {
    fn default() -> Self {
        Self {
            slots: std::array::from_fn(|_| LabelSlot {
                label: OnceLock::new(),
                value: V::default(),
            }),
            beyond: V::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::count::Counter;

    #[test]
    fn labels_keep_their_slots_within_the_bound() {
        let table = LabelTable::<Counter, 2>::default();
        for label in ["a", "b", "a", "c", "d", "b", "a"] {
            table.value_of(label).add(1);
        }
        let told: Vec<_> = table.iter().map(|(l, v)| (l, v.get())).collect();
        assert_eq!(told, [("a", 3), ("b", 2), (BEYOND, 2)]);
    }

    #[test]
    fn threads_with_equal_labels_share_slots() {
        let table = LabelTable::<Counter, 8>::default();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for i in 0..800 {
                        let label = (i + thread) % 8;
                        table.value_of(&label.to_string()).add(1);
                    }
                });
            }
        });
        let mut told: Vec<_> = table.iter().map(|(l, v)| (l.to_owned(), v.get())).collect();
        told.sort();
        let mut want: Vec<_> = (0..8).map(|i| (i.to_string(), 400)).collect();
        want.push((BEYOND.to_owned(), 0));
        assert_eq!(told, want);
    }
}
