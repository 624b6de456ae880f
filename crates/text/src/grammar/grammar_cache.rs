//! Cache of compiled grammars and of rejected sources.

use super::error::GrammarError;
use super::grammar_matcher::Grammar;
use std::collections::HashMap;
use std::sync::Arc;

/// Compiled grammars that are kept for later requests with equal sources.
pub const GRAMMARS_MAX: usize = 64;
/// Rejections that are kept for later requests with equal sources, separate from the grammars: rejected
/// sources evict no grammar.
pub const REFUSALS_MAX: usize = 64;

/// The most recently used grammars and rejections, by source.
pub(super) struct GrammarCache {
    grammars: RecentlyUsed<Arc<Grammar>>,
    refusals: RecentlyUsed<GrammarError>,
}

impl Default for GrammarCache {
    fn default() -> Self {
        Self {
            grammars: RecentlyUsed::new(GRAMMARS_MAX),
            refusals: RecentlyUsed::new(REFUSALS_MAX),
        }
    }
}

impl GrammarCache {
    pub(super) fn get(&mut self, key: &str) -> Option<Result<Arc<Grammar>, GrammarError>> {
        match self.grammars.get(key) {
            Some(grammar) => Some(Ok(grammar)),
            None => self.refusals.get(key).map(Err),
        }
    }

    /// Inserts a result and evicts the least recently used one of its kind.
    pub(super) fn put(&mut self, key: String, compiled: &Result<Arc<Grammar>, GrammarError>) {
        match compiled {
            Ok(grammar) => self.grammars.put(key, Arc::clone(grammar)),
            Err(refusal) => self.refusals.put(key, refusal.clone()),
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.grammars.values.len(), self.refusals.values.len())
    }
}

/// A least-recently-used map.
struct RecentlyUsed<V> {
    values: HashMap<String, CachedValue<V>>,
    most: usize,
    /// Number of uses so far.
    uses: u64,
}

struct CachedValue<V> {
    value: V,
    /// Number of the last use.
    last: u64,
}

impl<V: Clone> RecentlyUsed<V> {
    fn new(most: usize) -> Self {
        Self {
            values: HashMap::new(),
            most,
            uses: 0,
        }
    }

    fn get(&mut self, key: &str) -> Option<V> {
        self.uses += 1;
        let used = self.values.get_mut(key)?;
        used.last = self.uses;
        Some(used.value.clone())
    }

    fn put(&mut self, key: String, value: V) {
        if self.values.len() >= self.most && !self.values.contains_key(&key) {
            let oldest = self.values.iter().min_by_key(|(_, used)| used.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.values.remove(&oldest);
            }
        }
        self.uses += 1;
        let last = self.uses;
        self.values.insert(key, CachedValue { value, last });
    }
}
