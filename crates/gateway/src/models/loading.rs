//! Progress and result of loading a model, reported from any thread.
//!
//! A request's wait for a model.
//!
//! A request for a model that is not loaded queues the model and watches the model's state. The number and the
//! duration of waits are bounded; the failure of a model ends the waits of all requests for that model.

use super::model_entry::NO_ENGINE;
use super::{
    LoadedModel, ModelEntry, ModelLease, ModelRegistry, ModelState, ReadyModel, ResolvedModel,
    ServedModel,
};
use generate::error::ApiError;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::spawn_blocking;
use wire::clock;

/// A model that is being loaded. Dropped without a word, loading has failed.
pub struct Loading {
    models: Arc<ModelRegistry>,
    entry: Arc<ModelEntry>,
    told: bool,
}

impl Loading {
    pub(crate) fn begin_loading(models: Arc<ModelRegistry>, entry: Arc<ModelEntry>) -> Self {
        entry.set_state(ModelState::Loading {
            since: clock::now(),
            progress: LoadProgress::default(),
        });
        Self {
            models,
            entry,
            told: false,
        }
    }

    /// Reports the progress. Cheap: a lock, and a wake-up of watchers.
    pub fn report_progress(&self, progress: LoadProgress) {
        self.entry.set_progress(progress);
    }

    /// The model is ready, for as long as the server runs. (During a shutdown, the model is closed at once.)
    pub fn model_ready(mut self, model: Arc<ServedModel>) {
        self.models.counts_load(&self.entry);
        let serving = self.entry.set_ready(self.ready_model(model));
        self.can_answer(&serving);
    }

    /// The model is ready, until unloaded.
    pub fn model_loaded(mut self, model: LoadedModel) {
        if self.entry.weights.is_none() {
            self.models.find_first(&model.model.id);
        }
        self.models.counts_load(&self.entry);
        let serving = self.ready_model(Arc::clone(&model.model));
        let serving = self.entry.set_loaded(model, serving);
        self.can_answer(&serving);
    }

    /// Loading failed.
    pub fn load_failed(mut self) {
        self.told = true;
        self.models.loading_failed(&self.entry);
    }

    /// No engine of another process computes for the model.
    pub fn no_engine(mut self, why: String) {
        self.told = true;
        self.models
            .loading_ended(&self.entry, ModelState::NoEngine(why.into()));
    }

    /// There is no memory for the model.
    pub(crate) fn too_large(mut self, why: String) {
        self.told = true;
        self.models
            .loading_ended(&self.entry, ModelState::TooLarge(why.into()));
    }

    fn ready_model(&self, model: Arc<ServedModel>) -> ReadyModel {
        let serving = ReadyModel::new(model, &self.models.gateway_limits());
        self.set_hold(&serving);
        serving
    }

    fn set_hold(&self, serving: &ReadyModel) {
        let is_on_hold = self.models.is_held(&self.entry);
        serving.admission.set_hold(is_on_hold);
    }

    fn can_answer(&mut self, serving: &ReadyModel) {
        self.told = true;
        // The hold may have ended before the model was published.
        self.set_hold(serving);
        self.models.look_again();
        if self.models.is_closed() {
            serving.close_admission(&self.models.gateway_limits());
        }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if !self.told {
            self.models.loading_failed(&self.entry);
        }
    }
}

/// Bounds of `Retry-After` for a model that is loading.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(100);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Phase of loading a model.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadPhase {
    /// The header of the model file is read.
    #[default]
    Opening,
    /// The tokenizer and the chat template are created.
    Tokenizer,
    /// The weights are read and packed.
    Weights,
    /// Memory is reserved, and the engine is started.
    Starting,
}

impl LoadPhase {
    /// Name in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Tokenizer => "tokenizer",
            Self::Weights => "weights",
            Self::Starting => "starting",
        }
    }
}

/// Progress of loading a model; a total of 0 is not known yet.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub struct LoadProgress {
    /// The current phase.
    pub phase: LoadPhase,
    /// Bytes of the tensors that are loaded.
    pub bytes_done: u64,
    /// Bytes of all tensors of the model.
    pub bytes_total: u64,
    /// Number of tensors that are loaded.
    pub tensors_done: u64,
    /// Number of all tensors of the model.
    pub tensors_total: u64,
}

impl LoadProgress {
    /// Percent by bytes, rounded down. 100 is reported for ready models only.
    pub fn percent(&self) -> u64 {
        let done = u128::from(self.bytes_done) * 100 / u128::from(self.bytes_total.max(1));
        u64::try_from(done).unwrap_or(u64::MAX).min(99)
    }

    /// For people.
    pub(crate) fn summary_text(&self) -> String {
        let (phase, percent) = (self.phase.name(), self.percent());
        format!(
            "{percent} %, {phase}, {} of {} tensors",
            self.tensors_done, self.tensors_total
        )
    }

    /// Remaining time at the speed of the time `passed`; `unknown` before the first bytes.
    pub(crate) fn time_left(&self, passed: Duration, unknown: Duration) -> Duration {
        let left = match self.bytes_done {
            0 => unknown,
            done => passed.mul_f64(self.bytes_total.saturating_sub(done) as f64 / done as f64),
        };
        left.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }
}

/// A request that waits for a model; the drop ends the wait.
pub struct PendingLoad {
    models: Arc<ModelRegistry>,
    /// The model that the request waits for.
    pub named: ResolvedModel,
}

