//! Requests that wait for a model while they keep another one: those with images that another model describes.
//!
//! Such a request *keeps* a model, which is not idle until the request ends, and *waits* for another one, for which the loader
//! evicts idle models only. The bad interleavings: the wanted model has no room next to the kept ones, so that the request
//! waits for its own end; or the loader waits for a kept model to be idle, to load one that was queued before the wanted one.
//! Neither can happen: a wait begins only if the largest model that is waited for so has room next to all kept ones, and the
//! loader takes models that are waited for so before others. All other models become idle without such a wait.

use super::{ModelEntry, ModelLease, ModelRegistry, ModelState, ReadyModel};
use crate::locks::lock;
use generate::error::ApiError;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::task::spawn_blocking;

/// The waits of all requests that keep another model.
#[derive(Default)]
pub(crate) struct NestedWaits(Mutex<Vec<Arc<NestedWait>>>);

/// A wait for one model by a request that keeps another.
struct NestedWait {
    kept: Arc<ModelEntry>,
    wanted: Arc<ModelEntry>,
    /// Bytes of the kept model.
    held: u64,
    /// Bytes of the wanted model.
    needed: u64,
}

/// A wait that has begun; the drop ends it.
struct BegunWait<'a>(&'a NestedWaits, Arc<NestedWait>);

/// Why a wait does not begin.
#[derive(Debug, PartialEq, Eq)]
enum NoRoom {
    /// There is none next to the request's own model.
    Ever,
    /// Other such requests have it.
    Now,
}

impl NestedWaits {
    fn begin(&self, wait: NestedWait, budget: Option<u64>) -> Result<BegunWait<'_>, NoRoom> {
        let mut waits = lock(&self.0);
        let budget = budget.unwrap_or(u64::MAX);
        if wait.held.saturating_add(wait.needed) > budget {
            return Err(NoRoom::Ever);
        }
        let mut kept = vec![&wait];
        for other in waits.iter() {
            if !kept
                .iter()
                .any(|known| Arc::ptr_eq(&known.kept, &other.kept))
            {
                kept.push(other);
            }
        }
        let kept: u64 = kept.iter().map(|wait| wait.held).sum();
        let needed = waits.iter().map(|other| other.needed).max().unwrap_or(0);
        if kept.saturating_add(needed.max(wait.needed)) > budget {
            return Err(NoRoom::Now);
        }
        let wait = Arc::new(wait);
        waits.push(Arc::clone(&wait));
        Ok(BegunWait(self, wait))
    }

    /// The entry that is to be loaded next: the one that waits longest, of those that requests with another model wait for,
    /// else of all.
    pub(crate) fn first_queued<'a>(
        &self,
        entries: &'a [Arc<ModelEntry>],
    ) -> Option<&'a Arc<ModelEntry>> {
        let waits = lock(&self.0);
        let rank = |entry: &Arc<ModelEntry>| -> Option<(bool, Instant)> {
            let ModelState::Queued { since } = entry.state() else {
                return None;
            };
            let is_wanted = waits.iter().any(|wait| Arc::ptr_eq(&wait.wanted, entry));
            Some((!is_wanted, since))
        };
        let queued = entries
            .iter()
            .filter_map(|entry| Some((rank(entry)?, entry)));
        queued.min_by_key(|&(rank, _)| rank).map(|(_, entry)| entry)
    }
}

impl Drop for BegunWait<'_> {
    fn drop(&mut self) {
        let Self(waits, wait) = self;
        lock(&waits.0).retain(|other| !Arc::ptr_eq(other, wait));
    }
}

impl ModelRegistry {
    /// A lease of the model of this name, for a request that keeps a model until it ends. The model is loaded if needed, and
    /// waited for unless the kept one leaves no memory for it.
    ///
    /// # Errors
    /// As of [`ModelRegistry::want_named`] and of the wait; there is no memory for the model.
    pub(crate) async fn lease_beside(
        self: &Arc<Self>,
        name: &str,
        kept: &Arc<ReadyModel>,
    ) -> Result<ModelLease, ApiError> {
        let wanted = self.look_up(Some(name)).await?;
        if let Ok(lease) = wanted.try_lease() {
            return Ok(lease);
        }
        let wait = self.nested_wait(wanted.entry, kept).await;
        let _begun = wait.map(|wait| self.begin_nested(wait)).transpose()?;
        self.want_named(Some(name)).await?.lease().await
    }

