//! An arena of short byte strings, found by id or by content.

/// Byte strings numbered from 0. By id: two loads. By content: one probe of an open hash table.
pub(crate) struct StringArena {
    arena: Vec<u8>,
    /// `starts[id]..starts[id + 1]` is the string's range in `arena`.
    starts: Vec<u32>,
    /// Ids + 1 (0 = empty), at most half full, linear probing. The length is a power of two.
    slots: Vec<u32>,
}

impl StringArena {
    /// An empty arena with capacity for `count` strings of `bytes` bytes in total.
    pub(crate) fn with_capacity(count: usize, bytes: usize) -> Self {
        let mut starts = Vec::with_capacity(count + 1);
        starts.push(0);
        Self {
            arena: Vec::with_capacity(bytes),
            starts,
            slots: Vec::new(),
        }
    }

    /// Adds a string under the next id. Callers keep the arena under 4 GiB (see the limits of `vocab`).
    pub(crate) fn push(&mut self, string: &[u8]) {
        self.arena.extend_from_slice(string);
        self.starts.push(
            u32::try_from(self.arena.len()).expect("vocabulary limits keep the arena under 4 GiB"),
        );
    }

    /// Indexes the strings that `include` selects. The first of equal strings is found; returns the ids of
    /// the others.
    pub(crate) fn index(&mut self, include: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut duplicates = Vec::new();
        self.slots = vec![0; (self.len() * 2).next_power_of_two().max(2)];
        for id in 0..self.len() as u32 {
            if !include(id) {
                continue;
            }
            match self.probe(self.at(id)) {
                Ok(_) => duplicates.push(id),
                Err(slot) => self.slots[slot] = id + 1,
            }
        }
        duplicates
    }

    /// Keeps the first `len` strings and clears the index.
    pub(crate) fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.starts.truncate(len + 1);
            self.arena.truncate(self.starts[len] as usize);
            self.slots = Vec::new();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn get(&self, id: u32) -> Option<&[u8]> {
        (self.len() > id as usize).then(|| self.at(id))
    }

    /// The id of an indexed string.
    pub(crate) fn find(&self, string: &[u8]) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        self.probe(string).ok()
    }

    fn at(&self, id: u32) -> &[u8] {
        &self.arena[self.starts[id as usize] as usize..self.starts[id as usize + 1] as usize]
    }

    /// The id of `string`, or the empty slot for the string.
    fn probe(&self, string: &[u8]) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = hash_bytes(string) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => return Err(slot),
                held if self.at(held - 1) == string => return Ok(held - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

/// Not resistant to chosen keys: the keys come from the model, and a client's text can at worst probe the
/// longest run of occupied slots.
fn hash_bytes(string: &[u8]) -> u64 {
    let mut hash = string.len() as u64;
    for chunk in string.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}

/// Multiplies to 128 bits and folds, so that every input bit reaches the low bits.
pub(crate) fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_by_id_and_content() {
        let mut strings = StringArena::with_capacity(4, 0);
        for string in ["a", "", "longer than eight bytes", "a", "é"] {
            strings.push(string.as_bytes());
        }
        assert_eq!(strings.index(|id| id != 4), [3]);
        assert_eq!(strings.find(b"a"), Some(0));
        assert_eq!(strings.find(b""), Some(1));
        assert_eq!(strings.find(b"longer than eight bytes"), Some(2));
        assert_eq!(strings.find("é".as_bytes()), None, "left out of the index");
        assert_eq!(strings.get(4), Some("é".as_bytes()));
        assert_eq!(strings.get(5), None);
    }

    #[test]
    fn strings_without_index_are_not_found() {
        let mut strings = StringArena::with_capacity(0, 0);
        strings.push(b"a");
        assert_eq!(strings.find(b"a"), None);
    }
}
