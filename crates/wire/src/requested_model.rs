//! Properties of a model that the parsing of a request depends on.

use crate::derived_model::DerivedModel;
use generate::adapters::ModelAdapters;
use generate::sampling_defaults::SamplingDefaults;
use text::Capabilities;

/// Properties of a model that the parsing of a request depends on.
#[derive(Clone, Copy)]
pub struct RequestedModel<'a> {
    /// Name for error messages.
    pub id: &'a str,
    /// Defaults, if the request names a derived model.
    pub derived: Option<&'a DerivedModel>,
    /// Sampling parameters of requests that set none.
    pub sampling: SamplingDefaults,
    /// Stop strings of answers in a conversation.
    pub stops: &'static [&'static str],
    /// Capabilities of the model.
    pub capabilities: Capabilities,
    /// Adapters that a request may use.
    pub adapters: &'a ModelAdapters,
    /// Number of token ids.
    pub vocab_size: usize,
}
