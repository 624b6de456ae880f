//! A loaded model for generation: text to ids and back, the engine, and its adapters (LoRA) by name.

use crate::error::ApiError;
use crate::images::Vision;
use engine::{ADAPTER_SCALE_MAX, AdapterSet, Handle, SEQUENCE_ADAPTERS_MAX, Token, TopLogprob};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use stream::{PoolLimits, SegmentPool};
use text::{AnswerFormat, Capabilities, ChatTemplate, Decoder, Tokenizer};

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
    /// How images become rows of a prompt; `None`: the model reads text only.
    pub vision: Option<Arc<Vision>>,
    /// Tokens that prompt and answer may have together.
    pub context_max: usize,
    /// End-of-sequence ids.
    pub eos: Arc<[u32]>,
    /// Segments of token logs.
    pub token_pool: SegmentPool<Token>,
    /// Segments of the logs of alternatives.
    pub top_pool: SegmentPool<TopLogprob>,
}

impl ModelHandle {
    /// A model that reads text, without adapters, whose answers are plain text, and whose template has all features. Both pools get
    /// `limits`.
    pub fn new(
        engine: Handle,
        tokenizer: Arc<Tokenizer>,
        template: ChatTemplate,
        eos: &[u32],
        limits: PoolLimits,
    ) -> Self {
        Self {
            tokenizer,
            answers: AnswerFormat::default(),
            capabilities: Capabilities::default(),
            template: Arc::new(template),
            adapters: Arc::default(),
            context_max: engine.dims().context_max,
            engine,
            vision: None,
            eos: eos.into(),
            token_pool: SegmentPool::new(limits),
            top_pool: SegmentPool::new(limits),
        }
    }
}

/// Bytes of an adapter's name.
pub const ADAPTER_NAME_BYTES_MAX: usize = 256;

/// An adapter that a request uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdapterUse {
    /// Name of the adapter.
    pub name: Box<str>,
    /// Factor of what the adapter changes.
    pub scale: f32,
}

/// An adapter of a loaded model. Its number is its place in the list.
#[derive(Debug)]
pub struct ModelAdapter {
    /// Name, which is also a model's name in requests.
    pub name: String,
    /// Name of the file or folder, without the path before it.
    pub file: String,
    /// Scale of requests that name the adapter as their model.
    named_scale: f32,
    /// Bits of the scale of requests that say nothing about adapters.
    default_scale: AtomicU32,
}

impl ModelAdapter {
    /// An adapter with this scale in requests that say nothing about adapters; 0: it is used only where it is named.
    pub fn new(name: String, file: String, scale: f32) -> Self {
        Self {
            name,
            file,
            named_scale: if scale == 0.0 { 1.0 } else { scale },
            default_scale: AtomicU32::new(scale.to_bits()),
        }
    }

    /// Scale of requests that say nothing about adapters.
    pub fn default_scale(&self) -> f32 {
        f32::from_bits(self.default_scale.load(Ordering::Relaxed))
    }

    fn used(&self, scale: f32) -> AdapterUse {
        AdapterUse {
            name: self.name.as_str().into(),
            scale,
        }
    }
}

/// The adapters of a loaded model, by number.
#[derive(Debug, Default)]
pub struct ModelAdapters(Vec<ModelAdapter>);

/// The adapters of a model without adapters.
pub static NO_ADAPTERS: ModelAdapters = ModelAdapters(Vec::new());

impl ModelAdapters {
    /// These adapters.
    pub fn new(all: Vec<ModelAdapter>) -> Self {
        Self(all)
    }

    /// All adapters.
    pub fn all(&self) -> &[ModelAdapter] {
        &self.0
    }

    /// The adapters of a request that says nothing about adapters, for this adapter as its model or for the model itself.
    ///
    /// # Errors
    /// The adapter is unknown.
    pub fn of_model(&self, adapter: Option<&str>) -> Result<Vec<AdapterUse>, ApiError> {
        let Some(name) = adapter else {
            return Ok(self.defaults());
        };
        let known = self.0.iter().find(|adapter| adapter.name == name);
        let used = known.map(|adapter| vec![adapter.used(adapter.named_scale)]);
        used.ok_or_else(|| {
            let message = format!("model: the adapter {name:?} is not loaded");
            ApiError::field("model", "model_not_found", message)
        })
    }

    /// The adapters of a request that says nothing about adapters.
    pub fn defaults(&self) -> Vec<AdapterUse> {
        let scales = self
            .0
            .iter()
            .map(|adapter| adapter.used(adapter.default_scale()));
        scales.filter(|used| used.scale != 0.0).collect()
    }

