//! Grammars that were compiled lately.

use super::Grammar;
use std::collections::HashMap;
use std::sync::Arc;

/// Compiled grammars that are kept for the next request with the same source.
pub const GRAMMARS_MAX: usize = 64;

/// The grammars used last, by their source.
#[derive(Default)]
pub(super) struct Cache {
    grammars: HashMap<String, Used>,
    /// Uses so far.
    uses: u64,
}

struct Used {
    grammar: Arc<Grammar>,
    /// The number of its last use.
    last: u64,
}

impl Cache {
    pub(super) fn get(&mut self, key: &str) -> Option<Arc<Grammar>> {
        self.uses += 1;
        let used = self.grammars.get_mut(key)?;
        used.last = self.uses;
        Some(Arc::clone(&used.grammar))
    }

    /// Keeps this one too, in place of the one that was not used for longest.
    pub(super) fn put(&mut self, key: String, grammar: &Arc<Grammar>) {
        if self.grammars.len() >= GRAMMARS_MAX && !self.grammars.contains_key(&key) {
            let oldest = self.grammars.iter().min_by_key(|(_, used)| used.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.grammars.remove(&oldest);
            }
        }
        self.uses += 1;
        let used = Used {
            grammar: Arc::clone(grammar),
            last: self.uses,
        };
        self.grammars.insert(key, used);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.grammars.len()
    }
}
