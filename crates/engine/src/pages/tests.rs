//! Pages by cases, then against a reference that knows the content of each page.

use super::*;
use crate::CacheSalt;
use proptest::prelude::*;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

fn pages(count: usize) -> Pages {
    let dims = Dims {
        vocab: 10,
        context_max: 100,
        page_tokens: 2,
        pages: count,
        rows_max: 8,
        logit_rows_max: 8,
    };
    Pages::new(&dims, true)
}

/// The age of the only sequence with these tokens.
fn age_of(tokens: &[u32]) -> Age {
    let mut hasher = DefaultHasher::new();
    tokens.hash(&mut hasher);
    Age(hasher.finish(), 0)
}

/// Writes `tokens` into new pages and indexes them, as a sequence does.
fn fill(pages: &mut Pages, tokens: &[u32]) -> Vec<PageId> {
    let mut table = Vec::new();
    let mut chain = pages.reuse(age_of(tokens), CacheSalt::NONE, tokens, &mut table);
    for content in tokens.chunks_exact(2).skip(table.len()) {
        let page = pages.take().expect("a page");
        let (page, next) = pages.index(page, chain, content);
        table.push(page);
        chain = next;
    }
    table
}

#[test]
fn released_pages_are_free_or_cached() {
    let mut pages = pages(3);
    let mut table = vec![pages.take().unwrap(), pages.take().unwrap()];
    pages.share(table[0]);
    assert!(pages.is_shared(table[0]));
    let first = table[0];
    pages.release_all(&mut table);
    assert_eq!(
        pages.counts(),
        PageCounts {
            free: 2,
            used: 1,
            cached: 0
        }
    );
    pages.release(first);
    pages.check(std::iter::empty());
}

#[test]
fn equal_prefixes_share_pages() {
    let mut pages = pages(6);
    let a = fill(&mut pages, &[1, 2, 3, 4, 5, 6]);
    let b = fill(&mut pages, &[1, 2, 3, 4, 9, 9]);
    assert_eq!(a[..2], b[..2]);
    assert_ne!(a[2], b[2]);
}

#[test]
fn equal_content_after_different_prefixes_is_not_shared() {
    let mut pages = pages(6);
    let a = fill(&mut pages, &[1, 2, 7, 7]);
    let b = fill(&mut pages, &[3, 4, 7, 7]);
    assert_ne!(a[1], b[1]);
}

#[test]
fn page_computed_twice_is_kept_once() {
    let mut pages = pages(4);
    let (first, second) = (pages.take().unwrap(), pages.take().unwrap());
    let (kept, chain) = pages.index(first, PrefixChain::START, &[1, 2]);
    assert_eq!(kept, first);
    assert_eq!(
        pages.index(second, PrefixChain::START, &[1, 2]),
        (first, chain)
    );
    assert_eq!(
        pages.counts(),
        PageCounts {
            free: 3,
            used: 1,
            cached: 0
        }
    );
}

#[test]
fn eviction_takes_the_least_recently_used_and_suffixes_first() {
    let mut pages = pages(4);
    let mut a = fill(&mut pages, &[1, 2, 3, 4]);
    let mut b = fill(&mut pages, &[5, 6, 7, 8]);
    let (a_pages, b_pages) = (a.clone(), b.clone());
    pages.release_all(&mut a);
    pages.release_all(&mut b);
    assert_eq!(
        pages.counts(),
        PageCounts {
            free: 0,
            used: 0,
            cached: 4
        }
    );
    // Using a's beginning again makes it the most recent.
    let mut again = fill(&mut pages, &[1, 2]);
    pages.release_all(&mut again);
    let taken: Vec<_> = std::iter::from_fn(|| pages.take()).collect();
    assert_eq!(taken, [a_pages[1], b_pages[1], b_pages[0], a_pages[0]]);
    pages.check([&taken[..]].into_iter());
}

#[test]
fn evicted_page_is_not_found() {
    let mut pages = pages(1);
    let mut a = fill(&mut pages, &[1, 2]);
    pages.release_all(&mut a);
    let page = pages.take().unwrap();
    let mut table = Vec::new();
    pages.reuse(age_of(&[1, 2]), CacheSalt::NONE, &[1, 2], &mut table);
    assert!(table.is_empty());
    pages.release(page);
    assert_eq!(
        pages.counts(),
        PageCounts {
            free: 1,
            used: 0,
            cached: 0
        }
    );
}

#[test]
fn no_page_is_cached_without_a_prefix_cache() {
    let mut pages = pages(2);
    pages.prefix = None;
    let mut a = fill(&mut pages, &[1, 2]);
    pages.release_all(&mut a);
    assert_eq!(
        pages.counts(),
        PageCounts {
            free: 2,
            used: 0,
            cached: 0
        }
    );
}

