//! Models saved by Hugging Face's libraries: `config.json` and weights in safetensors.
//!
//! ```text
//! header      one file: a JSON header and mapped bytes   fields           typed access to config.json
//! shards      the files of a model                       hyperparameters  config.json as GGUF keys
//! names       stored and GGUF names of tensors           rope             rotary embedding of config.json
//! family      decoders and encoders                      encoder_classes  names of encoders' tensors
//! classes     the classes of transformers                described        what config.json says
//! modules     modules of sentence-transformers           encoder_fields   config.json of encoders as GGUF keys
//! separator   the separator of BERT's vocabularies     added_tokens  ids of tokens outside of a vocabulary
//! conversion  row order, norms and format at load        gguf_keys        GGUF keys under construction
//! load        bytes of a tensor                          experts          experts of config.json
//! gpt_oss     sinks, and experts in MXFP4                peft             low-rank adapters of PEFT
//! lfm2        fields of LFM2                             infinities       Python's numbers without an end
//! answers     rows of Qwen3-Reranker's answers           dense            dense projections of EmbeddingGemma
//! recurrent   tensors of recurrent layers                recurrent_names  their names
//! nested      the text of models that see images     vision_classes   their towers' tensors
//! vision_fields  config.json of towers                llava_towers, gemma4_towers, minicpm_towers   some towers
//! gemma4_fields  config.json of Gemma 4               tower_class      names of a tower's tensors
//! delta_fields, mamba_fields, falcon_fields, recurrent_fields   config.json of recurrent layers
//! ```
//!
//! [`Safetensors`] has the interface of an equivalent GGUF: equal keys, names and bytes. At load, rows of queries and
//! keys are reordered as in GGUF, norms stored as an offset from 1 are converted, and weights are quantized.
//!
//! Invariants that [`Safetensors::open`] establishes: the bytes of each tensor lie in the tensor's file, their number
//! follows from shape and kind, and no two tensors share bytes; names are unique over all files; the embedding has
//! `vocab_size` rows; every length was first compared with a named bound of [`limits`].

mod added_tokens;
mod answers;
mod classes;
mod conversion;
mod delta_fields;
mod dense;
mod described;
mod encoder_classes;
mod encoder_fields;
mod error;
mod experts;
mod falcon_fields;
mod family;
mod fields;
mod gemma4_fields;
mod gemma4_towers;
mod gguf_keys;
mod gpt_oss;
mod header;
mod hyperparameters;
mod infinities;
mod lfm2;
pub mod limits;
mod llava_towers;
mod load;
mod mamba_fields;
mod minicpm_towers;
mod modules;
mod names;
mod nested;
pub(crate) mod peft;
mod recurrent;
mod recurrent_fields;
mod recurrent_names;
mod rope;
mod separator;
mod shards;
mod tensor;
mod tower_class;
mod vision_classes;
mod vision_fields;

pub use conversion::Quantize;
pub use error::SafetensorsError;
pub use fields::CONFIG;
pub use infinities::without_infinities;
pub use shards::{INDEX, ONE};

use crate::encoder::EncoderConfig;
use crate::file_stamp::FileStamp;
use crate::gguf::Gguf;
use crate::tensor_entry::TensorEntry;
use crate::vision::VisionConfig;
use crate::{Architecture, Config, ConfigError};
use conversion::Change;
use described::ModelDescription;
use error::What;
use family::Family;
use fields::{ConfigFile, Fields};
use header::{HeaderEntry, Shard, StoredTensor, TensorShape};
use kernels::Format;
use limits::{ENTRY_BYTES, HEADER_BYTES_MAX, INDEX_BYTES_MAX, TENSORS_MAX};
use modules::Modules;
use names::Named;
use recurrent::RowFactors;
use std::path::Path;
use tensor::{Data, Tensor};

const _: () = {
    assert!(
        size_of::<(String, HeaderEntry)>() + size_of::<StoredTensor>() + size_of::<Tensor>() <= 384
    );
    let texts = (HEADER_BYTES_MAX + INDEX_BYTES_MAX) as usize;
    assert!(TENSORS_MAX * ENTRY_BYTES + texts <= 176 << 20);
};

/// An opened and checked folder of safetensors.
#[derive(Debug)]
pub struct Safetensors {
    family: Family,
    /// Keys of a GGUF without tensors.
    metadata: Gguf,
    /// Of `config.json`, before it was read.
    config_stamp: Option<FileStamp>,
    shards: Vec<Shard>,
    /// Sorted by name.
    tensors: Vec<Tensor>,
    /// Factors of rows of some tensors.
    factors: Vec<RowFactors>,
    /// Whether gate and up projection are stored as one tensor.
    fused_feed: bool,
}

