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

use crate::CacheSalt;
use crate::prefix::{Chain, Prefix};
use crate::age::Age;
use model::{Dims, PageId};

/// The reference counts of all pages, and where unreferenced ones are.
pub(crate) struct Pages {
    page_tokens: usize,
    refs: Vec<u32>,
    free: Vec<PageId>,
    prefix: Option<Prefix>,
    lookup: Lookup,
}

/// What was found for whoever looked last. The first in the queue looks in each step until there is room
/// for it; its prompt is not hashed again for that.
struct Lookup {
    whose: Age,
    /// The chain before its first page.
    start: Chain,
    /// Pages found, and what they were named; capacity for all there are.
    found: Vec<(PageId, Chain)>,
    /// [`Prefix::inserted`], when the next page was looked for and not found.
    missed_at: u64,
    /// Full pages of tokens that were looked for.
    wanted: usize,
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
            lookup: Lookup {
                whose: Age::MAX,
                start: Chain::START,
                found: Vec::with_capacity(dims.pages),
                missed_at: 0,
                wanted: 0,
            },
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
        if let Some(page) = self.take_free() {
            return Some(page);
        }
        let page = self.prefix.as_mut()?.evict()?;
        debug_assert_eq!(self.refs[page as usize], 0);
        self.refs[page as usize] = 1;
        Some(page)
    }

    /// A page of one's own that holds nothing anybody could want.
    pub(crate) fn take_free(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
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

    /// Takes references to all full pages known to hold the beginning of `tokens` under this salt, in
    /// order, into the empty `table`. Returns the chain to go on from. `whose` names the sequence: its
    /// tokens only grow, and its salt stays.
    pub(crate) fn reuse(
        &mut self,
        whose: Age,
        salt: CacheSalt,
        tokens: &[u32],
        table: &mut Vec<PageId>,
    ) -> Chain {
        debug_assert!(table.is_empty());
        let Some(prefix) = &self.prefix else {
            return Chain::Start(salt);
        };
        self.lookup.start = Chain::Start(salt);
        self.lookup.look(prefix, whose, tokens, self.page_tokens);
        for at in 0..self.lookup.found.len() {
            let (page, _) = self.lookup.found[at];
            self.share(page);
            table.push(page);
        }
        self.lookup.end()
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

impl Lookup {
    /// Finds what is there now, beginning with what was found before and is still named so.
    fn look(&mut self, prefix: &Prefix, whose: Age, tokens: &[u32], page_tokens: usize) {
        let known = self.found.len();
        let mut named = self.found.iter();
        let still = named.position(|&(page, chain)| prefix.chain_of(page) != chain);
        let still = still.unwrap_or(known);
        let wanted = tokens.len() / page_tokens;
        let same = self.whose == whose && still == known && self.wanted == wanted;
        if same && self.missed_at == prefix.inserted() {
            return;
        }
        self.found
            .truncate(if self.whose == whose { still } else { 0 });
        (self.whose, self.wanted) = (whose, wanted);
        self.missed_at = prefix.inserted();
        for content in tokens.chunks_exact(page_tokens).skip(self.found.len()) {
            let Some(next) = prefix.find(self.end(), content) else {
                return;
            };
            self.found.push(next);
        }
    }

    /// Names all that was found.
    fn end(&self) -> Chain {
        self.found.last().map_or(self.start, |&(_, chain)| chain)
    }
}

#[cfg(test)]
mod tests;
