//! Synthetic models with recurrent layers as Hugging Face's libraries would save them, and the GGUF with equal weights.

use super::case::Case;
use super::recurrent_configs::{self, FACTORS, SSM_FACTORS};
use super::saved::{Saved, Stored, halves};
use half::{bf16, f16};
use serde_json::Value;
use synth::{RecurrentSynth, SynthSpec};
use weights::Architecture;
use weights::gguf::{Gguf, GgufWriter, TensorKind, TensorPlan};

/// A folder, its `config.json`, its tensors, and the GGUF with equal weights.
pub(crate) struct SavedModel {
    pub(crate) saved: Saved,
    pub(crate) config: Value,
    pub(crate) tensors: Vec<Stored>,
    pub(crate) twin: Vec<u8>,
}

/// A tensor of the GGUF.
#[derive(Clone)]
struct Source {
    name: String,
    dims: Vec<u64>,
    kind: TensorKind,
    bytes: Vec<u8>,
}

/// All tensors of the GGUF, and how they are saved.
struct Sources<'a> {
    spec: &'a SynthSpec,
    class: &'a str,
    all: Vec<Source>,
}

/// Saves a case's model in one file, as a model of this class.
pub(crate) fn save(line: &str, class: &str) -> SavedModel {
    let spec = Case::parse(line).unwrap().spec;
    let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
    let mut all: Vec<Source> = gguf
        .tensors()
        .map(|tensor| Source {
            name: tensor.name.to_owned(),
            dims: tensor.dims.to_vec(),
            kind: tensor.kind,
            bytes: tensor.bytes.to_vec(),
        })
        .collect();
    // Such decays as the logarithms in the file give.
    let is_decays = |source: &&mut Source| source.name.ends_with(".ssm_a");
    for decays in all.iter_mut().filter(is_decays) {
        decays.bytes = of_floats(floats(&decays.bytes).map(|decay| (-decay).ln()));
    }
    let mut twin = all.clone();
    for decays in twin.iter_mut().filter(is_decays) {
        decays.bytes = of_floats(floats(&decays.bytes).map(|log| -log.exp()));
    }
    let twin = written(&gguf, &twin);
    let config = recurrent_configs::config(&spec, class, &gguf);
    let sources = Sources {
        spec: &spec,
        class,
        all,
    };
    let tensors: Vec<Stored> = sources
        .all
        .iter()
        .flat_map(|source| sources.store(source))
        .collect();
    let saved = Saved::empty();
    saved.put_weights(&tensors, 1);
    saved.put("config.json", config.to_string().as_bytes());
    SavedModel {
        saved,
        config,
        tensors,
        twin,
    }
}

fn written(gguf: &Gguf, all: &[Source]) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        writer.value(key, value);
    }
    for source in all {
        writer.tensor(TensorPlan {
            name: source.name.clone(),
            dims: source.dims.clone(),
            kind: source.kind,
        });
    }
    let (mut out, mut next) = (Vec::new(), all.iter());
    let write = writer.write(&mut out, |_, sink| {
        sink.write_all(&next.next().unwrap().bytes)
    });
    write.unwrap();
    out
}