impl Drop for PendingLoad {
    fn drop(&mut self) {
        self.named.entry.count_waiting(false);
        self.models.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Result of looking up a request's model.
pub enum ModelLookup {
    /// The model is ready.
    Ready(ModelLease),
    /// The model has to be waited for.
    Pending(PendingLoad),
}

impl ModelLookup {
    /// Waits for the model.
    ///
    /// # Errors
    /// The model will not be ready.
    pub async fn lease(self) -> Result<ModelLease, ApiError> {
        match self {
            Self::Ready(held) => Ok(held),
            Self::Pending(wanted) => wanted.lease().await,
        }
    }
}

impl ModelRegistry {
    /// Finds the model of this name, and queues the model for loading if needed.
    ///
    /// # Errors
    /// The name is unknown; the model is not ready and cannot be loaded on demand; too many requests wait.
    pub async fn want_named(self: &Arc<Self>, name: Option<&str>) -> Result<ModelLookup, ApiError> {
        let named = self.look_up(name).await?;
        let refused = match named.try_lease() {
            Ok(held) => return Ok(ModelLookup::Ready(held)),
            Err(refused) => refused,
        };
        let is_ready = matches!(named.entry.state(), ModelState::Ready(_));
        let Some(library) = self
            .library()
            .filter(|_| !(is_ready && is_no_engine(&refused)))
        else {
            return Err(refused);
        };
        let limits = self.gateway_limits();
        let (library, wanted) = (Arc::clone(library), named.clone());
        let obstacle = move || library.obstacle(&wanted.name, wanted.entry.weights.as_deref());
        let obstacle = spawn_blocking(obstacle).await;
        if let Some(why) = obstacle.unwrap_or_default() {
            return Err(ApiError::capacity(NO_ENGINE, why, limits.retry_after));
        }
        let wanted = PendingLoad {
            models: Arc::clone(self),
            named,
        };
        wanted.named.entry.count_waiting(true);
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= limits.models.waiting_max {
            let words = "too many requests wait for models to be loaded";
            // Once the model is expected, a waiting request may have left as well.
            let again = refused.retry_after.unwrap_or(limits.retry_after);
            return Err(ApiError::capacity("overloaded", words, again));
        }
        self.request_load(&wanted.named.entry);
        Ok(ModelLookup::Pending(wanted))
    }

    /// The model of this name if ready; else the model is queued for loading. May block for the lookup of the name.
    ///
    /// # Errors
    /// The name is unknown, or the model is not ready: the error has the loading progress.
    pub fn hold_now(&self, name: Option<&str>) -> Result<ModelLease, ApiError> {
        let named = self.find_blocking(name)?;
        named.try_lease().inspect_err(|_| {
            if self.library().is_some() {
                self.request_load(&named.entry);
            }
        })
    }
}

fn is_no_engine(error: &ApiError) -> bool {
    error.code == NO_ENGINE
}

impl PendingLoad {
    /// Waits for the model.
    ///
    /// # Errors
    /// The load failed or timed out, or the server shuts down.
    pub async fn lease(self) -> Result<ModelLease, ApiError> {
        let limits = self.models.gateway_limits();
        let mut states = self.named.entry.watch_state();
        let mut closing = self.models.close_watch();
        let settled = async {
            loop {
                // Later changes wake this wait, also if they are read here.
                let seen = states.borrow_and_update().clone();
                match (self.named.try_lease(), seen) {
                    (Ok(held), _) => return Ok(held),
                    // The model was unloaded before this request got a lease.
                    (Err(_), ModelState::Unloaded) => self.models.request_load(&self.named.entry),
                    (
                        Err(refused),
                        ModelState::Failed | ModelState::TooLarge(_) | ModelState::NoEngine(_),
                    ) => return Err(refused),
                    (Err(refused), ModelState::Ready(_)) if is_no_engine(&refused) => {
                        return Err(refused);
                    }
                    (
                        Err(_),
                        ModelState::Queued { .. }
                        | ModelState::Loading { .. }
                        | ModelState::Ready(_),
                    ) => {}
                }
                // The sender lives as long as the slot.
                let _ = states.changed().await;
            }
        };
        tokio::select! {
            settled = settled => settled,
            () = tokio::time::sleep(limits.models.patience) => {
                let late = self.named.try_lease();
                late.map_err(|error| ApiError { code: "timeout", ..error })
            }
            _ = closing.wait_for(|&closing| closing) => {
                let words = "the server is shutting down";
                Err(ApiError::capacity("shutting_down", words, limits.retry_after))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_progress_has_percent_and_time_left() {
        let at = |bytes_done, bytes_total| LoadProgress {
            bytes_done,
            bytes_total,
            ..LoadProgress::default()
        };
        let (passed, unknown) = (Duration::from_secs(10), Duration::from_secs(1));
        let rows = [
            ("nothing known", at(0, 0), 0, 1000),
            ("nothing done", at(0, 100), 0, 1000),
            ("a tenth: the most", at(1, 100), 1, 60_000),
            ("half", at(50, 100), 50, 10_000),
            ("nearly", at(100, 101), 99, 100),
            ("packed, not ready", at(100, 100), 99, 100),
            ("no overflow", at(u64::MAX, u64::MAX), 99, 100),
        ];
        for (label, progress, percent, left_ms) in rows {
            assert_eq!(progress.percent(), percent, "{label}");
            let left = progress.time_left(passed, unknown);
            assert_eq!(left.as_millis(), left_ms, "{label}");
        }
    }
}
