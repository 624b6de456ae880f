//! Token bitmasks: one bit for each token that may come next, as an [`engine::Constraint`] fills them in.

/// Allows a token.
pub(crate) fn set(allowed: &mut [u32], id: u32) {
    if let Some(word) = allowed.get_mut(id as usize / 32) {
        *word |= 1 << (id % 32);
    }
}

/// Forbids a token.
pub(crate) fn clear(allowed: &mut [u32], id: u32) {
    if let Some(word) = allowed.get_mut(id as usize / 32) {
        *word &= !(1 << (id % 32));
    }
}

/// Whether a token is allowed.
pub(crate) fn has(allowed: &[u32], id: u32) -> bool {
    allowed
        .get(id as usize / 32)
        .is_some_and(|word| word >> (id % 32) & 1 == 1)
}