impl Sources<'_> {
    /// Tensors that are stored for a tensor: none for one that is stored with another.
    fn store(&self, source: &Source) -> Vec<Stored> {
        let Some((layer, part)) = source
            .name
            .strip_prefix("blk.")
            .and_then(|rest| rest.split_once('.'))
        else {
            return vec![self.outer(source)];
        };
        if let Some(expert) = part.strip_suffix("_exps.weight") {
            return self.experts(source, layer, expert);
        }
        let is_granite = self.class.starts_with("Granite");
        let is_next = self.spec.architecture == Architecture::Qwen3Next;
        match part {
            "attn_gate.weight" if is_next => return Vec::new(),
            "attn_qkv.weight" if is_next => return vec![self.joined_projections(source, layer)],
            "ffn_up.weight" | "ffn_up_shexp.weight" if is_granite => return Vec::new(),
            "ffn_gate.weight" | "ffn_gate_shexp.weight" if is_granite => {
                let up = self.find(&source.name.replace("ffn_gate", "ffn_up"));
                let mut both = self.plain(source, layer, part);
                both.bytes.extend(&up.bytes);
                both.shape[0] *= 2;
                return vec![both];
            }
            _ => {}
        }
        let mut stored = self.plain(source, layer, part);
        self.convert(part, &mut stored);
        vec![stored]
    }

    fn outer(&self, source: &Source) -> Stored {
        let name = recurrent_configs::outer_name(self.class, &source.name);
        let mut stored = Stored {
            name,
            dtype: source.kind.to_string(),
            shape: source.dims.iter().rev().copied().collect(),
            bytes: source.bytes.clone(),
        };
        self.convert(&source.name, &mut stored);
        stored
    }

    fn find(&self, name: &str) -> &Source {
        self.all.iter().find(|source| source.name == name).unwrap()
    }

    /// A tensor with its stored name, and otherwise as in the GGUF.
    fn plain(&self, source: &Source, layer: &str, part: &str) -> Stored {
        let number: u32 = layer.parse().unwrap();
        Stored {
            name: recurrent_configs::layer_name(self.class, self.spec, number, part),
            dtype: source.kind.to_string(),
            shape: source.dims.iter().rev().copied().collect(),
            bytes: source.bytes.clone(),
        }
    }

    /// Changes a tensor of this part from GGUF's order and values to those of the file.
    fn convert(&self, part: &str, stored: &mut Stored) {
        use Architecture::{
            FalconH1, Granite, GraniteHybrid, GraniteMoe, Qwen3Next, Qwen35, Qwen35Moe,
        };
        let architecture = self.spec.architecture;
        match architecture {
            Qwen3Next | Qwen35 | Qwen35Moe
                if part.ends_with("norm.weight") && part != "ssm_norm.weight" =>
            {
                stored.bytes = of_floats(floats(&stored.bytes).map(|number| number - 1.0));
            }
            Granite | GraniteMoe | GraniteHybrid
                if part == "attn_q.weight" || part == "attn_k.weight" =>
            {
                let rows = stored.shape[0] as usize;
                stored.bytes = halves(&stored.bytes, rows, self.spec.head_dim as usize);
            }
            FalconH1 => self.divide(part, stored),
            _ => {}
        }
        if ["ssm_a", "ssm_d"].contains(&part)
            || part == "ssm_norm.weight" && stored.shape.len() == 2
        {
            stored.shape = vec![stored.shape.iter().product()];
        }
        if let (Qwen35 | Qwen35Moe, Some(recurrent)) = (architecture, self.spec.recurrent) {
            regroup(&recurrent, part, stored);
        }
        if part == "ssm_conv1d.weight" {
            stored.shape.insert(1, 1);
        }
    }

    /// Divides by the factors of Falcon H1, all of which are powers of two.
    fn divide(&self, part: &str, stored: &mut Stored) {
        let rows = stored.shape[0] as usize;
        let factors: Vec<f32> = match part {
            "ssm_in.weight" => {
                let recurrent = self.spec.recurrent.unwrap();
                let inner = (recurrent.value_heads * recurrent.head_dim) as usize;
                let state = (recurrent.key_heads * recurrent.state_dim) as usize;
                let steps = recurrent.value_heads as usize;
                let ranges = [inner, inner, state, state, steps];
                let each = ranges.into_iter().zip(SSM_FACTORS);
                each.flat_map(|(rows, factor)| vec![factor * 0.5; rows])
                    .collect()
            }
            part => match FACTORS.iter().find(|(name, _)| *name == part) {
                Some((_, factor)) => vec![*factor; rows],
                None => return,
            },
        };
        assert_eq!(factors.len(), rows, "{part}");
        let each = stored.bytes.len() / rows;
        let by_row = stored.bytes.chunks(each).zip(factors);
        stored.bytes = by_row
            .flat_map(|(row, factor)| divided(&stored.dtype, row, factor))
            .collect();
    }

    /// Queries, keys, values and gates of Qwen 3 Next: the rows of each key head together.
    fn joined_projections(&self, source: &Source, layer: &str) -> Stored {
        let recurrent = self.spec.recurrent.unwrap();
        let gate = self.find(&source.name.replace("attn_qkv", "attn_gate"));
        let (heads, dim) = (recurrent.key_heads as usize, recurrent.head_dim as usize);
        let values = (recurrent.value_heads * recurrent.head_dim) as usize;
        let row_bytes = source.bytes.len() / source.dims[1] as usize;
        let (mixed, keys) = (&source.bytes, heads * dim);
        let parts = [
            (mixed, 0, dim),
            (mixed, keys, dim),
            (mixed, 2 * keys, values / heads),
            (&gate.bytes, 0, values / heads),
        ];
        let mut stored = self.plain(source, layer, "ssm_in.weight");
        stored.shape[0] += values as u64;
        stored.bytes.clear();
        for head in 0..heads {
            for (bytes, first, rows) in parts {
                let start = (first + head * rows) * row_bytes;
                stored.bytes.extend(&bytes[start..start + rows * row_bytes]);
            }
        }
        stored
    }

    /// Experts: one tensor each in Qwen 3 Next, and otherwise one of gates and up projections and one of down projections.
    fn experts(&self, source: &Source, layer: &str, part: &str) -> Vec<Stored> {
        let count = source.dims[2] as usize;
        let each = source.bytes.len() / count;
        let plain = self.plain(source, layer, &format!("{part}_exps.weight"));
        if self.spec.architecture == Architecture::Qwen3Next {
            let expert = |(expert, bytes): (usize, &[u8])| Stored {
                name: plain.name.replace("EXPERT", &expert.to_string()),
                dtype: plain.dtype.clone(),
                shape: plain.shape[1..].to_vec(),
                bytes: bytes.to_vec(),
            };
            return source.bytes.chunks(each).enumerate().map(expert).collect();
        }
        match part {
            "ffn_up" => Vec::new(),
            "ffn_gate" => {
                let up = self.find(&source.name.replace("ffn_gate", "ffn_up"));
                let both = source.bytes.chunks(each).zip(up.bytes.chunks(each));
                let mut joined = plain;
                joined.bytes = both.flat_map(|(gate, up)| [gate, up].concat()).collect();
                joined.shape[1] *= 2;
                vec![joined]
            }
            _ => vec![plain],
        }
    }
}

