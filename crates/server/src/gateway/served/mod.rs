//! The models this server answers for, by name.
//!
//! ```text
//! mod            what the server knows of a loaded model     registry  all of them
//! slot           one model's state, and who watches it       serving   a ready model behind its own admission
//! load_progress  how far loading is, in counts               loading   the hand that loads one and says how far
//! facts          what its file says of it                    library   who keeps models, and what may be asked of him
//! named          what a name stands for                      wanted    a request's wait for its model
//! near           names meant by one that no model has
//! switch         who is loaded, and who makes room           keep      how long one stays that nobody asks
//! listed         the list of them                            limits    bounds
//! made           requests to models that are others, asked differently
//! ```
//!
//! The socket is bound before any of them is loaded: who comes early is told how far it is. Whatever depends on a
//! model's sizes (admission: its pages, its rate) is made when it becomes ready and lives with it, so a
//! request that was let in keeps what it was let in to. Each has an engine of its own, and threads of its own: loading
//! or leaving, one does not hold up another.

pub(crate) mod facts;
pub(crate) mod keep;
pub(crate) mod library;
pub(crate) mod limits;
pub(crate) mod listed;
pub(crate) mod load_progress;
pub(crate) mod loading;
pub(crate) mod made;
pub(crate) mod named;
pub(crate) mod near;
pub(crate) mod registry;
pub(crate) mod serving;
pub(crate) mod slot;
pub(crate) mod switch;
pub(crate) mod wanted;

pub use facts::ModelFacts;
pub(crate) use keep::Keep;
pub use library::{Library, LibraryError, LoadedModel, LocalModel, Made, PullNews};
pub use limits::ModelLimits;
pub(crate) use listed::Listed;
pub use load_progress::{LoadPhase, LoadProgress};
pub use loading::Loading;
pub(crate) use named::{Held, LATEST, Named};
pub(crate) use registry::ServedModels;
pub(crate) use serving::Serving;
pub(crate) use slot::{Slot, State};
pub(crate) use switch::run as switch;
pub(crate) use wanted::{Found, Wanted};

use crate::gateway::metrics::StepMetrics;
use generate::model_handle::ModelHandle;
use std::sync::Arc;

/// Everything the server knows about the loaded model. It never sees weights.
pub struct ServedModel {
    /// The name clients ask for.
    pub id: String,
    /// Seconds since the Unix epoch, as `/v1/models` tells it.
    pub created_unix_s: i64,
    /// What its file says of it.
    pub facts: ModelFacts,
    /// The model as generation uses it.
    pub handle: ModelHandle,
    /// What its observer measures ([`StepMetrics::observer`]).
    pub steps: Arc<StepMetrics>,
}
