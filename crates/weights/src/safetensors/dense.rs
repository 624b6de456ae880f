//! Dense projections of sentence-transformers (EmbeddingGemma): modules with a folder and weights of their own.

use super::SafetensorsError;
use super::fields::ConfigFile;
use super::gguf_keys::GgufKeys;
use super::header::Shard;
use super::names::Named;
use super::shards::ONE;
use std::path::PathBuf;

/// GGUF's names of the projections.
const NAMES: [&str; 2] = ["dense_2", "dense_3"];
/// The only tensor of a module.
const WEIGHT: &str = "linear.weight";

/// A projection without a bias and without an activation.
#[derive(Debug)]
pub(super) struct DenseModule {
    folder: PathBuf,
    in_features: u32,
    out_features: u32,
}

impl DenseModule {
    /// Reads `config.json` of a module.
    ///
    /// # Errors
    /// A projection that is computed otherwise.
    pub(super) fn read(folder: PathBuf) -> Result<Self, SafetensorsError> {
        const ACTIVATION: &str = "activation_function";
        let config = ConfigFile::read(&folder)?;
        let fields = config.fields();
        if fields.flag("bias")?.unwrap_or(true) {
            return Err(fields.wrong("bias", "is not false, which is not supported"));
        }
        match fields.text(ACTIVATION)? {
            Some(name) if name.ends_with(".Identity") => {}
            Some(other) => {
                let why = format!("is {other:.64}, must be torch.nn.modules.linear.Identity");
                return Err(fields.wrong(ACTIVATION, why));
            }
            None => return Err(fields.missing(ACTIVATION)),
        }
        Ok(Self {
            in_features: fields.need_number("in_features")?,
            out_features: fields.need_number("out_features")?,
            folder,
        })
    }
}

/// Writes the sizes of all projections.
pub(super) fn put(modules: &[DenseModule], keys: &mut GgufKeys) {
    for (name, module) in NAMES.iter().zip(modules) {
        keys.number(&format!("{name}_feat_in"), module.in_features);
        keys.number(&format!("{name}_feat_out"), module.out_features);
    }
}

/// Maps the weights of all projections, one file each.
pub(super) fn open(modules: &[DenseModule]) -> Result<Vec<Shard>, SafetensorsError> {
    let shard = |module: &DenseModule| {
        let path = module.folder.join(ONE);
        let shard = Shard::open(&path)?;
        match &shard.entries[..] {
            [one] if one.name == WEIGHT => Ok(shard),
            all => {
                let why = format!("has {} tensors, must have {WEIGHT} alone", all.len());
                Err(SafetensorsError::file(&path, why))
            }
        }
    };
    modules.iter().map(shard).collect()
}

/// GGUF's name for the tensor of projection `number`.
pub(super) fn named(number: usize) -> Named {
    match NAMES.get(number) {
        Some(name) => Named::Tensor(format!("{name}.weight")),
        None => Named::Unknown,
    }
}
