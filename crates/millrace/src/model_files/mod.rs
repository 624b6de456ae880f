//! One model on disk or in the binary: files, facts, tokenizer and chat template.
//!
//! ```text
//! source      where a model's files are        built_in   the model in the binary
//! facts       what lists of models show        model_text tokenizer and chat template
//! identity    digests of what decides tokens     model_purpose  text, embeddings, or scores of documents
//! recommended_sampling  sampling parameters of the publisher
//! tower_files  files with the towers of models that see images     fitting_tower  the one that fits
//! ```

mod facts;
mod fitting_tower;
mod identity;
pub(crate) mod model_text;
mod source;
mod tower_files;

pub(crate) use facts::{ModelPurpose, facts_of, of_ollama as ollama_sampling, read_facts};
pub(crate) use fitting_tower::{FittingTower, TowerSearch};
pub(crate) use identity::{PartsDigest, arithmetic_name, identity_of, weights_digest};
pub(crate) use model_text::ModelText;
pub(crate) use source::{
    ModelSource, NAME as BUILT_IN, has_safetensors, is_config, only_model, source_of_path,
};
pub(crate) use tower_files::{is_tower, is_tower_name, pulled_tower};
