//! Speculative decoding: draft tokens are cheap to get, and verified many at once.
//!
//! A decoding sequence has one row per step. With draft tokens there are more rows: the sequence's last token,
//! then the draft tokens. One forward pass gives the logits after each of them. The sampler then samples token
//! by token as always; as long as the sampled token equals the draft token, the next row holds the right
//! logits, and one more token is sampled at once. The first difference ends the verification, and the rows
//! after it are void.
//!
//! **Sampled tokens do not depend on draft tokens.** The logits of a row are the same bits for any batch, the
//! random number of a token is a hash of the token's position, and a draft token decides only whether a row
//! can be used. So a request gets the same tokens, greedy or sampled, with speculation as without, in any
//! batch and whenever speculation is turned on or off. For a deterministic draft (prompt lookup) a draft
//! token is accepted with the probability that the model gives the draft token, which is the rule of
//! Leviathan et al. 2023 and Chen et al. 2023. A draft model or an MTP head samples the draft token with the *same* random
//! number: the two samples are coupled and agree often, though a little less often than under the rule of
//! those papers, which gives up that a seed determines the tokens. `docs/decisions/0007` has the
//! measurements.
//!
//! Draft tokens come from [`prompt_lookup`], from a draft model (`scheduler/draft_model.rs`) or from the model's MTP head
//! (`scheduler/mtp_head.rs`); [`profitability`] decides how many pay. They cost other sequences nothing: they use rows that a step has left, pages that are
//! free (no page is taken from a sequence or from the prefix cache for a draft token), and only steps without prefill.
//!
//! **Forced tokens** are verified in the same way: where a constraint allows one continuation only
//! ([`crate::Constraint::forced`]), the forced tokens are the draft tokens, and each is sampled from a separate row
//! under a mask that allows no other token. So a stretch of them takes one pass, and the reported values
//! (log-probabilities, seeds, the end of an answer, credit) do not change. They need no learning and work with any
//! [`Speculation`], also beside prefill: rows that are left, as many as fit in the step's time, and pages that are free
//! (`scheduler/forced.rs`).

mod draft_state;
mod profitability;

pub(crate) use draft_state::{DraftState, Verification, lookup_prompt};
pub(crate) use profitability::Profitability;

/// Source of draft tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    /// No draft tokens.
    #[default]
    Off,
    /// The tokens that followed an earlier occurrence of the sequence's last tokens (Saxena 2023, "Prompt
    /// Lookup Decoding").
    PromptLookup,
    /// A smaller model with the same vocabulary ([`crate::Engine::with_draft`]).
    Draft,
    /// The model's MTP head ([`model::Forward::mtp_head`]).
    Mtp,
}

/// Forced tokens per sequence and step.
pub const FORCED_TOKENS_MAX: usize = 32;

/// Draft tokens per sequence and step.
pub const DRAFT_TOKENS_MAX: usize = 32;

/// Draft tokens of an MTP head per sequence and step: the head reads the model's hidden state before the last token.
pub const MTP_TOKENS_MAX: usize = 1;
