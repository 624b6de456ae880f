//! What a request that runs can be told: other sampling from the next token on, tokens to go on from.

use crate::Sampling;

/// Tokens that may be put into an answer at one time (4 bytes each).
pub const STEER_TOKENS_MAX: usize = 1024;

/// Changes that wait for the next step, or for their request's first token. More are refused.
pub const STEERS_MAX: usize = 256;

/// A change to a request that runs. `None`: as it was.
///
/// It takes effect at the head of a step, when every choice has its first token: the next token is drawn with
/// the new numbers, after what was put in. What is put in stands in the log as if it had been drawn (with no
/// log-probability), is counted, and may end a choice (its length, a stop string). A form is kept: what it does
/// not allow is left out, with all that comes after.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steer {
    /// As [`Sampling::temperature`].
    pub temperature: Option<f32>,
    /// As [`Sampling::top_k`].
    pub top_k: Option<u32>,
    /// As [`Sampling::top_p`].
    pub top_p: Option<f32>,
    /// As [`Sampling::min_p`].
    pub min_p: Option<f32>,
    /// As [`Sampling::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// As [`Sampling::presence_penalty`].
    pub presence_penalty: Option<f32>,
    /// As [`Sampling::frequency_penalty`].
    pub frequency_penalty: Option<f32>,
    /// Ids to put into each choice, at most [`STEER_TOKENS_MAX`].
    pub inject: Vec<u32>,
}

/// Why a change was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsteered {
    /// Too many wait: try again later.
    Full,
    /// It breaks a bound; the words name the field and the bound.
    Invalid(String),
}

impl Steer {
    /// Makes the change to these numbers.
    pub(crate) fn change(&self, sampling: &mut Sampling) {
        let set = |place: &mut f32, told: Option<f32>| *place = told.unwrap_or(*place);
        set(&mut sampling.temperature, self.temperature);
        set(&mut sampling.top_p, self.top_p);
        set(&mut sampling.min_p, self.min_p);
        set(&mut sampling.repetition_penalty, self.repetition_penalty);
        set(&mut sampling.presence_penalty, self.presence_penalty);
        set(&mut sampling.frequency_penalty, self.frequency_penalty);
        sampling.top_k = self.top_k.unwrap_or(sampling.top_k);
    }
}
