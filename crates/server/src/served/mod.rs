//! The models this server answers for, by name.
//!
//! ```text
//! mod            what the server knows of a loaded model     registry  name -> state
//! slot           one name's state, and who watches it        serving   a ready model behind its own admission
//! load_progress  how far loading is, in counts               loading   the hand that loads one and says how far
//! facts          what its file says of it
//! ```
//!
//! A name is *unloaded* until somebody begins to load it, then *loading*, and then *ready* or *failed*. The
//! socket is bound before any of this: who comes early is told how far it is and when to come back.
//! Whatever depends on a model's sizes (admission: its pages, its rate) is made when it becomes ready and
//! lives with it, so a request that was let in keeps what it was let in to.

mod facts;
mod load_progress;
mod loading;
mod registry;
mod serving;
mod slot;

pub use facts::ModelFacts;
pub use load_progress::{LoadPhase, LoadProgress};
pub use loading::Loading;
pub(crate) use registry::ServedModels;
pub(crate) use serving::Serving;
pub(crate) use slot::{Slot, State};

use crate::metrics::StepMetrics;
use engine::{Handle, Token, TopLogprob};
use std::sync::Arc;
use stream::SegmentPool;
use text::{AnswerFormat, ChatTemplate, Tokenizer};

/// Everything the server knows about the loaded model. It never sees weights.
pub struct ServedModel {
    /// The name clients ask for.
    pub id: String,
    /// Seconds since the Unix epoch, as `/v1/models` tells it.
    pub created_unix_s: i64,
    /// What its file says of it.
    pub facts: ModelFacts,
    /// Text to ids and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Conversations to prompts.
    pub template: Arc<ChatTemplate>,
    /// How it writes calls and reasoning.
    pub answers: AnswerFormat,
    /// The engine that runs it.
    pub engine: Handle,
    /// What its observer measures ([`StepMetrics::observer`]).
    pub steps: Arc<StepMetrics>,
    /// Tokens that prompt and answer may have together.
    pub context_max: usize,
    /// End-of-sequence ids.
    pub eos: Arc<[u32]>,
    /// Where token logs take their segments from.
    pub token_pool: SegmentPool<Token>,
    /// Where the logs of alternatives take their segments from.
    pub top_pool: SegmentPool<TopLogprob>,
}
