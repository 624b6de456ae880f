//! A line of `goldens/cases.txt`: a synthetic model, and the length of the run.
//!
//! `NAME preset=P mix=M [key=value ...]`, see [`Case::set`] for the keys.

use kernels::KvKind;
use synth::{AdapterSynth, EncoderSpec, Mix, RopeScaling, SynthSpec};

/// A model and a run.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Unique name of the golden file.
    pub(crate) name: String,
    /// The model.
    pub(crate) spec: SynthSpec,
    /// Positions of a sequence in this run.
    pub(crate) context: usize,
    /// Format of keys and values.
    pub(crate) kv: KvKind,
    /// Adapters with their scales.
    pub(crate) adapters: Vec<(AdapterSynth, f32)>,
}

impl Case {
    /// Parses a line.
    ///
    /// # Errors
    /// The invalid word.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let name = words.next().ok_or("an empty line is no case")?.to_owned();
        let preset = words.next().and_then(|word| word.strip_prefix("preset="));
        let spec = preset
            .and_then(SynthSpec::preset)
            .ok_or(format!("{name}: no such preset"))?;
        let mut case = Self {
            name,
            spec,
            context: 256,
            kv: KvKind::F16,
            adapters: Vec::new(),
        };
        for word in words {
            let (key, value) = word.split_once('=').ok_or(format!("{word}: no value"))?;
            case.set(key, value)
                .ok_or(format!("{}: {word} is unknown", case.name))?;
        }
        Ok(case)
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let (spec, number) = (&mut self.spec, || value.parse::<u32>().ok());
        match key {
            "kv" => self.kv = KvKind::from_name(value)?,
            "mix" => spec.mix = Mix::from_name(value)?,
            "seed" => spec.seed = value.parse().ok()?,
            "layers" => spec.layers = number()?,
            "heads" => spec.heads = number()?,
            "kv_heads" => spec.kv_heads = number()?,
            "head_dim" => spec.head_dim = number()?,
            "tied" => spec.tied = value.parse().ok()?,
            "window" => spec.window = Some(number()?).filter(|&window| window > 0),
            "period" => spec.window_period = Some(number()?),
            "base" => spec.rope.base = value.parse().ok()?,
            "used" => spec.experts.as_mut()?.used = number()?,
            "experts" => spec.experts.as_mut()?.count = number()?,
            "shared" => spec.experts.as_mut()?.shared = number()?,
            "groups" => spec.latent.as_mut()?.groups = number()?,
            "query_rank" => spec.latent.as_mut()?.query_rank = number()?,
            "joined" => spec.latent.as_mut()?.joined = value.parse().ok()?,
            "leading_dense" => spec.latent.as_mut()?.leading_dense = number()?,
            "shared_kv" => spec.differing.as_mut()?.shared = number()?,
            "per_layer" => spec.differing.as_mut()?.per_layer = number()?,
            "period_recurrent" => spec.recurrent.as_mut()?.period = number()?,
            "key_heads" => spec.recurrent.as_mut()?.key_heads = number()?,
            "value_heads" => spec.recurrent.as_mut()?.value_heads = number()?,
            "recurrent_norm" => spec.recurrent.as_mut()?.norm = value.parse().ok()?,
            "mtp" => spec.mtp = value.parse().ok()?,
            "taps" => spec.recurrent.as_mut()?.taps = number()?,
            "sections" => spec.sections = Some(sections(value)?),
            "rope_dims" => spec.rope.dims = Some(number()?),
            "lora" => self.adapters = adapters(value)?,
            "rope" => spec.rope.scaling = scaling(value)?,
            // Read only by the oracle: the length of the prompt, and the compared logits.
            "prompt" => _ = number()?,
            "deep" => _ = value.parse::<bool>().ok()?,
            "context" => self.context = number()? as usize,
            "trained" => spec.context = number()?,
            _ => return None,
        }
        Some(())
    }
}

/// The encoder of a line `NAME preset=P mix=M`; `None` where P is no encoder.
pub(crate) fn encoder(line: &str) -> Option<EncoderSpec> {
    let mut words = line.split_whitespace().skip(1);
    let preset = words.next()?.strip_prefix("preset=")?;
    let mix = Mix::from_name(words.next()?.strip_prefix("mix=")?)?;
    Some(EncoderSpec {
        mix,
        ..EncoderSpec::preset(preset)?
    })
}

/// `none`, `linear:FACTOR`, `llama3:FACTOR:ORIGINAL`, `yarn:FACTOR:ORIGINAL` or
/// `longrope:ORIGINAL:ATTENTION`.
fn scaling(value: &str) -> Option<RopeScaling> {
    let mut parts = value.split(':');
    let kind = parts.next()?;
    let mut number = || parts.next()?.parse::<f32>().ok();
    Some(match kind {
        "none" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: number()? },
        "llama3" => RopeScaling::Llama3 {
            factor: number()?,
            original_context: number()? as u32,
        },
        "yarn" => RopeScaling::Yarn {
            factor: number()?,
            original_context: number()? as u32,
        },
        "longrope" => RopeScaling::Longrope {
            original_context: number()? as u32,
            attention_factor: number()?,
        },
        _ => return None,
    })
}

/// Adapters as `SEED:RANK:ALPHA:SCALE`, joined by `+`.
fn adapters(value: &str) -> Option<Vec<(AdapterSynth, f32)>> {
    let adapter = |text: &str| {
        let parts: Vec<&str> = text.split(':').collect();
        let [seed, rank, alpha, scale] = parts[..] else {
            return None;
        };
        let adapter = AdapterSynth {
            seed: seed.parse().ok()?,
            rank: rank.parse().ok()?,
            alpha: alpha.parse().ok()?,
        };
        Some((adapter, scale.parse().ok()?))
    };
    value.split('+').map(adapter).collect()
}

/// Four numbers of pairs: `8:4:4:0`.
fn sections(value: &str) -> Option<[u32; 4]> {
    let numbers: Option<Vec<u32>> = value.split(':').map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}