impl Safetensors {
    /// Reads `config.json` and maps the weight files of a folder. Converts nothing yet.
    ///
    /// # Errors
    /// The file that is missing or invalid, and the place in the file.
    pub fn open(folder: &Path, quantize: Option<Quantize>) -> Result<Self, SafetensorsError> {
        let config_stamp = FileStamp::of_path(&folder.join(CONFIG));
        let config = nested::text_file(ConfigFile::read(folder)?)?;
        let (mut described, modules) = describe(folder, &config.fields())?;
        described.is_nested = config.is_inside();
        Self::assemble(
            (folder, config_stamp),
            (&config.path, described),
            quantize,
            &modules,
        )
    }

    /// Reads the tower of a model that sees images; `None`: the model is of a class without one.
    ///
    /// # Errors
    /// As for [`Safetensors::open`]; a class whose projector is not computed is named.
    pub fn open_tower(folder: &Path) -> Result<Option<Self>, SafetensorsError> {
        const FIELD: &str = "architectures";
        let config_stamp = FileStamp::of_path(&folder.join(CONFIG));
        let config = ConfigFile::read(folder)?;
        let fields = config.fields();
        let named = fields.texts(FIELD)?.unwrap_or_default();
        let Some(class) = named.first() else {
            return Err(fields.missing(FIELD));
        };
        let Some(tower) = vision_classes::find(class, &fields)? else {
            return match vision_classes::refusal(class) {
                None => Ok(None),
                Some(why) => Err(fields.wrong(FIELD, why)),
            };
        };
        let described = vision_fields::describe(tower, &fields, folder)?;
        Self::assemble(
            (folder, config_stamp),
            (&config.path, described),
            None,
            &Modules::default(),
        )
        .map(Some)
    }

    /// Maps the weight files of a described model.
    fn assemble(
        (folder, config_stamp): (&Path, Option<FileStamp>),
        (config, mut described): (&Path, ModelDescription),
        quantize: Option<Quantize>,
        modules: &Modules,
    ) -> Result<Self, SafetensorsError> {
        let metadata = metadata(&described, config)?;
        let mut shards = shards::open(folder)?;
        let own = shards.len();
        shards.extend(dense::open(&modules.dense)?);
        let decoder = described.family.decoder();
        if described.is_nested && llava_towers::has_own_head(&described, &shards) {
            described.tied = false;
        }
        let mut tensors = stored_tensors(&described, quantize, &shards, own)?;
        if let Some(token) = described.line_end {
            tensors.push(llava_towers::line_end(token, config, &shards)?);
        }
        if let Some(decoder) = decoder {
            tensors.extend(gpt_oss::tensors(decoder, &shards)?);
        }
        if let Some(ids) = described.answers {
            answers::put(ids, described.tied, (config, &shards), &mut tensors)?;
        }
        tensors.extend(described.made.iter().map(|(name, values)| Tensor {
            name: (*name).to_owned(),
            dims: TensorShape::one(values.len() as u64),
            kind: Format::F32.into(),
            data: Data::Made(values.clone()),
            change: Change::None,
        }));
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        let factors = described.recurrent.factors.iter();
        let model = Self {
            family: described.family,
            metadata,
            config_stamp,
            shards,
            tensors,
            factors: factors.map(|(_, factors)| factors.clone()).collect(),
            fused_feed: described.recurrent.fused_feed,
        };
        model.check(config, &described)?;
        if matches!(model.family, Family::Tower(_)) {
            let checked = model.tower_config();
            checked.map_err(|why| SafetensorsError::new(config, What::Config(why)))?;
        }
        Ok(model)
    }

    /// The keys of an equivalent GGUF except the tokenizer.
    pub fn metadata(&self) -> &Gguf {
        &self.metadata
    }

    /// The described decoder.
    ///
    /// # Errors
    /// As [`Config::from_gguf`], with fields of `config.json`.
    pub fn config(&self, context_max: Option<usize>) -> Result<Config, ConfigError> {
        Config::from_gguf(&self.metadata, context_max).map_err(|why| with_fields(self.family, why))
    }

    /// The described tower.
    ///
    /// # Errors
    /// As [`VisionConfig::from_gguf`], with fields of `config.json`.
    pub(crate) fn tower_config(&self) -> Result<VisionConfig, ConfigError> {
        VisionConfig::read(&self.metadata, &|name| self.entry(name))
            .map_err(|why| with_fields(self.family, why))
    }

    /// Bytes of all files with weights.
    pub fn file_bytes(&self) -> u64 {
        let bytes = |shard: &Shard| shard.source.bytes().len() as u64;
        self.shards.iter().map(bytes).sum()
    }

    /// The stamps of `config.json` and of all files with weights.
    pub(crate) fn stamps(&self) -> Option<Vec<FileStamp>> {
        let weights = self.shards.iter().map(|shard| shard.source.stamp());
        std::iter::once(self.config_stamp).chain(weights).collect()
    }

