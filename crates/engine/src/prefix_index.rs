//! The prefix index: full pages by content, so that prompts with a common prefix share pages.
//!
//! A page's content is the page's tokens and all tokens before them. The latter are identified by the
//! [`PrefixChain`] value that the preceding page got when indexed; these values are never used twice, so an
//! entry `(chain before, tokens)` identifies the positions in the page exactly. The first page follows the
//! request's [`PrefixRoot`]: requests with different salts, adapters or scales share no page. A hash only finds the
//! bucket: chain and tokens are then compared, so that no collision, accidental or deliberate, gives a page to the
//! wrong prompt.
//!
//! All arrays have one entry per page and are allocated at the start.

use crate::CacheSalt;
use crate::idle_list::IdleList;
use model::{AdapterSet, PageId};
use std::hash::{BuildHasher, RandomState};

/// Properties that sequences have in common, beside tokens, where they share pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PrefixRoot {
    pub(crate) salt: CacheSalt,
    /// Keys and values depend on adapters and scales.
    pub(crate) adapters: AdapterSet,
}

impl PrefixRoot {
    const NONE: Self = Self {
        salt: CacheSalt::NONE,
        adapters: AdapterSet::NONE,
    };
}

impl From<CacheSalt> for PrefixRoot {
    fn from(salt: CacheSalt) -> Self {
        Self { salt, ..Self::NONE }
    }
}

/// Identifies consecutive full pages from position 0, by content and root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PrefixChain {
    /// No page: the beginning of every sequence with this root.
    Start(PrefixRoot),
    /// One page or more.
    Pages(u64),
}

impl PrefixChain {
    /// The beginning without a salt and adapters.
    pub(crate) const START: Self = Self::Start(PrefixRoot::NONE);
}

/// The end of a list of pages.
const NONE: PageId = PageId::MAX;

/// Full pages by content, with the idle ones in order of use.
pub(crate) struct PrefixIndex {
    page_tokens: usize,
    hasher: RandomState,
    /// The next chain value; counting to 2^64 takes longer than hardware lasts.
    next_chain: u64,
    /// By page: the chain that ends with the page. `START`: not indexed.
    chain: Vec<PrefixChain>,
    /// By page: the chain before the page.
    before: Vec<PrefixChain>,
    /// Tokens, `(pages, page_tokens)`.
    content: Vec<u32>,
    /// First page of each bucket; a power of two of them.
    buckets: Vec<PageId>,
    /// By page: the next page in the same bucket.
    bucket_next: Vec<PageId>,
    /// Pages without references, least recently used first.
    idle: IdleList,
    /// Number of lookups.
    #[cfg(test)]
    pub(crate) finds: std::cell::Cell<usize>,
}

impl PrefixIndex {
    pub(crate) fn new(pages: usize, page_tokens: usize) -> Self {
        Self {
            page_tokens,
            hasher: RandomState::new(),
            next_chain: 1,
            chain: vec![PrefixChain::START; pages],
            before: vec![PrefixChain::START; pages],
            content: vec![0; pages * page_tokens],
            buckets: vec![NONE; pages.next_power_of_two()],
            bucket_next: vec![NONE; pages],
            idle: IdleList::new(pages),
            #[cfg(test)]
            finds: std::cell::Cell::default(),
        }
    }

    pub(crate) fn is_indexed(&self, page: PageId) -> bool {
        self.chain[page as usize] != PrefixChain::START
    }

    pub(crate) fn idle_pages(&self) -> usize {
        self.idle.len()
    }

    /// The chain that ends with the page. A page that is evicted and indexed again gets a new one.
    pub(crate) fn chain_of(&self, page: PageId) -> PrefixChain {
        self.chain[page as usize]
    }

    /// Counts insertions: while the count is unchanged, content that was not found is not indexed.
    pub(crate) fn inserted(&self) -> u64 {
        self.next_chain
    }

    /// The page that holds `content` after `before`, and the chain that includes the page.
    pub(crate) fn find(
        &self,
        before: PrefixChain,
        content: &[u32],
    ) -> Option<(PageId, PrefixChain)> {
        #[cfg(test)]
        self.finds.set(self.finds.get() + 1);
        let mut page = self.buckets[self.bucket(before, content)];
        while page != NONE {
            let i = page as usize;
            if self.before[i] == before && self.content(page) == content {
                return Some((page, self.chain[i]));
            }
            page = self.bucket_next[i];
        }
        None
    }

    /// Indexes a used page whose content is not indexed yet.
    pub(crate) fn insert(
        &mut self,
        page: PageId,
        before: PrefixChain,
        content: &[u32],
    ) -> PrefixChain {
        let (i, bucket) = (page as usize, self.bucket(before, content));
        debug_assert!(!self.is_indexed(page));
        self.content[i * self.page_tokens..][..self.page_tokens].copy_from_slice(content);
        self.before[i] = before;
        self.chain[i] = PrefixChain::Pages(self.next_chain);
        self.next_chain += 1;
        self.bucket_next[i] = std::mem::replace(&mut self.buckets[bucket], page);
        self.chain[i]
    }

    /// Records that the last reference to an indexed page was given back.
    pub(crate) fn mark_idle(&mut self, page: PageId) {
        self.idle.push_newest(page);
    }

    /// Records that an idle page got a reference.
    pub(crate) fn mark_used(&mut self, page: PageId) {
        self.idle.remove(page);
    }

    /// Removes the least recently used idle page from the index and returns it.
    pub(crate) fn evict(&mut self) -> Option<PageId> {
        let page = self.idle.oldest()?;
        self.idle.remove(page);
        self.unindex(page);
        Some(page)
    }

    fn unindex(&mut self, page: PageId) {
        let bucket = self.bucket(self.before[page as usize], self.content(page));
        let next = self.bucket_next[page as usize];
        if self.buckets[bucket] == page {
            self.buckets[bucket] = next;
        } else {
            let mut at = self.buckets[bucket];
            while self.bucket_next[at as usize] != page {
                at = self.bucket_next[at as usize];
            }
            self.bucket_next[at as usize] = next;
        }
        self.bucket_next[page as usize] = NONE;
        self.chain[page as usize] = PrefixChain::START;
    }

    fn content(&self, page: PageId) -> &[u32] {
        &self.content[page as usize * self.page_tokens..][..self.page_tokens]
    }

    fn bucket(&self, before: PrefixChain, content: &[u32]) -> usize {
        self.hasher.hash_one((before, content)) as usize & (self.buckets.len() - 1)
    }

    /// Panics unless exactly the indexed pages without references are idle.
    pub(crate) fn check(&self, refs: &[u32]) {
        for page in self.idle.iter() {
            assert_eq!(refs[page as usize], 0, "idle page {page} is held");
            assert!(self.is_indexed(page), "idle page {page} is not indexed");
        }
    }
}