    /// The wait for a model by a request that keeps this one; `None`: no model is loaded here.
    async fn nested_wait(
        &self,
        wanted: Arc<ModelEntry>,
        kept: &Arc<ReadyModel>,
    ) -> Option<NestedWait> {
        let library = Arc::clone(self.library()?);
        let mut ready = self.ready_models();
        let (kept, _) = ready.find(|(_, serving)| Arc::ptr_eq(serving, kept))?;
        drop(ready);
        let weights = wanted.weights.clone();
        let needed = spawn_blocking(move || library.bytes_needed(weights.as_deref())).await;
        Some(NestedWait {
            held: kept.memory_bytes(),
            kept,
            wanted,
            // The load tells why the size cannot be read.
            needed: needed.unwrap_or(Ok(0)).unwrap_or(0),
        })
    }

    fn begin_nested(&self, wait: NestedWait) -> Result<BegunWait<'_>, ApiError> {
        let limits = self.gateway_limits();
        let budget = limits.models.memory_bytes;
        let mib = [wait.needed, wait.held, budget.unwrap_or(0)].map(|bytes| bytes >> 20);
        let ([needed, held, most], kept) = (mib, Arc::clone(&wait.kept));
        let begun = self.nested_waits.begin(wait, budget);
        begun.map_err(|why| match why {
            NoRoom::Ever => {
                let name = kept.id();
                let why = format!(
                    "it needs {needed} MiB of memory next to the {held} MiB of model {name}, which the request is for, \
                     and all models together may have {most} MiB (models.memory_budget_mib)"
                );
                ApiError::ours("model_failed", why)
            }
            NoRoom::Now => {
                let why = "the models of other requests with images leave no memory for it now (models.memory_budget_mib)";
                ApiError::capacity("overloaded", why, limits.retry_after)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{GatewayLimits, LiveLimits, ResponseLimits};
    use std::time::Duration;
    use wire::clock;

    fn entries<const N: usize>(names: [&str; N]) -> [Arc<ModelEntry>; N] {
        let responses = ResponseLimits {
            stored_max: 0,
            stored_bytes: 0,
        };
        let limits = Arc::new(LiveLimits::new(GatewayLimits::of_tests(responses)));
        names.map(|name| {
            let weights = Some(name.to_owned());
            Arc::new(ModelEntry::new(
                name.to_owned(),
                weights,
                Arc::clone(&limits),
            ))
        })
    }

    fn wait(
        (kept, held): (&Arc<ModelEntry>, u64),
        (wanted, needed): (&Arc<ModelEntry>, u64),
    ) -> NestedWait {
        NestedWait {
            kept: Arc::clone(kept),
            wanted: Arc::clone(wanted),
            held,
            needed,
        }
    }

    #[test]
    fn wait_begins_only_where_all_kept_models_leave_room() {
        let [a, b, seer, small] = entries(["a", "b", "seer", "small"]);
        let waits = NestedWaits::default();
        let begin = |kept, wanted| waits.begin(wait(kept, wanted), Some(100));
        assert_eq!(begin((&a, 60), (&seer, 41)).err(), Some(NoRoom::Ever));
        let first = begin((&a, 40), (&seer, 40)).ok();
        assert!(first.is_some());
        let same = begin((&a, 40), (&seer, 40)).ok();
        assert!(same.is_some(), "a model is kept once");
        assert_eq!(begin((&b, 30), (&seer, 40)).err(), Some(NoRoom::Now));
        let smaller = begin((&b, 30), (&small, 10)).err();
        assert_eq!(smaller, Some(NoRoom::Now), "the larger one waits, too");
        drop((first, same));
        assert!(begin((&b, 30), (&small, 10)).is_ok());
        assert!(waits.begin(wait((&a, 60), (&seer, 41)), None).is_ok());
    }

    #[test]
    fn model_that_a_request_with_another_one_waits_for_is_loaded_first() {
        let [large, seer, kept] = entries(["large", "seer", "kept"]);
        let (waits, now) = (NestedWaits::default(), clock::now());
        large.queue_load(now);
        seer.queue_load(now + Duration::from_secs(1));
        let all = [large, seer, kept];
        let first = || waits.first_queued(&all).map(|entry| entry.id());
        assert_eq!(first(), Some("large"), "it waits longest");
        let begun = waits.begin(wait((&all[2], 1), (&all[1], 1)), None).ok();
        assert!(begun.is_some());
        assert_eq!(first(), Some("seer"));
        drop(begun);
        assert_eq!(first(), Some("large"));
    }
}
