//! Rotary embedding of `config.json`: `rope_theta`, `rope_scaling` and, in newer files, `rope_parameters`.

use super::SafetensorsError;
use super::fields::Fields;
use super::gguf_keys::GgufKeys;
use crate::Architecture;
use crate::config::limits;
use crate::config::traits::AxisRule;
use std::f64::consts::TAU;

/// Default base of the frequencies.
const THETA: f64 = 10_000.0;
/// Default base of Gemma 3 and LFM2.
const THETA_MILLION: f64 = 1_000_000.0;
/// YaRN's bounds in turns over the original context; other bounds are unsupported.
const YARN_TURNS: [(&str, f64); 2] = [("beta_fast", 32.0), ("beta_slow", 1.0)];

/// Location of the rope's fields: old files have a base beside a scaling, newer files both in one object.
struct Rope<'a> {
    outer: &'a Fields<'a>,
    scaling: Option<Fields<'a>>,
    /// The base of windowed layers.
    local: Option<f64>,
}

impl<'a> Rope<'a> {
    fn find(fields: &'a Fields<'a>) -> Result<Self, SafetensorsError> {
        let Some(both) = fields.object("rope_parameters")? else {
            return Ok(Self {
                outer: fields,
                scaling: fields.object("rope_scaling")?,
                local: fields.float("rope_local_base_freq")?,
            });
        };
        let Some(global) = both.object("full_attention")? else {
            return Ok(Self {
                outer: fields,
                scaling: Some(both),
                local: fields.float("rope_local_base_freq")?,
            });
        };
        let local = both.object("sliding_attention")?;
        if let Some(local) = &local
            && kind(local)? != "default"
        {
            return Err(local.wrong("rope_type", "must be default in windowed layers"));
        }
        Ok(Self {
            outer: fields,
            scaling: Some(global),
            local: match local {
                Some(local) => local.float("rope_theta")?,
                None => None,
            },
        })
    }

    /// A number of the scaling, or else of the file.
    fn float(&self, field: &str) -> Result<Option<f64>, SafetensorsError> {
        let inner = match &self.scaling {
            Some(scaling) => scaling.float(field)?,
            None => None,
        };
        match inner {
            Some(found) => Ok(Some(found)),
            None => self.outer.float(field),
        }
    }

    /// Positions of the original training.
    fn original(&self) -> Result<u32, SafetensorsError> {
        const FIELD: &str = "original_max_position_embeddings";
        let inner = match &self.scaling {
            Some(scaling) => scaling.number(FIELD)?,
            None => None,
        };
        let found = match inner {
            Some(found) => Some(found),
            None => self.outer.number(FIELD)?,
        };
        match found {
            Some(found) => Ok(found),
            None => self.outer.need_number("max_position_embeddings"),
        }
    }
}

/// Writes the rope's keys; returns the tensors of divisors that an equivalent GGUF has.
pub(super) fn read(
    fields: &Fields<'_>,
    architecture: Architecture,
    head_dim: u32,
    keys: &mut GgufKeys,
) -> Result<Vec<(&'static str, Vec<f32>)>, SafetensorsError> {
    let rope = Rope::find(fields)?;
    let default = match architecture {
        Architecture::Gemma3 | Architecture::GemmaEmbedding | Architecture::Lfm2 => THETA_MILLION,
        _ => THETA,
    };
    let theta = rope.float("rope_theta")?.unwrap_or(default);
    keys.float("rope.freq_base", theta);
    if let Some(local) = rope.local {
        keys.float("rope.freq_base_swa", local);
    }
    let dims = turning(&rope, architecture, head_dim)?;
    keys.number("rope.dimension_count", dims);
    sections(&rope, architecture, keys)?;
    let Some(scaling) = &rope.scaling else {
        return Ok(Vec::new());
    };
    match (kind(scaling)?, architecture) {
        ("default", _) => Ok(Vec::new()),
        // Sections alone, which were written above.
        ("mrope", _) if architecture.traits().axes != AxisRule::Never => Ok(Vec::new()),
        ("linear", _) => {
            keys.text("rope.scaling.type", "linear");
            keys.float("rope.scaling.factor", scaling.need_float("factor")?);
            Ok(Vec::new())
        }
        ("yarn", _) => yarn(&rope, scaling, architecture, keys),
        ("llama3", Architecture::Llama) => {
            let factors = llama3(&rope, scaling, theta, dims)?;
            Ok(vec![("rope_freqs.weight", factors)])
        }
        ("longrope" | "su", Architecture::Phi3) => longrope(&rope, scaling, keys),
        // MiniCPM-V 4.0.
        ("longrope", Architecture::Llama) => {
            keys.text("rope.scaling.type", "longrope");
            longrope(&rope, scaling, keys)
        }
        (other, _) => {
            let why = format!("is {other:.64}, which is not supported in {architecture}");
            Err(scaling.wrong("rope_type", why))
        }
    }
}

