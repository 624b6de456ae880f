//! Speculative decoding: tokens are guessed cheaply, and verified many at once.
//!
//! A sequence that generates has one row per step. With guesses it has more: its last token, then
//! the tokens that are guessed to follow (a *run*). One forward pass gives the logits after each of
//! them. The sampler then draws token by token as it always does; as long as what it draws is what
//! was guessed, the next row of the run holds the right logits, and one more token is drawn at
//! once. The first that differs ends the run, and the rows after it are void.
//!
//! **What is drawn does not depend on the guesses.** The logits of a row are the same bits whatever
//! its batch-mates, the random number of a token is a hash of where it stands, and a guess decides
//! only whether a row can be used. So a request gets the same tokens, greedy or sampled, with
//! speculation as without, whoever shares its batch and whenever speculation turns itself on or
//! off. For a guess that is certain (prompt lookup) this accepts with the probability the model
//! gives the guess, which is the rule of Leviathan et al. 2023 and Chen et al. 2023. A draft model
//! draws its guess with the *same* random number: the two draws are coupled and agree often,
//! though a little less often than under the rule of those papers, which gives up that a seed
//! means the same tokens. `docs/decisions/0007` has the figures.
//!
//! Where guesses come from: [`lookup`] (the sequence itself said it before) or a
//! draft model (`scheduler/propose.rs`). Whether they are worth their rows: [`worth`]. They never cost anybody else
//! anything: they use rows that a step has left, pages that are free (no page is taken from a
//! sequence or from the prefix cache for a guess), and only in steps without prefill.

//!
//! **Forced tokens** go the same way: where a form leaves one continuation only ([`crate::Constraint::forced`]),
//! its tokens are the guesses of a run, and each is drawn from its own row as ever, under a mask that leaves nothing else. So
//! a stretch of them takes one pass, and what is reported of them (log-probabilities, seeds, where an answer ends, credit) is what
//! it was. They need no learning and go with any [`Speculation`], also beside prefill: rows that are left, as many as fit
//! in the step's time, and pages that are free (`scheduler/forced.rs`).

mod drafts;
mod lookup;
mod table;
mod worth;

pub(crate) use drafts::Drafts;
pub(crate) use lookup::lookup;
pub(crate) use table::Table;
pub(crate) use worth::Worth;

/// Where guesses come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speculation {
    /// There are none.
    #[default]
    Off,
    /// From what the sequence said before: the tokens that followed the last time it said what it
    /// said last (Saxena 2023, "Prompt Lookup Decoding").
    PromptLookup,
    /// From a smaller model with the same vocabulary ([`crate::Engine::with_draft`]).
    Draft,
}

/// Forced tokens that a sequence is given in one step.
pub const FORCED_TOKENS_MAX: usize = 32;

/// Tokens that may be guessed per sequence and step.
pub const DRAFT_TOKENS_MAX: usize = 32;