    /// Sets the scales of later requests that say nothing about adapters; those of adapters that are not named become 0.
    ///
    /// # Errors
    /// The scales break a bound of requests.
    pub fn set_defaults(&self, uses: &[AdapterUse]) -> Result<(), ApiError> {
        self.resolve(uses)?;
        for adapter in &self.0 {
            let used = uses.iter().find(|used| *used.name == adapter.name);
            let scale = used.map_or(0.0, |used| used.scale);
            adapter
                .default_scale
                .store(scale.to_bits(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// The adapters of a request, for the engine.
    ///
    /// # Errors
    /// An adapter is unknown or named twice, there are too many, or a scale is out of bounds.
    pub fn resolve(&self, uses: &[AdapterUse]) -> Result<AdapterSet, ApiError> {
        let failed = |why: String| ApiError::field("lora", "invalid_value", format!("lora: {why}"));
        let mut numbered = Vec::with_capacity(uses.len());
        for used in uses {
            let known = self.0.iter().position(|known| known.name == *used.name);
            let number =
                known.ok_or_else(|| failed(format!("the model has no adapter {:?}", used.name)))?;
            numbered.push((number, used.scale));
        }
        AdapterSet::new(numbered).ok_or_else(|| failed(bounds()))
    }
}

/// The bounds of a request's adapters, in words.
fn bounds() -> String {
    format!(
        "must name at most {SEQUENCE_ADAPTERS_MAX} adapters with a scale, each once, with scales from -{ADAPTER_SCALE_MAX} to {ADAPTER_SCALE_MAX}"
    )
}

/// Options of detokenizing a list of ids.
#[derive(Clone, Copy, Debug)]
pub struct DetokenizeOptions {
    /// Whether the first id begins a text.
    pub at_text_start: bool,
    /// Whether the texts of control tokens are included.
    pub control_texts: bool,
    /// Bytes of the longest text.
    pub bytes_max: usize,
}

/// The text of a prompt's ids, without control tokens.
pub fn prompt_text(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> String {
    let options = DetokenizeOptions {
        at_text_start: true,
        control_texts: false,
        bytes_max: usize::MAX,
    };
    detokenize(tokenizer, ids, options).unwrap_or_default()
}

/// The text of these ids; `None` if the text is longer than `bytes_max`.
pub fn detokenize(
    tokenizer: &Arc<Tokenizer>,
    ids: &[u32],
    options: DetokenizeOptions,
) -> Option<String> {
    let mut decoder = Decoder::new(Arc::clone(tokenizer), options.at_text_start);
    if options.control_texts {
        let is_control = |id: &u32| tokenizer.is_control(*id);
        let mut shown: Vec<u32> = ids.iter().copied().filter(is_control).collect();
        shown.sort_unstable();
        shown.dedup();
        decoder = decoder.showing(shown.into());
    }
    let mut text = String::new();
    for &id in ids {
        decoder.push(id, &mut text);
        if text.len() > options.bytes_max {
            return None;
        }
    }
    decoder.finish(&mut text);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapters() -> ModelAdapters {
        let adapter =
            |name: &str, scale| ModelAdapter::new(name.into(), format!("{name}.gguf"), scale);
        ModelAdapters::new(vec![
            adapter("a", 1.0),
            adapter("b", 0.0),
            adapter("c", 0.5),
        ])
    }

    fn uses(given: &[(&str, f32)]) -> Vec<AdapterUse> {
        let used = |&(name, scale): &(&str, f32)| AdapterUse {
            name: name.into(),
            scale,
        };
        given.iter().map(used).collect()
    }

    #[test]
    fn defaults_are_adapters_with_a_scale() {
        let adapters = adapters();
        assert_eq!(adapters.defaults(), uses(&[("a", 1.0), ("c", 0.5)]));
        adapters
            .set_defaults(&uses(&[("b", 2.0), ("a", 0.0)]))
            .expect("scales");
        assert_eq!(adapters.defaults(), uses(&[("b", 2.0)]));
    }

    #[test]
    fn adapter_as_a_model_has_its_own_scale_or_one() {
        let of_model = |name| adapters().of_model(name).ok();
        for (name, scale) in [("a", 1.0), ("b", 1.0), ("c", 0.5)] {
            assert_eq!(of_model(Some(name)), Some(uses(&[(name, scale)])));
        }
        assert_eq!(of_model(None), Some(uses(&[("a", 1.0), ("c", 0.5)])));
        assert_eq!(of_model(Some("d")), None);
    }

    #[test]
    fn adapters_are_resolved_to_numbers() {
        let resolve = |given: &[(&str, f32)]| adapters().resolve(&uses(given));
        let set = resolve(&[("c", 2.0), ("a", -1.0), ("b", 0.0)]).expect("known");
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, -1.0), (2, 2.0)]);
        let message = |given: &[(&str, f32)]| resolve(given).expect_err("an error").message;
        assert_eq!(
            message(&[("d", 1.0)]),
            "lora: the model has no adapter \"d\""
        );
        for given in [[("a", 1.0), ("a", 1.0)], [("a", f32::NAN), ("b", 1.0)]] {
            assert!(message(&given).contains("at most 4 adapters"), "{given:?}");
        }
    }

    #[test]
    fn failed_change_of_defaults_changes_nothing() {
        let adapters = adapters();
        assert!(
            adapters
                .set_defaults(&uses(&[("b", 1.0), ("d", 1.0)]))
                .is_err()
        );
        assert_eq!(adapters.defaults(), uses(&[("a", 1.0), ("c", 0.5)]));
    }
}