fn kind<'a>(scaling: &Fields<'a>) -> Result<&'a str, SafetensorsError> {
    let kind = match scaling.text("rope_type")? {
        Some(kind) => Some(kind),
        None => scaling.text("type")?,
    };
    Ok(kind.unwrap_or("default"))
}

/// Pairs that turn by each of three positions, in a family of models that see images.
fn sections(
    rope: &Rope<'_>,
    architecture: Architecture,
    keys: &mut GgufKeys,
) -> Result<(), SafetensorsError> {
    const FIELD: &str = "mrope_section";
    if architecture.traits().axes == AxisRule::Never {
        return Ok(());
    }
    let Some(scaling) = &rope.scaling else {
        return Ok(());
    };
    let Some(pairs) = scaling.numbers(FIELD)? else {
        return Ok(());
    };
    let bounded = pairs
        .iter()
        .all(|pairs| *pairs as usize <= limits::HEAD_DIM);
    if pairs.len() != 3 || !bounded {
        let why = format!("must be three numbers up to {}", limits::HEAD_DIM);
        return Err(scaling.wrong(FIELD, why));
    }
    // The fourth position is that of films in other families.
    let pairs: Vec<i32> = pairs
        .iter()
        .chain([&0])
        .map(|pairs| *pairs as i32)
        .collect();
    keys.numbers("rope.dimension_sections", &pairs);
    Ok(())
}

/// Number of rotated elements of a head.
fn turning(
    rope: &Rope<'_>,
    architecture: Architecture,
    head_dim: u32,
) -> Result<u32, SafetensorsError> {
    const FIELD: &str = "partial_rotary_factor";
    let (default, takes_parts) = match architecture {
        Architecture::Qwen3Next | Architecture::Qwen35 | Architecture::Qwen35Moe => (0.25, true),
        _ => (1.0, architecture == Architecture::Phi3),
    };
    let part = rope.float(FIELD)?.unwrap_or(default);
    let whole = part == 1.0;
    if !(part > 0.0 && part <= 1.0) || (!whole && !takes_parts) {
        let bound = if takes_parts {
            "above 0, and at most 1"
        } else {
            "1 in this architecture"
        };
        return Err(rope
            .outer
            .wrong(FIELD, format!("is {part}, must be {bound}")));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number of 32 bits, cut as the implementation cuts it"
    )]
    let dims = (f64::from(head_dim) * part) as u32;
    Ok(dims)
}

fn yarn(
    rope: &Rope<'_>,
    scaling: &Fields<'_>,
    architecture: Architecture,
    keys: &mut GgufKeys,
) -> Result<Vec<(&'static str, Vec<f32>)>, SafetensorsError> {
    for (field, only) in YARN_TURNS {
        if let Some(found) = scaling.float(field)?.filter(|found| *found != only) {
            return Err(scaling.wrong(field, format!("is {found}, must be {only}")));
        }
    }
    if architecture == Architecture::Mistral3 {
        mistral3(scaling, keys)?;
    } else {
        for field in ["mscale", "mscale_all_dim"] {
            if scaling.get(field).is_some() {
                return Err(scaling.wrong(field, "is set, which is not supported"));
            }
        }
    }
    if scaling.flag("truncate")? == Some(false) {
        keys.flag("rope.scaling.yarn_truncate", false);
    }
    let factor = scaling.need_float("factor")?;
    keys.text("rope.scaling.type", "yarn");
    keys.float("rope.scaling.factor", factor);
    keys.number("rope.scaling.original_context_length", rope.original()?);
    if let Some(attention) = scaling.float("attention_factor")? {
        // The key is an additional factor beside the one that follows from the scaling; the field replaces
        // that factor.
        let usual = if factor > 1.0 {
            1.0 + 0.1 * factor.ln()
        } else {
            1.0
        };
        keys.float("rope.scaling.attn_factor", attention / usual);
    }
    Ok(Vec::new())
}

