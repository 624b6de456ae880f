//! Pages of the fake model as bytes.

use super::FakeModel;
use model::PageId;
use std::ops::Range;

/// Bytes of a slot: the hash, then the token.
pub(super) const SLOT_BYTES: usize = 12;

impl FakeModel {
    /// Copies the slots of a page out.
    pub(super) fn write_slots(&self, page: PageId, bytes: &mut [u8]) {
        for (slot, bytes) in self.slots_of(page).zip(bytes.chunks_exact_mut(SLOT_BYTES)) {
            bytes[..8].copy_from_slice(&self.slots[slot].to_le_bytes());
            bytes[8..].copy_from_slice(&self.tokens[slot].to_le_bytes());
        }
    }

    /// Copies the slots of a page in.
    pub(super) fn read_slots(&mut self, page: PageId, bytes: &[u8]) {
        for (slot, bytes) in self.slots_of(page).zip(bytes.chunks_exact(SLOT_BYTES)) {
            let (hash, token) = bytes.split_at(8);
            self.slots[slot] = u64::from_le_bytes(hash.try_into().expect("eight bytes"));
            self.tokens[slot] = u32::from_le_bytes(token.try_into().expect("four bytes"));
        }
    }

    fn slots_of(&self, page: PageId) -> Range<usize> {
        let tokens = self.config.dims.page_tokens;
        let start = page as usize * tokens;
        start..start + tokens
    }
}
