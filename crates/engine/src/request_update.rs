//! Updates of running requests: new sampling parameters from the next token on, and tokens to append.

use crate::SamplingParams;

/// Tokens appended by one update (4 bytes each).
pub const INJECT_TOKENS_MAX: usize = 1024;

/// Updates that wait for the next step, or for their request's first token. More are rejected.
pub const UPDATES_MAX: usize = 256;

/// An update of a running request. `None`: unchanged.
///
/// An update takes effect at the head of a step, when every choice has a first token: the next token is sampled with
/// the new parameters, after the injected tokens. These are in the log like sampled tokens (with no log-probability),
/// count as generated, and may end a choice (by length or a stop string). A constraint holds: the first injected token
/// that the constraint does not allow is left out, with all later tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestUpdate {
    /// As [`SamplingParams::temperature`].
    pub temperature: Option<f32>,
    /// As [`SamplingParams::top_k`].
    pub top_k: Option<u32>,
    /// As [`SamplingParams::top_p`].
    pub top_p: Option<f32>,
    /// As [`SamplingParams::min_p`].
    pub min_p: Option<f32>,
    /// As [`SamplingParams::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// As [`SamplingParams::presence_penalty`].
    pub presence_penalty: Option<f32>,
    /// As [`SamplingParams::frequency_penalty`].
    pub frequency_penalty: Option<f32>,
    /// Token ids appended to each choice, at most [`INJECT_TOKENS_MAX`].
    pub inject: Vec<u32>,
}

/// The reason why an update was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateRejected {
    /// Too many updates wait: try again later.
    Full,
    /// A bound is broken; the message names the field and the bound.
    Invalid(String),
}

impl RequestUpdate {
    /// Applies the update to these parameters, without the injected tokens.
    pub fn change(&self, sampling: &mut SamplingParams) {
        let set = |value: &mut f32, new: Option<f32>| *value = new.unwrap_or(*value);
        set(&mut sampling.temperature, self.temperature);
        set(&mut sampling.top_p, self.top_p);
        set(&mut sampling.min_p, self.min_p);
        set(&mut sampling.repetition_penalty, self.repetition_penalty);
        set(&mut sampling.presence_penalty, self.presence_penalty);
        set(&mut sampling.frequency_penalty, self.frequency_penalty);
        sampling.top_k = self.top_k.unwrap_or(sampling.top_k);
    }

    /// Replaces the parameters that a later update sets. The injected tokens stay as they are.
    pub fn override_with(&mut self, later: &Self) {
        let set = |value: &mut Option<f32>, new: Option<f32>| *value = new.or(*value);
        set(&mut self.temperature, later.temperature);
        set(&mut self.top_p, later.top_p);
        set(&mut self.min_p, later.min_p);
        set(&mut self.repetition_penalty, later.repetition_penalty);
        set(&mut self.presence_penalty, later.presence_penalty);
        set(&mut self.frequency_penalty, later.frequency_penalty);
        self.top_k = later.top_k.or(self.top_k);
    }
}
