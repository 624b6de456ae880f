//! The interface between the engine and a model: a batch of tokens in, logits out.
//!
//! Knows neither files nor arithmetic: crate `weights` reads models, and crate `cpu` computes.

pub mod adapters;
mod ahead;
mod batch;
mod block;
mod encode;
mod forward;
mod row_inputs;
mod span_states;

pub use adapters::AdapterSet;
pub use ahead::{Ahead, DRAWN, DrawOutcome, DrawRule, DrawView, Drawn, DrawnToken, Draws};
pub use batch::{Batch, PageId, Span, SpanView, Want};
pub use block::AdvanceBlock;
pub use encode::{Encode, EncodeError, EncoderDims, EncoderInput};
pub use forward::{Capabilities, DeviceFault, Dims, ExportPages, Forward, ForwardError, Predict};
pub use row_inputs::{RowAdditions, VECTOR, VectorRows};
pub use span_states::{KEPT_MAX, KeptState, SpanStates, StateId};
