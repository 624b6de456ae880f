//! Runs of pages: their sizes, consecutive runs from position 0 with their names, and those that are on the disk, least
//! recently used first.

use crate::prefix_index::PrefixRoot;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// First bytes of each file.
pub(super) const MAGIC: [u8; 8] = *b"\xffMRPAGE\xfe";

/// Version of the files' layout, and of what the hash of a [`RunKey`] is made of.
pub(super) const VERSION: u32 = 1;

/// Hash of everything that decides the content of a run: identity, root and all tokens up to the run's end.
///
/// The hash only names the file. Identity, root and tokens are in the file and are compared, so that no collision, accidental
/// or deliberate, gives pages to the wrong prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RunKey(pub(super) u128);

/// An odd number with random bits.
const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;

impl RunKey {
    /// The identity of a cache: version of the files, sizes of the pages, and the text that names the model and its arithmetic.
    pub(super) fn identity(text: &str, shape: RunShape) -> Self {
        let start = Self(u128::from(VERSION));
        let sizes = [
            shape.page_tokens as u64,
            shape.page_bytes as u64,
            shape.pages as u64,
            text.len() as u64,
        ];
        let start = sizes.into_iter().fold(start, Self::then);
        start.then_bytes(text.as_bytes())
    }

    fn then(self, value: u64) -> Self {
        let x = (self.0 ^ u128::from(value)).wrapping_mul(MULTIPLIER);
        Self(x ^ (x >> 67))
    }

    fn then_bytes(self, bytes: &[u8]) -> Self {
        bytes.chunks(8).fold(self, |key, bytes| {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            key.then(u64::from_le_bytes(eight))
        })
    }

    fn then_tokens(self, tokens: &[u32]) -> Self {
        tokens
            .iter()
            .fold(self, |key, &token| key.then(u64::from(token) + 1))
    }
}

/// The whole runs at the beginning of a prompt.
#[derive(Debug)]
pub(super) struct RunPrefix {
    shape: RunShape,
    identity: RunKey,
    root: [u8; ROOT_BYTES],
    /// `runs · run tokens` of them.
    tokens: Vec<u32>,
    /// One for each run.
    keys: Vec<RunKey>,
}

/// One run of a prefix.
#[derive(Clone, Debug)]
pub(super) struct RunPlace {
    pub(super) prefix: Arc<RunPrefix>,
    /// Number of the run.
    pub(super) run: usize,
}

impl RunPrefix {
    /// The whole runs of `tokens`.
    pub(super) fn new(
        (identity, shape): (RunKey, RunShape),
        root: PrefixRoot,
        tokens: &[u32],
    ) -> Self {
        let runs = tokens.len() / shape.tokens();
        let tokens = tokens[..runs * shape.tokens()].to_vec();
        let root = root_bytes(root);
        let mut key = identity.then_bytes(&root);
        let keys = tokens.chunks_exact(shape.tokens()).map(|tokens| {
            key = key.then_tokens(tokens);
            key
        });
        Self {
            keys: keys.collect(),
            shape,
            identity,
            root,
            tokens,
        }
    }

    /// The key of each run.
    pub(super) fn keys(&self) -> &[RunKey] {
        &self.keys
    }

    /// Tokens of a page, counted from the beginning of the prefix.
    pub(super) fn page(&self, page: usize) -> &[u32] {
        let tokens = self.shape.page_tokens;
        &self.tokens[page * tokens..][..tokens]
    }
}

impl RunPlace {
    pub(super) fn key(&self) -> RunKey {
        self.prefix.keys[self.run]
    }

    /// The beginning of the run's file, up to the pages: a file with other bytes is not this run's.
    pub(super) fn head(&self) -> Vec<u8> {
        let prefix = &*self.prefix;
        let tokens = &prefix.tokens[..(self.run + 1) * prefix.shape.tokens()];
        let mut bytes = Vec::with_capacity(HEAD_BYTES + size_of_val(tokens));
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((self.run as u32).to_le_bytes());
        bytes.extend(prefix.identity.0.to_le_bytes());
        bytes.extend(prefix.root);
        bytes.extend((tokens.len() as u32).to_le_bytes());
        bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
        bytes
    }
}

