//! Pages of keys and values: their references and the prefix cache.
//!
//! A page is in exactly one of three states:
//!
//! - *free*: no reference, content void, on the free stack;
//! - *used*: one or more references, each from a sequence's page table;
//! - *cached*: no reference, content indexed in the [`PrefixIndex`], on the index's list of idle pages.
//!
//! A used page may be indexed too: sequences with the same prefix share it. Only full pages are indexed, and
//! a full page is never written again; a partly filled page with more than one reference is copied before a
//! write.
//!
//! In a model with recurrent layers, a sequence can go on only from a state ([`States`]): a lookup finds the pages up to the
//! last one with a checkpoint.

use crate::prefix_index::{PrefixChain, PrefixIndex, PrefixRoot};
use crate::states::States;
use crate::terms::Age;
use model::{Dims, PageId, StateId};

/// The reference counts of all pages, the free stack and the prefix cache.
pub(crate) struct Pages {
    page_tokens: usize,
    refs: Vec<u32>,
    free: Vec<PageId>,
    prefix: Option<PrefixIndex>,
    lookup: PrefixLookup,
    /// States of sequences, in a model with recurrent layers.
    pub(crate) states: States,
    /// References per page found in page tables; scratch of [`Pages::check`].
    held: Vec<u32>,
}

/// The result of the last prefix lookup. The prompt of the first request in the queue is looked up in each
/// step until there are pages for the rest; the prompt is not hashed again for that.
struct PrefixLookup {
    /// Age of the sequence that looked.
    age: Age,
    /// The chain before the first page.
    start: PrefixChain,
    /// Pages found, each with the chain at that time; capacity for all pages.
    found: Vec<(PageId, PrefixChain)>,
    /// [`PrefixIndex::inserted`] at the time when the next page was not found.
    missed_at: u64,
    /// Full pages of tokens in the lookup.
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
            prefix: prefix_cache.then(|| PrefixIndex::new(dims.pages, dims.page_tokens)),
            held: vec![0; dims.pages],
            states: States::new(0, dims.pages),
            lookup: PrefixLookup {
                age: Age::MAX,
                start: PrefixChain::START,
                found: Vec::with_capacity(dims.pages),
                missed_at: 0,
                wanted: 0,
            },
        }
    }

    /// These pages, of a model with `states` states.
    pub(crate) fn with_states(self, states: usize) -> Self {
        let states = States::new(states, self.refs.len());
        Self { states, ..self }
    }

    pub(crate) fn page_tokens(&self) -> usize {
        self.page_tokens
    }

    /// Pages that hold this many positions.
    pub(crate) fn pages_for(&self, positions: usize) -> usize {
        positions.div_ceil(self.page_tokens)
    }

    /// Pages that can be taken without preempting a sequence.
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

    /// Takes a page with one reference: a free one, otherwise the least recently used cached one.
    pub(crate) fn take(&mut self) -> Option<PageId> {
        if let Some(page) = self.take_free() {
            return Some(page);
        }
        let page = self.prefix.as_mut()?.evict()?;
        debug_assert_eq!(self.refs[page as usize], 0);
        self.refs[page as usize] = 1;
        self.states.forget(page);
        Some(page)
    }

    /// Takes a free page with one reference; cached pages stay.
    pub(crate) fn take_free(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        debug_assert_eq!(self.refs[page as usize], 0);
        self.refs[page as usize] = 1;
        Some(page)
    }

    /// Makes all cached pages and checkpoints free: their content is lost.
    pub(crate) fn forget_cached(&mut self) {
        let Some(prefix) = &mut self.prefix else {
            return;
        };
        while let Some(page) = prefix.evict() {
            self.states.forget(page);
            self.free.push(page);
        }
    }

    /// Adds a reference to a used or cached page.
    pub(crate) fn share(&mut self, page: PageId) {
        let refs = &mut self.refs[page as usize];
        if *refs == 0
            && let Some(prefix) = &mut self.prefix
        {
            prefix.mark_used(page);
        }
        *refs += 1;
    }

    /// Whether the page has more than one reference.
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
            Some(prefix) if prefix.is_indexed(page) => prefix.mark_idle(page),
            _ => self.free.push(page),
        }
    }

    /// Releases a whole page table, last page first: pages become idle after the pages that follow them, so
    /// that eviction takes the ends of prefixes before their beginnings.
    pub(crate) fn release_all(&mut self, table: &mut Vec<PageId>) {
        while let Some(page) = table.pop() {
            self.release(page);
        }
    }

    /// Takes references to the indexed pages that hold the beginning of `tokens` under this root, in order,
    /// into the empty `table`. Returns the chain to continue from. `age` identifies the sequence, whose tokens
    /// are only appended to and whose root does not change.
    pub(crate) fn reuse(
        &mut self,
        age: Age,
        root: impl Into<PrefixRoot>,
        tokens: &[u32],
        table: &mut Vec<PageId>,
    ) -> PrefixChain {
        debug_assert!(table.is_empty());
        let start = PrefixChain::Start(root.into());
        let Some(prefix) = &self.prefix else {
            return start;
        };
        self.lookup.start = start;
        self.lookup.update(prefix, age, tokens, self.page_tokens);
        let (found, states) = (&self.lookup.found, &self.states);
        let usable = if states.exist() {
            let mut pages = found.iter().map(|&(page, _)| states.checkpoint(page));
            pages
                .rposition(|state| state.is_some())
                .map_or(0, |at| at + 1)
        } else {
            found.len()
        };
        for at in 0..usable {
            let (page, _) = self.lookup.found[at];
            self.share(page);
            table.push(page);
        }
        self.lookup.chain_of(usable)
    }

    /// The chain that ends with an indexed page. A page with the chain it had before has the content it had then.
    pub(crate) fn chain_of(&self, page: PageId) -> Option<PrefixChain> {
        let prefix = self.prefix.as_ref()?;
        prefix.is_indexed(page).then(|| prefix.chain_of(page))
    }

    /// Pages that the last lookup found, usable or not.
    pub(crate) fn pages_found(&self) -> usize {
        self.lookup.found.len()
    }

    /// Whether pages are kept after the end of their sequence.
    pub(crate) fn has_prefix_cache(&self) -> bool {
        self.prefix.is_some()
    }

    /// Makes a state the checkpoint of a page, if the page is indexed.
    pub(crate) fn keep_state(&mut self, page: PageId, state: StateId) {
        if self.prefix.as_ref().is_some_and(|p| p.is_indexed(page)) {
            self.states.keep(page, state);
        }
    }

    /// Indexes a full, computed page. When an indexed page has the same content already, the indexed page
    /// replaces `page`, and the reference to `page` is released. Returns the page to use and the chain that
    /// ends with it.
    pub(crate) fn index(
        &mut self,
        page: PageId,
        chain: PrefixChain,
        content: &[u32],
    ) -> (PageId, PrefixChain) {
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

    /// Panics unless the reference counts are those of these page tables, the complete list, and each page
    /// is in exactly one state.
    pub(crate) fn check<'a>(&mut self, tables: impl Iterator<Item = &'a [PageId]>) {
        self.held.fill(0);
        for &page in tables.flatten() {
            self.held[page as usize] += 1;
        }
        assert_eq!(
            self.refs, self.held,
            "references counted and references held differ"
        );
        let unheld = self.refs.iter().filter(|refs| **refs == 0).count();
        assert_eq!(
            self.available(),
            unheld,
            "free + cached pages are those without references"
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
        self.prefix.as_ref().map_or(0, PrefixIndex::idle_pages)
    }
}

