//! Adapters of synthetic models, as files.

use super::case::Case;
use super::saved::{Saved, Stored, file, halves, name};
use model::AdapterSet;
use serde_json::{Value, json};
use synth::{AdapterSynth, SynthSpec};
use testing::folder::Folder;
use weights::gguf::Gguf;
use weights::{Adapter, AdapterError, Architecture, ModelFiles};

/// Opens the adapter in these bytes for a model.
pub(crate) fn open(bytes: &[u8], base: &ModelFiles) -> Result<Adapter, AdapterError> {
    let folder = Folder::new("adapter");
    let path = folder.0.join("adapter.gguf");
    std::fs::write(&path, bytes).unwrap();
    Adapter::open(&path, base, &base.config(None).unwrap())
}

/// The adapters of a case, and the set of all with their scales.
pub(crate) fn adapters_of(case: &Case, base: &ModelFiles) -> (Vec<Adapter>, AdapterSet) {
    let adapters = case.adapters.iter();
    let opened = adapters.clone().map(|(adapter, _)| {
        let bytes = case.spec.adapter_bytes(adapter).unwrap();
        open(&bytes, base).unwrap()
    });
    let scales = adapters.map(|(_, scale)| *scale).enumerate();
    (opened.collect(), AdapterSet::new(scales).unwrap())
}

/// The configuration of PEFT that says what the GGUF says.
pub(crate) fn peft_config(adapter: &AdapterSynth) -> Value {
    json!({"peft_type": "LORA", "r": adapter.rank, "lora_alpha": adapter.alpha, "bias": "none"})
}

/// The tensors of an adapter as PEFT stores them.
pub(crate) fn peft_tensors(spec: &SynthSpec, adapter: &AdapterSynth) -> Vec<Stored> {
    let gguf = Gguf::from_bytes(spec.adapter_bytes(adapter).unwrap()).unwrap();
    let stored = gguf.tensors().map(|tensor| {
        let (target, end) = tensor.name.rsplit_once(".lora_").unwrap();
        let module = name(spec.architecture, target);
        let module = module.strip_suffix(".weight").unwrap();
        let turned = target.contains("attn_q.") || target.contains("attn_k.");
        let bytes = if end == "b" && turned && spec.architecture == Architecture::Llama {
            halves(tensor.bytes, tensor.rows(), spec.head_dim as usize)
        } else {
            tensor.bytes.to_vec()
        };
        Stored {
            name: format!(
                "base_model.model.{module}.lora_{}.weight",
                end.to_uppercase()
            ),
            dtype: tensor.kind.to_string(),
            shape: tensor.dims.iter().rev().copied().collect(),
            bytes,
        }
    });
    stored.collect()
}

/// A folder of PEFT.
pub(crate) fn peft_folder(config: &Value, tensors: &[Stored]) -> Saved {
    let saved = Saved::empty();
    saved.put("adapter_config.json", config.to_string().as_bytes());
    saved.put("adapter_model.safetensors", &file(tensors));
    saved
}