/// The salt, then number and scale of each adapter; zeros after the last one.
fn root_bytes(root: PrefixRoot) -> [u8; ROOT_BYTES] {
    let mut bytes = [0; ROOT_BYTES];
    let (salt, adapters) = bytes.split_at_mut(16);
    salt.copy_from_slice(&root.salt.0.to_le_bytes());
    for (part, (adapter, scale)) in adapters.chunks_exact_mut(8).zip(root.adapters.iter()) {
        part[..4].copy_from_slice(&(adapter as u32 + 1).to_le_bytes());
        part[4..].copy_from_slice(&scale.to_bits().to_le_bytes());
    }
    bytes
}

/// Runs in the directory: about 100 bytes of memory each.
pub(super) const RUNS_MAX: usize = 65_536;

/// The runs that are on the disk, as the engine thread knows them.
#[derive(Default)]
pub(super) struct RunIndex {
    runs: HashMap<RunKey, IndexedRun>,
    /// By the number of the last use.
    by_use: BTreeMap<u64, RunKey>,
    bytes: u64,
    uses: u64,
}

struct IndexedRun {
    run: u32,
    bytes: u64,
    used: u64,
}

impl RunIndex {
    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn contains(&self, key: RunKey) -> bool {
        self.runs.contains_key(&key)
    }

    /// Adds a run as the most recently used one. `run` is its number in the prefix.
    pub(super) fn insert(&mut self, key: RunKey, run: u32, bytes: u64) {
        self.remove(key);
        self.uses += 1;
        let used = self.uses;
        self.runs.insert(key, IndexedRun { run, bytes, used });
        self.by_use.insert(used, key);
        self.bytes += bytes;
    }

    /// Makes these runs, the first ones of a prefix, the most recently used. The first of them is then used last, so that
    /// eviction takes the ends of prefixes before their beginnings.
    pub(super) fn touch(&mut self, keys: &[RunKey]) {
        for key in keys.iter().rev() {
            if let Some(run) = self.runs.get_mut(key) {
                self.uses += 1;
                self.by_use.remove(&run.used);
                run.used = self.uses;
                self.by_use.insert(run.used, *key);
            }
        }
    }

    /// Forgets a run, if it is known.
    pub(super) fn remove(&mut self, key: RunKey) {
        if let Some(run) = self.runs.remove(&key) {
            self.by_use.remove(&run.used);
            self.bytes -= run.bytes;
        }
    }

    /// The least recently used run, and its number in the prefix.
    pub(super) fn oldest(&self) -> Option<(RunKey, u32)> {
        let (_, key) = self.by_use.first_key_value()?;
        Some((*key, self.runs.get(key)?.run))
    }
}

/// Tokens of a run, unless a page has more or [`RUN_BYTES`] hold fewer.
pub(super) const RUN_TOKENS: usize = 256;

/// Bytes of a run's pages, unless one page has more: what the engine thread copies at a time.
pub(super) const RUN_BYTES: usize = 16 << 20;

/// Bytes of a file before the tokens: magic, version, number of the run, identity, root, number of tokens.
pub(super) const HEAD_BYTES: usize = 8 + 4 + 4 + 16 + ROOT_BYTES + 4;

/// Bytes of a prefix's root: the salt, and number and scale of each adapter.
pub(super) const ROOT_BYTES: usize = 16 + model::adapters::SEQUENCE_ADAPTERS_MAX * 8;

/// Bytes of the checksum at the end of a file.
pub(super) const CHECKSUM_BYTES: usize = 4;

/// Sizes of the runs of one model; constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunShape {
    /// Tokens of a page.
    pub(super) page_tokens: usize,
    /// Bytes of a page outside the model.
    pub(super) page_bytes: usize,
    /// Pages of a run.
    pub(super) pages: usize,
}

impl RunShape {
    pub(super) fn new(page_tokens: usize, page_bytes: usize) -> Self {
        let pages = (RUN_TOKENS / page_tokens).min(RUN_BYTES / page_bytes);
        Self {
            page_tokens,
            page_bytes,
            pages: pages.max(1),
        }
    }

    /// Tokens of a run.
    pub(super) fn tokens(&self) -> usize {
        self.pages * self.page_tokens
    }

    /// Bytes of a run's pages.
    pub(super) fn bytes(&self) -> usize {
        self.pages * self.page_bytes
    }

    /// Bytes of the file of the run with this number in its prefix.
    pub(super) fn file_bytes(&self, run: u32) -> u64 {
        let tokens = (u64::from(run) + 1) * self.tokens() as u64;
        let rest = HEAD_BYTES + self.bytes() + CHECKSUM_BYTES;
        tokens * size_of::<u32>() as u64 + rest as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AdapterSet, CacheSalt};