    /// Whether no file with weights was written to since it was opened.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.shards.iter().all(|shard| shard.source.is_unchanged())
    }

    /// All tensors, by name.
    pub fn entries(&self) -> impl Iterator<Item = TensorEntry<'_>> {
        self.tensors.iter().map(Tensor::entry)
    }

    /// The tensor of this name in GGUF.
    pub fn entry(&self, name: &str) -> Option<TensorEntry<'_>> {
        self.tensor(name).map(Tensor::entry)
    }

    fn tensor(&self, name: &str) -> Option<&Tensor> {
        let found = self
            .tensors
            .binary_search_by(|tensor| tensor.name.as_str().cmp(name));
        found.ok().map(|at| &self.tensors[at])
    }

    /// The file and the entry of a stored tensor; of one in blocks, the entry without the scales.
    fn stored(&self, data: &Data) -> Option<(&Shard, &StoredTensor)> {
        let (shard, entry) = match data {
            Data::Stored { shard, entry } => (*shard, *entry),
            Data::EverySecond { place, .. } | Data::Rows { place, .. } => *place,
            Data::Blocks(blocks) => blocks.blocks,
            Data::Made(_) => return None,
        };
        let shard = &self.shards[usize::from(shard)];
        Some((shard, &shard.entries[entry as usize]))
    }

    /// Checks properties of all tensors together.
    fn check(&self, config: &Path, described: &ModelDescription) -> Result<(), SafetensorsError> {
        for pair in self.tensors.windows(2) {
            if pair[0].name == pair[1].name
                && let Some((shard, entry)) = self.stored(&pair[1].data)
            {
                let first = self
                    .stored(&pair[0].data)
                    .map(|(shard, _)| shard.path.display());
                let first = first.map_or_else(String::new, |path| format!(", first in {path}"));
                let why = format!("is there twice{first}");
                return Err(SafetensorsError::tensor(&shard.path, &entry.name, why));
            }
        }
        if !described.tied && !described.is_embedding && self.tensor("output.weight").is_none() {
            let why = "is missing, and `tie_word_embeddings` is not true";
            return Err(SafetensorsError::tensor(config, names::HEAD, why));
        }
        if described.recurrent.needs_norm {
            self.check_norms(config)?;
        }
        if let Some(name) = described
            .needs
            .iter()
            .find(|name| self.tensor(name).is_none())
        {
            let why = "is missing, which the fields of the model promise";
            return Err(SafetensorsError::tensor(config, &self.label(name), why));
        }
        let rows = |name| self.entry(name).map(|entry| entry.rows() as u64);
        match rows("token_embd.weight") {
            Some(rows) if rows != u64::from(described.vocab) => {
                let (field, vocab) = ("vocab_size".to_owned(), described.vocab);
                let why = format!("is {vocab}, the embedding has {rows} rows");
                Err(SafetensorsError::new(config, What::Field { field, why }))
            }
            _ => Ok(()),
        }
    }
}

impl Safetensors {
    /// Rejects a layer with Mamba-2 and without a norm, which some models of the family do not have.
    fn check_norms(&self, config: &Path) -> Result<(), SafetensorsError> {
        let layers = self.tensors.iter();
        for layer in layers.filter_map(|tensor| tensor.name.strip_suffix(".ssm_out.weight")) {
            let norm = format!("{layer}.ssm_norm.weight");
            if self.tensor(&norm).is_none() {
                let why = "is missing, and `mamba_rms_norm` is true";
                return Err(SafetensorsError::tensor(config, &self.label(&norm), why));
            }
        }
        Ok(())
    }
}

/// Reads `config.json`, and of sentence-transformers' files those that name a pooling and projections.
fn describe(
    folder: &Path,
    fields: &Fields<'_>,
) -> Result<(ModelDescription, Modules), SafetensorsError> {
    let family = Family::of(fields)?;
    let modules = modules::read(folder, family.takes_dense())?;
    let described = match family {
        Family::Decoder(architecture) if recurrent_fields::reads(architecture, fields)? => {
            recurrent_fields::describe(architecture, fields, &modules)
        }
        Family::Decoder(Architecture::Gemma4) => gemma4_fields::describe(fields),
        Family::Decoder(architecture) => {
            hyperparameters::describe(architecture, fields, (folder, &modules))
        }
        Family::Encoder(class) => {
            encoder_fields::describe(class, fields, (folder, modules.pooling))
        }
        Family::Tower(class) => vision_fields::describe(class, fields, folder),
    };
    Ok((described?, modules))
}

