//! A sequence's keys and values in the draft model.

use crate::pages::Pages;
use crate::prefix_index::PrefixChain;
use model::PageId;

/// A sequence's page table in the draft model's pages, for accepted tokens.
pub(crate) struct DraftPageTable {
    pub(crate) pages: Vec<PageId>,
    /// Positions, from the first, whose keys and values exist.
    pub(crate) computed: usize,
    /// Pages, from the first, that are in the prefix index, and the chain that ends with the last of them.
    pub(crate) indexed: usize,
    pub(crate) chain: PrefixChain,
}

impl DraftPageTable {
    pub(crate) fn new(pages_max: usize) -> Self {
        Self {
            pages: Vec::with_capacity(pages_max),
            computed: 0,
            indexed: 0,
            chain: PrefixChain::START,
        }
    }

    /// Indexes full pages by their content, the sequence's tokens.
    pub(crate) fn index(&mut self, tokens: &[u32], pages: &mut Pages) {
        let page_tokens = pages.page_tokens();
        while (self.indexed + 1) * page_tokens <= self.computed {
            let at = self.indexed;
            let content = &tokens[at * page_tokens..][..page_tokens];
            (self.pages[at], self.chain) = pages.index(self.pages[at], self.chain, content);
            self.indexed += 1;
        }
    }

    /// Gives all pages back.
    pub(crate) fn release(&mut self, pages: &mut Pages) {
        pages.release_all(&mut self.pages);
        (self.computed, self.indexed) = (0, 0);
        self.chain = PrefixChain::START;
    }
}
