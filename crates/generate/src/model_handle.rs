//! A loaded model for generation: text to ids and back, and the engine.

use crate::adapters::ModelAdapters;
use engine::{Handle, Token, TopLogprob};
use std::sync::Arc;
use stream::SegmentPool;
use text::{AnswerFormat, Capabilities, ChatTemplate, Tokenizer};

/// A loaded model. The weights are the engine's alone.
#[derive(Clone)]
pub struct ModelHandle {
    /// Text to ids and back.
    pub tokenizer: Arc<Tokenizer>,
    /// Conversations to prompts.
    pub template: Arc<ChatTemplate>,
    /// How the model writes tool calls and reasoning.
    pub answers: AnswerFormat,
    /// Features of the chat template.
    pub capabilities: Capabilities,
    /// Adapters that requests may use.
    pub adapters: Arc<ModelAdapters>,
    /// The engine that runs the model.
    pub engine: Handle,
    /// Tokens that prompt and answer may have together.
    pub context_max: usize,
    /// End-of-sequence ids.
    pub eos: Arc<[u32]>,
    /// Segments of token logs.
    pub token_pool: SegmentPool<Token>,
    /// Segments of the logs of alternatives.
    pub top_pool: SegmentPool<TopLogprob>,
}