/// The tensors that are stored as such. Shards from `own` on are those of dense projections.
fn stored_tensors(
    described: &ModelDescription,
    quantize: Option<Quantize>,
    shards: &[Shard],
    own: usize,
) -> Result<Vec<Tensor>, SafetensorsError> {
    let decoder = described.family.decoder();
    let mut tensors = Vec::new();
    for (number, shard) in shards.iter().enumerate() {
        for (at, entry) in shard.entries.iter().enumerate() {
            if decoder.is_some_and(|decoder| gpt_oss::is_part(decoder, &entry.name)) {
                continue;
            }
            let data = || Data::Stored {
                shard: number as u16,
                entry: at as u32,
            };
            let named = match number.checked_sub(own) {
                None => described.family.named(described, &entry.name),
                Some(module) => dense::named(module),
            };
            let all = match named {
                Named::Two(names) => names.map(Named::Tensor).into(),
                one => vec![one],
            };
            for named in all {
                tensors.extend(tensor(described, quantize, named, (shard, entry), data())?);
            }
        }
    }
    Ok(tensors)
}

/// A GGUF's keys without tensors, which describe a supported model.
fn metadata(described: &ModelDescription, path: &Path) -> Result<Gguf, SafetensorsError> {
    let failed = |why: String| SafetensorsError::file(path, why);
    let mut bytes = Vec::new();
    described
        .keys
        .write(&mut bytes, |_, _| Ok(()))
        .map_err(|why| failed(why.to_string()))?;
    let gguf = Gguf::from_bytes(bytes).map_err(|why| failed(why.to_string()))?;
    let checked = match described.family {
        Family::Decoder(_) => Config::from_gguf(&gguf, None).map(|_| ()),
        Family::Encoder(class) => EncoderConfig::from_gguf(&gguf, class.kind, None).map(|_| ()),
        // Of which some sizes are those of tensors.
        Family::Tower(_) => Ok(()),
    };
    match checked {
        Ok(()) => Ok(gguf),
        Err(why) => {
            let why = with_fields(described.family, why);
            Err(SafetensorsError::new(path, What::Config(why)))
        }
    }
}

/// The error with fields of `config.json` instead of GGUF keys.
fn with_fields(family: Family, error: ConfigError) -> ConfigError {
    error.renamed(|key| match family.field_of(key) {
        Some(field) if matches!(family, Family::Tower(_)) && !vision_fields::is_outside(field) => {
            format!("{CONFIG}: {}.{field}", vision_fields::VISION)
        }
        Some(field) => format!("{CONFIG}: {field}"),
        // A size of a tensor.
        None => match key.split_once(' ') {
            Some((name, dimension)) => match family.stored(name, false) {
                Some(stored) => format!("{stored} {dimension}"),
                None => key.to_owned(),
            },
            None => key.to_owned(),
        },
    })
}

/// A tensor and its conversion; `None` for an entry that is not needed.
fn tensor(
    described: &ModelDescription,
    quantize: Option<Quantize>,
    named: Named,
    (shard, entry): (&Shard, &StoredTensor),
    data: Data,
) -> Result<Option<Tensor>, SafetensorsError> {
    let wrong = |why: String| SafetensorsError::tensor(&shard.path, &entry.name, why);
    let name = match named {
        Named::Tensor(name) => name,
        Named::Nothing => return Ok(None),
        Named::Two(_) | Named::Unknown => {
            let why = format!("has no part in {}", described.family);
            return Err(wrong(why));
        }
    };
    let stored = entry.kind.format().ok_or_else(|| {
        let kind = entry.kind.name();
        wrong(format!("is stored as {kind}, must be F32, F16 or BF16"))
    })?;
    // A bound of a tower's matrix is one number.
    let is_tower = matches!(described.family, Family::Tower(_));
    let (shape, stored_shape) = match entry.shape.as_slice() {
        [] if is_tower => (&[1][..], TensorShape::one(1)),
        shape => (shape, entry.shape),
    };
    // Only experts are stored one after the other, and convolutions have an input of one column. Kernels of a tower have
    // channels, rows and columns, and perhaps frames.
    let most = if is_tower {
        5
    } else if name.ends_with("_exps.weight") || conversion::is_taps(&name) {
        3
    } else {
        2
    };
    if !(1..=most).contains(&shape.len()) || shape.contains(&0) {
        let why = format!("has shape {shape:?}, must have one or two dimensions, none of them 0");
        return Err(wrong(why));
    }
    let dims = stored_shape.reversed();
    let change = Change::of(described, &name, dims.as_slice()).map_err(wrong)?;
    let dims = change.shape(dims);
    let format = conversion::format(
        described.tied,
        quantize,
        &name,
        dims.as_slice(),
        stored,
        change,
    );
    Ok(Some(Tensor {
        name,
        dims,
        kind: format.into(),
        data,
        change,
    }))
}