/// Writes what Mistral 3 adds to YaRN: a factor of sine and cosine that takes back the usual one, and scores that grow with
/// the position.
fn mistral3(scaling: &Fields<'_>, keys: &mut GgufKeys) -> Result<(), SafetensorsError> {
    const USUAL: &str = "mscale";
    const BACK: &str = "mscale_all_dim";
    match (scaling.float(USUAL)?, scaling.float(BACK)?) {
        (None, None) => {}
        (Some(1.0), Some(back)) => keys.float("rope.scaling.yarn_log_multiplier", back),
        (usual, _) => {
            let found = usual.map_or("missing".to_owned(), |usual| usual.to_string());
            return Err(scaling.wrong(USUAL, format!("is {found}, must be 1 next to `{BACK}`")));
        }
    }
    if let Some(scale) = scaling.float("llama_4_scaling_beta")? {
        keys.float("attention.temperature_scale", scale);
    }
    Ok(())
}

/// Llama 3.1's rule: wavelengths beyond a fraction of the original context are divided by the factor,
/// wavelengths below a smaller fraction are kept, wavelengths between are interpolated.
fn llama3(
    rope: &Rope<'_>,
    scaling: &Fields<'_>,
    theta: f64,
    dims: u32,
) -> Result<Vec<f32>, SafetensorsError> {
    let factor = scaling.need_float("factor")?;
    let low = scaling.float("low_freq_factor")?.unwrap_or(1.0);
    let high = scaling.float("high_freq_factor")?.unwrap_or(4.0);
    if !(factor > 0.0 && low > 0.0 && high > low) {
        let why = format!(
            "is {factor}, must be above 0, with `low_freq_factor` {low} above 0 and `high_freq_factor` {high} above that"
        );
        return Err(scaling.wrong("factor", why));
    }
    let context = f64::from(rope.original()?);
    let divisor = |i: u32| {
        let wavelength = TAU * theta.powf(f64::from(2 * i) / f64::from(dims));
        if wavelength < context / high {
            1.0
        } else if wavelength > context / low {
            factor as f32
        } else {
            let smooth = (context / wavelength - low) / (high - low);
            (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
        }
    };
    // The head size is checked with the keys.
    let pairs = (dims / 2).min(limits::HEAD_DIM as u32);
    Ok((0..pairs).map(divisor).collect())
}

/// Two lists of divisors, for short and long contexts.
fn longrope(
    rope: &Rope<'_>,
    scaling: &Fields<'_>,
    keys: &mut GgufKeys,
) -> Result<Vec<(&'static str, Vec<f32>)>, SafetensorsError> {
    let original = rope.original()?;
    let stretched = f64::from(rope.outer.need_number("max_position_embeddings")?);
    let stretch = stretched / f64::from(original.max(1));
    let attention = match scaling.float("attention_factor")? {
        Some(attention) => attention,
        None if stretch <= 1.0 || original <= 1 => 1.0,
        None => (1.0 + stretch.ln() / f64::from(original).ln()).sqrt(),
    };
    keys.number("rope.scaling.original_context_length", original);
    keys.float("rope.scaling.attn_factor", attention);
    Ok(vec![
        (
            "rope_factors_long.weight",
            scaling.need_floats("long_factor")?,
        ),
        (
            "rope_factors_short.weight",
            scaling.need_floats("short_factor")?,
        ),
    ])
}
