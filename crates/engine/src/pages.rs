//! Who holds which page.
//!
//! A page is in exactly one of three states:
//!
//! - *free*: no reference, content worthless, on the free stack;
//! - *used*: one or more references, each from a sequence's block table;
//! - *cached*: no reference, content indexed in the [`Prefix`], on its list of idle pages.
//!
//! A used page may be indexed too: then others whose tokens begin alike share it. Only full
//! pages are indexed, and a full page is never written again; a partly filled page with more
//! than one reference is copied before it is written.

use crate::prefix::{Chain, Prefix};
use model::{Dims, PageId};

/// The reference counts of all pages, and where unreferenced ones are.
pub(crate) struct Pages {
    page_tokens: usize,
    refs: Vec<u32>,
    free: Vec<PageId>,
    prefix: Option<Prefix>,
}

/// How many pages are in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageCounts {
    pub(crate) free: usize,
    pub(crate) used: usize,
    pub(crate) cached: usize,
}

impl Pages {
    pub(crate) fn new(dims: &Dims, prefix_cache: bool) -> Self {
        Self {
            page_tokens: dims.page_tokens,
            refs: vec![0; dims.pages],
            free: (0..dims.pages as PageId).rev().collect(),
            prefix: prefix_cache.then(|| Prefix::new(dims.pages, dims.page_tokens)),
        }
    }

    pub(crate) fn page_tokens(&self) -> usize {
        self.page_tokens
    }

    /// Pages that hold this many positions.
    pub(crate) fn pages_for(&self, positions: usize) -> usize {
        positions.div_ceil(self.page_tokens)
    }

    /// Pages that can be taken without taking one from a sequence.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.cached()
    }

    pub(crate) fn counts(&self) -> PageCounts {
        PageCounts {
            free: self.free.len(),
            used: self.refs.len() - self.available(),
            cached: self.cached(),
        }
    }

    /// A page of one's own: a free one, else the cached one that was idle longest.
    pub(crate) fn take(&mut self) -> Option<PageId> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => self.prefix.as_mut()?.evict()?,
        };
        debug_assert_eq!(self.refs[page as usize], 0);
        self.refs[page as usize] = 1;
        Some(page)
    }

    /// One more reference to a used or cached page.
    pub(crate) fn share(&mut self, page: PageId) {
        let refs = &mut self.refs[page as usize];
        if *refs == 0
            && let Some(prefix) = &mut self.prefix
        {
            prefix.busy(page);
        }
        *refs += 1;
    }

    /// Whether somebody else holds this page too.
    pub(crate) fn is_shared(&self, page: PageId) -> bool {
        self.refs[page as usize] > 1
    }

    /// Gives one reference back.
    pub(crate) fn release(&mut self, page: PageId) {
        let refs = &mut self.refs[page as usize];
        debug_assert!(*refs > 0, "page {page} released twice");
        *refs -= 1;
        if *refs > 0 {
            return;
        }
        match &mut self.prefix {
            Some(prefix) if prefix.is_indexed(page) => prefix.idle(page),
            _ => self.free.push(page),
        }
    }

    /// Gives a whole block table back, last page first: a page is then never idle before those
    /// that follow it, so that eviction takes the ends of prefixes before their beginnings.
    pub(crate) fn release_all(&mut self, table: &mut Vec<PageId>) {
        while let Some(page) = table.pop() {
            self.release(page);
        }
    }

    /// Takes references to all full pages known to hold the beginning of `tokens`, in order,
    /// into the empty `table`. Returns the chain to go on from.
    pub(crate) fn reuse(&mut self, tokens: &[u32], table: &mut Vec<PageId>) -> Chain {
        debug_assert!(table.is_empty());
        let mut chain = Chain::START;
        for content in tokens.chunks_exact(self.page_tokens) {
            let Some((page, next)) = self.prefix.as_ref().and_then(|p| p.find(chain, content))
            else {
                break;
            };
            self.share(page);
            table.push(page);
            chain = next;
        }
        chain
    }

    /// Makes a full, computed page known. When another page holds the same already, that one
    /// replaces `page` (whose reference is given back). Returns the page to go on with.
    pub(crate) fn index(&mut self, page: PageId, chain: Chain, content: &[u32]) -> (PageId, Chain) {
        let Some(prefix) = &mut self.prefix else {
            return (page, chain);
        };
        match prefix.find(chain, content) {
            Some((known, next)) => {
                self.share(known);
                self.release(page);
                (known, next)
            }
            None => (page, prefix.insert(page, chain, content)),
        }
    }

    /// Panics unless `held`, the references found in all block tables, is what is counted here,
    /// and each page is in exactly one state.
    pub(crate) fn check(&self, held: &[u32]) {
        assert_eq!(
            self.refs, held,
            "references counted and references held differ"
        );
        let unheld = self.refs.iter().filter(|refs| **refs == 0).count();
        assert_eq!(
            self.available(),
            unheld,
            "free + cached pages are those nobody holds"
        );
        for &page in &self.free {
            assert_eq!(self.refs[page as usize], 0, "free page {page} is held");
            let indexed = self.prefix.as_ref().is_some_and(|p| p.is_indexed(page));
            assert!(!indexed, "free page {page} is indexed");
        }
        if let Some(prefix) = &self.prefix {
            prefix.check(&self.refs);
        }
    }

    fn cached(&self) -> usize {
        self.prefix.as_ref().map_or(0, Prefix::idle_pages)
    }
}

#[cfg(test)]
mod tests;