/// Brings the value heads of each key head together.
fn regroup(recurrent: &RecurrentSynth, part: &str, stored: &mut Stored) {
    let dim = recurrent.head_dim as usize;
    let before = 2 * (recurrent.key_heads * recurrent.head_dim) as usize;
    let (first, rows) = match part {
        "attn_qkv.weight" | "ssm_conv1d.weight" => (before, dim),
        "attn_gate.weight" => (0, dim),
        "ssm_alpha.weight" | "ssm_beta.weight" | "ssm_dt.bias" | "ssm_a" => (0, 1),
        "ssm_out.weight" => {
            let row_bytes = stored.bytes.len() / stored.shape[0] as usize;
            let width = row_bytes / stored.shape[1] as usize;
            let by_row = stored.bytes.chunks(row_bytes);
            let grouped = by_row.flat_map(|row| grouped(recurrent, row, dim * width));
            stored.bytes = grouped.collect();
            return;
        }
        _ => return,
    };
    let row_bytes = stored.bytes.len() / stored.shape[0] as usize;
    let heads = stored.bytes.split_off(first * row_bytes);
    stored
        .bytes
        .extend(grouped(recurrent, &heads, rows * row_bytes));
}

/// Heads of `len` bytes, from the first one of all key heads, the second one of all, ... to all of each key head.
fn grouped(recurrent: &RecurrentSynth, heads: &[u8], len: usize) -> Vec<u8> {
    let (keys, all) = (recurrent.key_heads as usize, recurrent.value_heads as usize);
    assert_eq!(heads.len(), all * len);
    let mut out = Vec::with_capacity(heads.len());
    for key in 0..keys {
        for second in 0..all / keys {
            let head = second * keys + key;
            out.extend(&heads[head * len..][..len]);
        }
    }
    out
}

fn divided(dtype: &str, row: &[u8], factor: f32) -> Vec<u8> {
    match dtype {
        "F32" => of_floats(floats(row).map(|number| number / factor)),
        "F16" => {
            let halves = row
                .chunks_exact(2)
                .map(|b| f16::from_le_bytes([b[0], b[1]]));
            halves
                .flat_map(|half| f16::from_f32(half.to_f32() / factor).to_le_bytes())
                .collect()
        }
        _ => {
            let halves = row
                .chunks_exact(2)
                .map(|b| bf16::from_le_bytes([b[0], b[1]]));
            halves
                .flat_map(|half| bf16::from_f32(half.to_f32() / factor).to_le_bytes())
                .collect()
        }
    }
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let numbers = bytes.chunks_exact(4);
    numbers.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn of_floats(numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    numbers.flat_map(f32::to_le_bytes).collect()
}
