//! The read of one prefix, with runs on the way and pages that were filled, and the write of one: pages that were reused, run by run.

use super::runs::{RunPlace, RunPrefix, RunShape};
use crate::pages::Pages;
use crate::prefix_index::PrefixChain;
use crate::terms::Age;
use model::{ExportPages, ForwardError, PageId};
use std::ops::Range;
use std::sync::Arc;

/// Pages at the beginning of a prompt that are in memory, and the chain that ends with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownPages {
    pub(crate) pages: usize,
    pub(crate) chain: PrefixChain,
}

/// A prefix that is being read.
pub(super) struct PrefixRead {
    /// Tells replies to this read from those to earlier ones.
    pub(super) number: u64,
    /// The queued request that the read is for.
    pub(super) age: Age,
    pub(super) prefix: Arc<RunPrefix>,
    /// Runs that are not requested yet.
    pub(super) unsent: Range<usize>,
    /// The run that comes next, and the end of the last one.
    pub(super) awaited: Range<usize>,
    /// Pages that are in memory.
    known: KnownPages,
    pub(super) started_ns: u64,
    /// Time of the last reply, or the start.
    pub(super) progress_ns: u64,
    pub(super) bytes: u64,
    /// Pages that were filled.
    pub(super) filled: usize,
}

impl PrefixRead {
    pub(super) fn new(
        (number, age): (u64, Age),
        prefix: Arc<RunPrefix>,
        runs: Range<usize>,
        known: KnownPages,
        now_ns: u64,
    ) -> Self {
        Self {
            number,
            age,
            prefix,
            unsent: runs.clone(),
            awaited: runs,
            known,
            started_ns: now_ns,
            progress_ns: now_ns,
            bytes: 0,
            filled: 0,
        }
    }

    /// The next run to request.
    pub(super) fn next_place(&mut self) -> Option<RunPlace> {
        let run = self.unsent.next()?;
        let prefix = Arc::clone(&self.prefix);
        Some(RunPlace { prefix, run })
    }

    /// Fills pages with those of the next run, indexes them and gives them back: they are cached pages from then on, for this
    /// request and all others. `held` is scratch. Returns false when there is no page.
    pub(super) fn fill_pages(
        &mut self,
        shape: RunShape,
        bytes: &[u8],
        held: &mut Vec<PageId>,
        (pages, model): (&mut Pages, &mut dyn ExportPages),
    ) -> bool {
        let Some(run) = self.awaited.next() else {
            return true;
        };
        let first = run * shape.pages;
        let mut is_complete = true;
        for (at, bytes) in (first..).zip(bytes.chunks_exact(shape.page_bytes)) {
            if at < self.known.pages {
                continue;
            }
            let Some(page) = pages.take() else {
                is_complete = false;
                break;
            };
            model.import_page(page, bytes);
            let (page, chain) = pages.index(page, self.known.chain, self.prefix.page(at));
            self.known = KnownPages {
                pages: at + 1,
                chain,
            };
            held.push(page);
            self.filled += 1;
        }
        pages.release_all(held);
        self.bytes += bytes.len() as u64;
        is_complete
    }
}

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
    ///
    /// # Errors
    /// The model's device failed: `bytes` is not the run.
    pub(super) fn copy_pages(
        &self,
        shape: RunShape,
        model: &dyn ExportPages,
        bytes: &mut [u8],
    ) -> Result<(), ForwardError> {
        let run = self.run_pages(shape).iter();
        run.zip(bytes.chunks_exact_mut(shape.page_bytes))
            .try_for_each(|(&(page, _), bytes)| model.export_page(page, bytes))
    }

    fn run_pages(&self, shape: RunShape) -> &[(PageId, PrefixChain)] {
        &self.pages[self.next * shape.pages..][..shape.pages]
    }
}