impl PrefixLookup {
    /// Looks up the pages that are indexed now, starting from earlier found pages with an unchanged chain.
    fn update(&mut self, prefix: &PrefixIndex, age: Age, tokens: &[u32], page_tokens: usize) {
        let known = self.found.len();
        let mut found = self.found.iter();
        let valid = found.position(|&(page, chain)| prefix.chain_of(page) != chain);
        let valid = valid.unwrap_or(known);
        let wanted = tokens.len() / page_tokens;
        let is_same = self.age == age && valid == known && self.wanted == wanted;
        if is_same && self.missed_at == prefix.inserted() {
            return;
        }
        self.found.truncate(if self.age == age { valid } else { 0 });
        (self.age, self.wanted) = (age, wanted);
        self.missed_at = prefix.inserted();
        for content in tokens.chunks_exact(page_tokens).skip(self.found.len()) {
            let Some(next) = prefix.find(self.chain(), content) else {
                return;
            };
            self.found.push(next);
        }
    }

    /// The chain that ends with the last page found.
    fn chain(&self) -> PrefixChain {
        self.chain_of(self.found.len())
    }

    /// The chain of the first `pages` pages found.
    fn chain_of(&self, pages: usize) -> PrefixChain {
        let last = self.found[..pages].last();
        last.map_or(self.start, |&(_, chain)| chain)
    }
}

#[cfg(test)]
mod tests;
