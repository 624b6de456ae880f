//! Which edition of a stream's text is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of the edition that positions of a stream belong to. 0: the text of the first owner, or one that is equal for
/// certain. A later owner that computes tokens again which an earlier one may have told otherwise begins an edition. Clones
/// share the number.
#[derive(Clone, Debug, Default)]
pub struct TextEdition(Arc<AtomicU64>);

impl TextEdition {
    /// The edition now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// A later edition begins. To be called before its first token is appended.
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }
}