    fn prefix(text: &str, root: PrefixRoot, tokens: &[u32]) -> RunPrefix {
        let shape = RunShape {
            page_tokens: 2,
            page_bytes: 8,
            pages: 2,
        };
        RunPrefix::new((RunKey::identity(text, shape), shape), root, tokens)
    }

    #[test]
    fn key_depends_on_identity_root_and_all_tokens_before() {
        let root = PrefixRoot::default();
        let salted = PrefixRoot::from(CacheSalt(7));
        let adapted = PrefixRoot {
            adapters: AdapterSet::new([(0, 1.0)]).expect("a set"),
            ..root
        };
        let scaled = PrefixRoot {
            adapters: AdapterSet::new([(0, 0.5)]).expect("a set"),
            ..root
        };
        let rows = [
            prefix("a", root, &[1, 2, 3, 4, 5, 6, 7, 8]),
            prefix("b", root, &[1, 2, 3, 4, 5, 6, 7, 8]),
            prefix("a", salted, &[1, 2, 3, 4, 5, 6, 7, 8]),
            prefix("a", adapted, &[1, 2, 3, 4, 5, 6, 7, 8]),
            prefix("a", scaled, &[1, 2, 3, 4, 5, 6, 7, 8]),
            prefix("a", root, &[0, 2, 3, 4, 5, 6, 7, 8]),
            prefix("a", root, &[2, 1, 3, 4, 5, 6, 7, 8]),
        ];
        let mut keys: Vec<RunKey> = rows.iter().flat_map(|prefix| prefix.keys.clone()).collect();
        assert_eq!(keys.len(), 2 * rows.len());
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 2 * rows.len(), "two equal keys");
    }

    #[test]
    fn equal_beginnings_have_equal_keys_and_heads() {
        let long = Arc::new(prefix(
            "a",
            PrefixRoot::default(),
            &[1, 2, 3, 4, 5, 6, 7, 8, 9],
        ));
        let short = Arc::new(prefix("a", PrefixRoot::default(), &[1, 2, 3, 4, 9, 9]));
        assert_eq!((long.keys.len(), short.keys.len()), (2, 1));
        assert_eq!(long.keys[0], short.keys[0]);
        assert_eq!(long.page(3), [7, 8]);
        let head = |prefix: &Arc<RunPrefix>, run| {
            let prefix = Arc::clone(prefix);
            RunPlace { prefix, run }.head()
        };
        assert_eq!(head(&long, 0), head(&short, 0));
        let expected = long.shape.file_bytes(1) as usize - long.shape.bytes() - 4;
        assert_eq!(head(&long, 1).len(), expected);
    }

    #[test]
    fn ends_of_prefixes_are_the_oldest() {
        let mut index = RunIndex::default();
        let keys: Vec<RunKey> = (0..6).map(RunKey).collect();
        for (at, &key) in keys.iter().enumerate() {
            index.insert(key, at as u32 % 3, 10);
        }
        index.touch(&keys[..3]);
        index.touch(&keys[3..]);
        assert_eq!((index.len(), index.bytes()), (6, 60));
        let mut order = Vec::new();
        while let Some((key, _)) = index.oldest() {
            order.push(key.0);
            index.remove(key);
        }
        assert_eq!(order, [2, 1, 0, 5, 4, 3]);
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }

    #[test]
    fn run_that_is_inserted_twice_counts_once() {
        let mut index = RunIndex::default();
        index.insert(RunKey(1), 0, 10);
        index.insert(RunKey(1), 0, 12);
        index.remove(RunKey(2));
        assert_eq!((index.len(), index.bytes()), (1, 12));
        assert_eq!(index.oldest(), Some((RunKey(1), 0)));
    }

    #[test]
    fn run_has_its_tokens_unless_pages_are_large() {
        // (tokens and bytes of a page, pages of a run)
        let rows = [
            (32, 1 << 20, 8),
            (32, 4 << 20, 4),
            (32, 32 << 20, 1),
            (512, 1024, 1),
            (4, 48, 64),
        ];
        for (page_tokens, page_bytes, pages) in rows {
            let shape = RunShape::new(page_tokens, page_bytes);
            assert_eq!(shape.pages, pages, "{page_tokens} of {page_bytes} bytes");
        }
    }
}
