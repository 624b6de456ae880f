//! Full pages by content: what makes prompts that begin alike share their beginning.
//!
//! A page's content is its own tokens and everything before them. The latter is named by the
//! [`Chain`] value that its predecessor got when it was indexed; these values are never used
//! twice, so an entry `(chain before, tokens)` says exactly which positions the page holds. The first
//! page follows the request's [`CacheSalt`]: requests with different salts share no page. A
//! hash only finds the bucket: chain and tokens are then compared, so that no collision, made
//! or met, gives a page to the wrong prompt.
//!
//! Everything is an array with one entry per page, made at the start.

use crate::CacheSalt;
use model::PageId;
use std::hash::{BuildHasher, RandomState};

/// Names a run of full pages from position 0, by content and salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Chain {
    /// Nothing yet: the beginning of every sequence with this salt.
    Start(CacheSalt),
    /// One page or more.
    Pages(u64),
}

impl Chain {
    /// The beginning without a salt.
    pub(crate) const START: Self = Self::Start(CacheSalt::NONE);
}

/// No page: the end of a list.
const NONE: PageId = PageId::MAX;

pub(crate) struct Prefix {
    page_tokens: usize,
    hasher: RandomState,
    /// The next chain value; counting to 2^64 takes longer than hardware lasts.
    next_chain: u64,
    /// By page: the chain that ends with it. `START`: not indexed.
    chain: Vec<Chain>,
    /// By page: the chain it follows.
    before: Vec<Chain>,
    /// By page: its tokens, `(pages, page_tokens)`.
    content: Vec<u32>,
    /// First page of each bucket; a power of two of them.
    buckets: Vec<PageId>,
    /// By page: the next one in its bucket.
    bucket_next: Vec<PageId>,
    /// Idle pages, longest idle first.
    idle: IdleList,
    /// Times content was hashed to be looked for.
    #[cfg(test)]
    pub(crate) finds: std::cell::Cell<usize>,
}

impl Prefix {
    pub(crate) fn new(pages: usize, page_tokens: usize) -> Self {
        Self {
            page_tokens,
            hasher: RandomState::new(),
            next_chain: 1,
            chain: vec![Chain::START; pages],
            before: vec![Chain::START; pages],
            content: vec![0; pages * page_tokens],
            buckets: vec![NONE; pages.next_power_of_two()],
            bucket_next: vec![NONE; pages],
            idle: IdleList::new(pages),
            #[cfg(test)]
            finds: std::cell::Cell::default(),
        }
    }

    pub(crate) fn is_indexed(&self, page: PageId) -> bool {
        self.chain[page as usize] != Chain::START
    }

    pub(crate) fn idle_pages(&self) -> usize {
        self.idle.len
    }

    /// What the page's content is named; another after it was forgotten, never the same again.
    pub(crate) fn chain_of(&self, page: PageId) -> Chain {
        self.chain[page as usize]
    }

    /// Pages ever indexed: as long as it is the same, what was not found is not there.
    pub(crate) fn inserted(&self) -> u64 {
        self.next_chain
    }

    /// The page that holds `content` after `before`, and the chain that includes it.
    pub(crate) fn find(&self, before: Chain, content: &[u32]) -> Option<(PageId, Chain)> {
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
    pub(crate) fn insert(&mut self, page: PageId, before: Chain, content: &[u32]) -> Chain {
        let (i, bucket) = (page as usize, self.bucket(before, content));
        debug_assert!(!self.is_indexed(page));
        self.content[i * self.page_tokens..][..self.page_tokens].copy_from_slice(content);
        self.before[i] = before;
        self.chain[i] = Chain::Pages(self.next_chain);
        self.next_chain += 1;
        self.bucket_next[i] = std::mem::replace(&mut self.buckets[bucket], page);
        self.chain[i]
    }

    /// The last reference to an indexed page was given back.
    pub(crate) fn idle(&mut self, page: PageId) {
        self.idle.push_newest(page);
    }

    /// An idle page got a reference.
    pub(crate) fn busy(&mut self, page: PageId) {
        self.idle.remove(page);
    }

    /// Forgets the page that was idle longest, and hands it out.
    pub(crate) fn evict(&mut self) -> Option<PageId> {
        let page = self.idle.oldest()?;
        self.idle.remove(page);
        self.forget(page);
        Some(page)
    }

    fn forget(&mut self, page: PageId) {
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
        self.chain[page as usize] = Chain::START;
    }

    fn content(&self, page: PageId) -> &[u32] {
        &self.content[page as usize * self.page_tokens..][..self.page_tokens]
    }

    fn bucket(&self, before: Chain, content: &[u32]) -> usize {
        self.hasher.hash_one((before, content)) as usize & (self.buckets.len() - 1)
    }

    /// Panics unless exactly the indexed pages without references are idle.
    pub(crate) fn check(&self, refs: &[u32]) {
        let mut page = self.idle.oldest;
        let mut idle = 0;
        while page != NONE {
            assert_eq!(refs[page as usize], 0, "idle page {page} is held");
            assert!(self.is_indexed(page), "idle page {page} is not indexed");
            idle += 1;
            page = self.idle.newer[page as usize];
        }
        assert_eq!(idle, self.idle.len, "the list of idle pages and its length");
    }
}

/// A doubly linked list threaded through arrays: every operation is O(1) and allocates nothing.
struct IdleList {
    older: Vec<PageId>,
    newer: Vec<PageId>,
    oldest: PageId,
    newest: PageId,
    len: usize,
}

impl IdleList {
    fn new(pages: usize) -> Self {
        Self {
            older: vec![NONE; pages],
            newer: vec![NONE; pages],
            oldest: NONE,
            newest: NONE,
            len: 0,
        }
    }

    fn oldest(&self) -> Option<PageId> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    fn push_newest(&mut self, page: PageId) {
        self.older[page as usize] = self.newest;
        self.newer[page as usize] = NONE;
        match self.newest {
            NONE => self.oldest = page,
            newest => self.newer[newest as usize] = page,
        }
        self.newest = page;
        self.len += 1;
    }

    fn remove(&mut self, page: PageId) {
        let (older, newer) = (self.older[page as usize], self.newer[page as usize]);
        match older {
            NONE => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        self.len -= 1;
    }
}
