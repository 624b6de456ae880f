//! Adapters in GGUF, as llama.cpp's `convert_lora_to_gguf.py` writes them: `NAME.lora_a` of shape `(rank, inputs)` and
//! `NAME.lora_b` of shape `(outputs, rank)` for a tensor `NAME`, and `adapter.lora.alpha`.

use super::{AdapterError, HalfSide, ScaleRule, StoredAdapter, StoredHalf};
use crate::gguf::{Gguf, GgufError, TensorInfo};
use crate::{Architecture, adapters::ADAPTER_RANK_MAX};
use kernels::dequantize;
use std::path::Path;

/// Reads the adapter in `path` for a model of this architecture.
pub(super) fn read(path: &Path, architecture: Architecture) -> Result<StoredAdapter, AdapterError> {
    let failed = |why: GgufError| AdapterError::new(path, why.to_string());
    let gguf = Gguf::open(path).map_err(failed)?;
    let expected = [
        ("general.type", "adapter"),
        ("adapter.type", "lora"),
        ("general.architecture", architecture.name()),
    ];
    for (key, wanted) in expected {
        let found = gguf.need::<&str>(key).map_err(failed)?;
        if found != wanted {
            let why = format!("`{key}` is {found:?}, must be {wanted:?}");
            return Err(AdapterError::new(path, why));
        }
    }
    let tokens = "adapter.alora.invocation_tokens";
    if gguf.get(tokens).is_some() {
        let why = format!("`{tokens}`: adapters that begin at a token (aLoRA) are not supported");
        return Err(AdapterError::new(path, why));
    }
    let alpha = gguf.need::<f32>("adapter.lora.alpha").map_err(failed)?;
    let halves = gguf.tensors().map(|tensor| half(path, &tensor));
    Ok(StoredAdapter {
        file: path.to_owned(),
        halves: halves.collect::<Result<_, _>>()?,
        scale: ScaleRule::ByRank(alpha),
    })
}

fn half(path: &Path, tensor: &TensorInfo<'_>) -> Result<StoredHalf, AdapterError> {
    let wrong = |why: String| AdapterError::tensor(path, tensor.name, why);
    let sides = [(".lora_a", HalfSide::A), (".lora_b", HalfSide::B)];
    let mut found = sides.into_iter();
    let found = found.find_map(|(end, side)| Some((tensor.name.strip_suffix(end)?, side)));
    let (target, side) = found
        .ok_or_else(|| wrong("is no half of a low-rank pair (`.lora_a`, `.lora_b`)".into()))?;
    let (cols, rows) = (tensor.cols(), tensor.rows());
    let rank = match side {
        HalfSide::A => rows,
        HalfSide::B => cols,
    };
    // Before the numbers are copied: a file of large tensors is refused by its header.
    if !(1..=ADAPTER_RANK_MAX).contains(&rank) {
        return Err(wrong(format!(
            "has rank {rank}, must have 1 to {ADAPTER_RANK_MAX}"
        )));
    }
    let format = tensor.format().map_err(|why| wrong(why.to_string()))?;
    let mut numbers = vec![0.0; rows * cols];
    dequantize(format, tensor.bytes, &mut numbers);
    Ok(StoredHalf {
        name: tensor.name.to_owned(),
        target: target.to_owned(),
        side,
        rows,
        cols,
        numbers,
    })
}
