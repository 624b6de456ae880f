//! Bound of the memory that a recovery uses.

/// Memory that is left for rebuilt streams.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    pub(crate) free: usize,
}

impl MemoryBudget {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<()> {
        self.free = self.free.checked_sub(bytes)?;
        Some(())
    }

    /// Extends `vector` by `items` if their memory is within the budget; adds what was taken to `held`.
    pub(crate) fn extend<T: Copy>(
        &mut self,
        vector: &mut Vec<T>,
        items: &[T],
        held: &mut usize,
    ) -> Option<()> {
        let length = vector.len() + items.len();
        if length > vector.capacity() {
            let capacity = length.max(vector.len() + vector.len() / 2);
            let more = (capacity - vector.capacity()) * size_of::<T>();
            self.take(more)?;
            *held += more;
            vector.reserve_exact(capacity - vector.len());
        }
        vector.extend_from_slice(items);
        Some(())
    }

    pub(crate) fn replace(
        &mut self,
        vector: &mut Vec<u8>,
        bytes: &[u8],
        held: &mut usize,
    ) -> Option<()> {
        vector.clear();
        self.extend(vector, bytes, held)
    }

    /// Extends `vector` with `value` to `length`, if it is shorter.
    pub(crate) fn pad<T: Copy>(
        &mut self,
        vector: &mut Vec<T>,
        length: usize,
        value: T,
        held: &mut usize,
    ) -> Option<()> {
        while vector.len() < length {
            self.extend(vector, &[value], held)?;
        }
        Some(())
    }
}
