//! The models of the server, by name: which are loaded, and what a request's `model` resolves to.
//!
//! ```text
//! mod             a loaded model                         registry   all models
//! model_entry     one model's state; a ready model and its admission, models on hold
//! listed_model    the list of models, and metadata of their files
//! resolved_model  the entry that a name resolves to, and suggestions for an unknown name
//! loader          loads, unloads and evicts models; interface of the model store
//! loading         loads one model and reports the progress; a request that waits for a model
//! ```
//!
//! The socket is bound before any model is loaded: early requests get the progress of loading. State that depends on
//! a model's sizes (admission: pages, rates) is created when the model becomes ready and lives as long as the model,
//! so that an admitted request keeps its permit. Each model has its own engine and threads: loading or unloading one
//! does not delay another.

use crate::media::VisionProxy;
use crate::metrics::StepMetrics;
use generate::error::ApiError;
use generate::images::Vision;
use generate::model_handle::ModelHandle;
use generate::prompt::no_text_error;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) mod listed_model;
pub(crate) mod loader;
pub(crate) mod loading;
pub(crate) mod model_entry;
pub(crate) mod nested_waits;
pub(crate) mod registry;
pub(crate) mod resolved_model;

pub use crate::records::ModelIdentity;
pub use listed_model::{ListedModel, ModelFacts, ModelTask, TowerFacts};
pub use loader::{Library, LibraryError, LoadError, LoadedModel, LocalModel, PullNews, run_loader};
pub use loading::{LoadPhase, LoadProgress, Loading, ModelLookup, PendingLoad};
pub use model_entry::{ModelEntry, ModelState, ReadyModel};
pub use registry::ModelRegistry;
pub use resolved_model::{ModelLease, ResolvedModel};
pub use wire::derived_model::DerivedModel;
pub use wire::shared::keep_alive::ModelKeepAlive;

/// A loaded model, without the weights.
pub struct ServedModel {
    /// Name in requests.
    pub id: String,
    /// Seconds since the Unix epoch, as in `/v1/models`.
    pub created_unix_s: i64,
    /// Metadata of the model's file.
    pub facts: ModelFacts,
    /// Identity by content.
    pub identity: ModelIdentity,
    /// Handle for generation.
    pub handle: ModelHandle,
    /// The model that describes images for this one; `None`: the model sees images itself, or takes none.
    pub vision_proxy: Option<Arc<VisionProxy>>,
    /// Metrics of the engine's steps ([`StepMetrics::observer`]).
    pub steps: Arc<StepMetrics>,
    /// Why engines of other processes cannot be waited for any longer; `None`: the engine is in this process.
    pub engine_absence: Option<EngineAbsence>,
    /// The arithmetic of the engines of other processes; `None`: that of [`Self::identity`].
    pub engine_arithmetic: Option<EngineArithmetic>,
    /// Whether engines of other processes have the tower of the handle; `None`: the engine is in this process.
    pub engine_sight: Option<EngineSight>,
    /// Name of the device that computes now; `None`: not known, as of engines of other processes.
    pub device: Option<DeviceName>,
}

/// Name of a model's device now, for metrics.
pub type DeviceName = Box<dyn Fn() -> String + Send + Sync>;

/// The arithmetics of the engines that a model has now, as in [`ModelIdentity::arithmetic`]; none: there is no engine.
pub type EngineArithmetic = Box<dyn Fn() -> BTreeSet<String> + Send + Sync>;

/// Whether an engine of a model has the tower by which this process makes prompts with images; true while there is no engine.
pub type EngineSight = Box<dyn Fn() -> bool + Send + Sync>;

impl ServedModel {
    /// How images become rows of a prompt; `None`: the model reads text only, or no engine has its tower.
    pub fn vision(&self) -> Option<&Arc<Vision>> {
        let vision = self.handle.vision.as_ref()?;
        let sight = self.engine_sight.as_ref();
        sight.is_none_or(|sees| sees()).then_some(vision)
    }

    /// Whether requests may have images: the model sees them, or another one describes them.
    pub fn takes_images(&self) -> bool {
        self.vision().is_some() || self.vision_proxy.is_some()
    }

    /// An error for a request for text, if the model generates none.
    pub(crate) fn expect_text(&self) -> Result<(), ApiError> {
        if self.handle.engine.generates() {
            Ok(())
        } else {
            Err(no_text_error(&self.id, self.facts.task.purpose()))
        }
    }

    /// The identity, with the arithmetic of the engines that compute now; empty where that is not one.
    pub fn identity_now(&self) -> ModelIdentity {
        let mut identity = self.identity.clone();
        if let Some(arithmetic) = &self.engine_arithmetic {
            let mut all = arithmetic().into_iter();
            let only = all.next().filter(|_| all.next().is_none());
            identity.arithmetic = only.unwrap_or_default();
        }
        identity
    }

    /// Whether an engine computes now, as far as it is known.
    pub(crate) fn has_engine(&self) -> bool {
        let engines = self.engine_arithmetic.as_ref();
        engines.is_none_or(|arithmetic| !arithmetic().is_empty())
    }
}

/// Why there has been no engine for a model for so long that new requests are rejected; `None`: there was one.
pub type EngineAbsence = Box<dyn Fn() -> Option<String> + Send + Sync>;