/// A call of [`Pages`].
#[derive(Clone, Debug)]
enum Act {
    /// Fills pages with these tokens (few values, so that prefixes coincide) under this salt, reusing indexed
    /// pages.
    Open(CacheSalt, Vec<u32>),
    /// Releases the n-th open table.
    Close(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let tokens = prop::collection::vec(0..2u32, 1..12);
    let salt = (0..2u128).prop_map(CacheSalt);
    let open = (salt, tokens).prop_map(|(salt, tokens)| Act::Open(salt, tokens));
    let close = (0..8usize).prop_map(Act::Close);
    prop::collection::vec(prop_oneof![open, close], 1..60)
}

/// By page: the salt and all tokens up to the page's end, as last written.
type Holds = HashMap<PageId, (CacheSalt, Vec<u32>)>;

/// Returns `None` when pages are short.
fn open(
    pages: &mut Pages,
    salt: CacheSalt,
    tokens: &[u32],
    holds: &mut Holds,
) -> Option<Vec<PageId>> {
    let mut table = Vec::new();
    let Age(number, _) = age_of(tokens);
    let whose = Age(number, salt.0 as u32);
    let mut chain = pages.reuse(whose, salt, tokens, &mut table);
    for (at, page) in table.iter().enumerate() {
        assert_eq!(
            holds[page],
            (salt, tokens[..2 * (at + 1)].to_vec()),
            "reused for other tokens"
        );
    }
    while table.len() < tokens.len() / 2 {
        let (from, to) = (2 * table.len(), 2 * table.len() + 2);
        let Some(page) = pages.take() else {
            pages.release_all(&mut table);
            return None;
        };
        let held = (salt, tokens[..to].to_vec());
        holds.insert(page, held.clone());
        let (page, next) = pages.index(page, chain, &tokens[from..to]);
        assert_eq!(holds[&page], held, "replaced by other tokens");
        table.push(page);
        chain = next;
    }
    Some(table)
}

proptest! {
    #[test]
    fn reused_pages_hold_the_tokens_of_their_prefix(acts in acts()) {
        let mut pages = pages(12);
        let (mut tables, mut holds) = (Vec::new(), HashMap::new());
        for act in acts {
            match act {
                Act::Open(salt, tokens) => {
                    tables.extend(open(&mut pages, salt, &tokens, &mut holds));
                }
                Act::Close(n) if n < tables.len() => pages.release_all(&mut tables.swap_remove(n)),
                Act::Close(_) => {}
            }
            pages.check(tables.iter().map(|table| &table[..]));
        }
    }
}

/// Fills pages for a sequence whose lookup is not cached.
fn index(pages: &mut Pages, tokens: &[u32]) -> Vec<PageId> {
    let mut chain = PrefixChain::START;
    let mut table = Vec::new();
    for content in tokens.chunks_exact(2) {
        let page = pages.take().expect("room");
        let (page, next) = pages.index(page, chain, content);
        table.push(page);
        chain = next;
    }
    table
}

/// A queued request looks its prompt up in each step; only new content is hashed.
#[test]
fn repeated_lookup_hashes_only_new_content() {
    let mut pages = pages(8);
    let mut known = fill(&mut pages, &[1, 2, 3, 4, 5, 6]);
    let finds = |pages: &Pages| pages.prefix.as_ref().map_or(0, |prefix| prefix.finds.get());
    let tokens = [1, 2, 3, 4, 9, 9, 8, 8];
    let look = |pages: &mut Pages, found: usize, hashed: usize, why: &str| {
        let (before, mut table) = (finds(pages), Vec::new());
        pages.reuse(age_of(&tokens), CacheSalt::NONE, &tokens, &mut table);
        assert_eq!(table.len(), found, "{why}");
        pages.release_all(&mut table);
        assert_eq!(finds(pages) - before, hashed, "{why}");
    };
    look(&mut pages, 2, 3, "two pages, and one that is not there");
    for _ in 0..100 {
        look(&mut pages, 2, 0, "nothing changed");
    }
    let mut other = index(&mut pages, &[7, 7]);
    look(&mut pages, 2, 1, "a page more, not this one");
    pages.release_all(&mut other);
    let mut next = index(&mut pages, &[1, 2, 3, 4, 9, 9]);
    look(&mut pages, 3, 2, "the page it missed");
    pages.release_all(&mut next);
    pages.release_all(&mut known);
    while pages.take().is_some() {}
    look(&mut pages, 0, 1, "all of it is forgotten");
}
