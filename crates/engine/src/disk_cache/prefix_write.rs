//! The write of one prefix: pages that were reused, run by run.

use super::run_prefix::{RunPlace, RunPrefix};
use super::run_shape::RunShape;
use crate::pages::Pages;
use crate::prefix_index::PrefixChain;
use model::{ExportPages, PageId};
use std::sync::Arc;

/// A prefix whose runs are being written.
///
/// The pages are not held. A page that is still indexed under its chain has still its content; one that is not was evicted, and
/// the write ends there.
pub(super) struct PrefixWrite {
    pub(super) prefix: Arc<RunPrefix>,
    /// By page of the prefix.
    pub(super) pages: Vec<(PageId, PrefixChain)>,
    /// The next run.
    pub(super) next: usize,
}

impl PrefixWrite {
    /// The next run.
    pub(super) fn place(&self) -> RunPlace {
        RunPlace {
            prefix: Arc::clone(&self.prefix),
            run: self.next,
        }
    }

    /// Whether all pages of the next run have their content.
    pub(super) fn is_intact(&self, shape: RunShape, pages: &Pages) -> bool {
        self.run_pages(shape)
            .iter()
            .all(|&(page, chain)| pages.chain_of(page) == Some(chain))
    }

    /// Copies the pages of the next run out of the model.
    pub(super) fn copy_pages(&self, shape: RunShape, model: &dyn ExportPages, bytes: &mut [u8]) {
        let run = self.run_pages(shape).iter();
        for (&(page, _), bytes) in run.zip(bytes.chunks_exact_mut(shape.page_bytes)) {
            model.export_page(page, bytes);
        }
    }

    fn run_pages(&self, shape: RunShape) -> &[(PageId, PrefixChain)] {
        &self.pages[self.next * shape.pages..][..shape.pages]
    }
}
