//! The models whose requests this process relays, or that wait for an engine.

use super::EngineSearch;
use crate::instances::LiveInstance;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// All searches, in the order of their begin; a few for each loaded model.
#[derive(Default)]
pub(super) struct ModelSearches(Mutex<SearchTable>);

#[derive(Default)]
struct SearchTable {
    searches: Vec<TrackedSearch>,
    next: u64,
}

struct TrackedSearch {
    number: u64,
    search: EngineSearch,
    /// When an engine was there last; the begin before there was one.
    found: Instant,
}

/// A search; ends when dropped.
pub(super) struct OpenSearch {
    searches: Arc<ModelSearches>,
    number: u64,
}

impl ModelSearches {
    pub(super) fn begin(self: &Arc<Self>, search: EngineSearch, now: Instant) -> OpenSearch {
        let mut table = self.lock();
        let number = table.next;
        table.next += 1;
        table.searches.push(TrackedSearch {
            number,
            search,
            found: now,
        });
        OpenSearch {
            searches: Arc::clone(self),
            number,
        }
    }

    /// Notes which models have engines.
    pub(super) fn look(&self, instances: &[LiveInstance], now: Instant) {
        for tracked in &mut self.lock().searches {
            if tracked.search.contexts(instances).next().is_some() {
                tracked.found = now;
            }
        }
    }

    /// Why no model has an engine; `None`: one has, or there is no model.
    pub(super) fn problem(&self, instances: &[LiveInstance]) -> Option<String> {
        let table = self.lock();
        let problems = || {
            let searches = table.searches.iter();
            searches.map(|tracked| tracked.search.problem(instances))
        };
        if problems().any(|problem| problem.is_none()) {
            None
        } else {
            problems().next().flatten()
        }
    }

    /// Whether no search was ever begun.
    pub(super) fn is_new(&self) -> bool {
        self.lock().next == 0
    }

    /// Why the model has had no engine for this time.
    pub(super) fn absence(
        &self,
        key: &str,
        instances: &[LiveInstance],
        wait: Duration,
        now: Instant,
    ) -> Option<String> {
        let table = self.lock();
        let mut searches = table.searches.iter();
        let tracked = searches.find(|tracked| tracked.search.key == key)?;
        let is_over = now.saturating_duration_since(tracked.found) >= wait;
        let problem = is_over.then(|| tracked.search.problem(instances));
        problem.flatten()
    }

    /// The arithmetics of all engines of the model.
    pub(super) fn arithmetic(&self, key: &str, instances: &[LiveInstance]) -> BTreeSet<String> {
        let table = self.lock();
        let mut searches = table.searches.iter();
        let tracked = searches.find(|tracked| tracked.search.key == key);
        tracked.map_or_else(BTreeSet::new, |found| found.search.arithmetic(instances))
    }

    /// All searches.
    pub(super) fn all(&self) -> Vec<EngineSearch> {
        let table = self.lock();
        let searches = table.searches.iter();
        searches.map(|tracked| tracked.search.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, SearchTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenSearch {
    fn drop(&mut self) {
        let mut table = self.searches.lock();
        table
            .searches
            .retain(|tracked| tracked.number != self.number);
    }
}
