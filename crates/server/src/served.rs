//! The model this server answers for.

use crate::metrics::StepMetrics;
use engine::{Handle, Token, TopLogprob};
use std::sync::Arc;
use stream::SegmentPool;
use text::{ChatTemplate, Tokenizer};

/// Everything the server knows about the loaded model. It never sees weights.
pub struct ServedModel {
    /// The name clients ask for.
    pub id: String,
    /// Seconds since the Unix epoch, as `/v1/models` tells it.
    pub created_unix_s: i64,
    /// Text to ids and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Conversations to prompts.
    pub template: Arc<ChatTemplate>,
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
