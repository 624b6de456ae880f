//! Models with experts: a naive implementation as the reference, files with experts one by one, bad files.

use crate::support::{bytes, ids, logits, options, try_load};
use cpu::Model;
use kernels::{Isa, Pool};
use model::Forward;
use std::ops::Range;
use synth::{RopeScaling, SynthSpec};
use weights::gguf::{Gguf, GgufWriter, TensorPlan};
use weights::{Architecture, LoadError};

const PRESETS: [&str; 5] = [
    "tiny-mixtral",
    "tiny-qwen3moe",
    "tiny-granitemoe",
    "tiny-olmoe",
    "tiny-gpt-oss",
];

/// The model in plain loops over `f64`, with keys and values in f16 as the store of the kernels keeps them.
struct Naive {
    gguf: Gguf,
    spec: SynthSpec,
}

impl Naive {
    fn of(preset: &str) -> Self {
        let mut spec = SynthSpec::preset(preset).unwrap();
        if spec.architecture == Architecture::GptOss {
            spec.rope.scaling = RopeScaling::None;
        }
        let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
        Self { gguf, spec }
    }

    fn tensor(&self, name: &str) -> Option<Vec<f64>> {
        self.numbers(&format!("{name}.weight"))
    }

    fn numbers(&self, name: &str) -> Option<Vec<f64>> {
        let tensor = self.gguf.tensor(name)?;
        let quads = tensor.bytes.as_chunks::<4>().0.iter();
        let floats = quads.map(|quad| f64::from(f32::from_le_bytes(*quad)));
        Some(floats.collect())
    }

    /// A key's number.
    fn factor(&self, key: &str) -> Option<f64> {
        let key = format!("{}.{key}", self.spec.architecture);
        self.gguf
            .get(&key)
            .map(|_| f64::from(self.gguf.need::<f32>(&key).unwrap()))
    }

    /// These rows of a matrix, times `x`, plus their biases.
    fn rows(&self, name: &str, x: &[f64], rows: Range<usize>) -> Vec<f64> {
        let weight = self.tensor(name).unwrap();
        let bias = self.numbers(&format!("{name}.bias"));
        let row = |row: usize| {
            let weights = &weight[row * x.len()..][..x.len()];
            let product: f64 = weights.iter().zip(x).map(|(w, x)| w * x).sum();
            product + bias.as_ref().map_or(0.0, |bias| bias[row])
        };
        rows.map(row).collect()
    }

    fn all_rows(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let rows = self.gguf.tensor(&format!("{name}.weight")).unwrap().rows();
        self.rows(name, x, 0..rows)
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.tensor(name).unwrap();
        let eps = self.factor("attention.layer_norm_rms_epsilon").unwrap();
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let each = x.iter().zip(&weight);
        each.map(|(x, w)| x / (mean + eps).sqrt() * w).collect()
    }

    /// Queries or keys: projected, normalized and turned.
    fn heads(&self, layer: usize, part: &str, x: &[f64], position: usize) -> Vec<f64> {
        let dim = self.spec.head_dim as usize;
        let mut heads = self.all_rows(&format!("blk.{layer}.{part}"), x);
        let norm = format!("blk.{layer}.{part}_norm");
        heads = match self.spec.architecture {
            Architecture::Olmoe => self.norm(&norm, &heads),
            Architecture::Qwen3Moe => {
                let each = heads.chunks(dim).flat_map(|head| self.norm(&norm, head));
                each.collect()
            }
            _ => heads,
        };
        let adjacent = matches!(
            self.spec.architecture,
            Architecture::Llama | Architecture::GraniteMoe
        );
        for head in heads.chunks_mut(dim) {
            for i in 0..dim / 2 {
                let base = f64::from(self.spec.rope.base);
                let angle = position as f64 * base.powf(-2.0 * i as f64 / dim as f64);
                let at = if adjacent {
                    [2 * i, 2 * i + 1]
                } else {
                    [i, i + dim / 2]
                };
                let (a, b) = (head[at[0]], head[at[1]]);
                head[at[0]] = a * angle.cos() - b * angle.sin();
                head[at[1]] = a * angle.sin() + b * angle.cos();
            }
        }
        heads
    }

    fn attention(&self, layer: usize, normed: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let (dim, spec) = (self.spec.head_dim as usize, &self.spec);
        let stored = |x: Vec<f64>| -> Vec<f64> {
            let halves = x.into_iter().map(|x| half::f16::from_f64(x).to_f64());
            halves.collect()
        };
        let rows = || normed.iter().enumerate();
        let keys: Vec<_> = rows()
            .map(|(at, x)| stored(self.heads(layer, "attn_k", x, at)))
            .collect();
        let values: Vec<_> = normed
            .iter()
            .map(|x| stored(self.all_rows(&format!("blk.{layer}.attn_v"), x)))
            .collect();
        let scale = self
            .factor("attention.scale")
            .unwrap_or(1.0 / (dim as f64).sqrt());
        // All layers except each second one.
        let window = spec.window.filter(|_| layer.is_multiple_of(2));
        let sinks = self.tensor(&format!("blk.{layer}.attn_sinks"));
        let attend = |at: usize, x: &[f64]| {
            let first = window.map_or(0, |window| (at + 1).saturating_sub(window as usize));
            let mut query = self.heads(layer, "attn_q", x, at);
            for (head, query) in query.chunks_mut(dim).enumerate() {
                let kv = head / (spec.heads / spec.kv_heads) as usize * dim;
                let scores: Vec<f64> = keys[first..=at]
                    .iter()
                    .map(|key| {
                        let products = query.iter().zip(&key[kv..kv + dim]);
                        (products.map(|(q, k)| q * k).sum::<f64>() * scale).exp()
                    })
                    .collect();
                let sink = sinks.as_ref().map_or(0.0, |sinks| sinks[head].exp());
                let sum: f64 = scores.iter().sum::<f64>() + sink;
                query.fill(0.0);
                for (score, value) in scores.iter().zip(&values[first..]) {
                    let value = &value[kv..kv + dim];
                    let each = query.iter_mut().zip(value);
                    each.for_each(|(out, value)| *out += score / sum * value);
                }
            }
            self.all_rows(&format!("blk.{layer}.attn_output"), &query)
        };
        rows().map(|(at, x)| attend(at, x)).collect()
    }

    /// A gated part with `ffn` rows from row `first` on; the output from row `first_out` on.
    fn gated(&self, names: [String; 3], x: &[f64], index: usize, ffn: usize) -> Vec<f64> {
        let [gate, up, down] = names;
        let rows = index * ffn..(index + 1) * ffn;
        let (gate, up) = (self.rows(&gate, x, rows.clone()), self.rows(&up, x, rows));
        let bounded = self.spec.architecture == Architecture::GptOss;
        let hidden: Vec<f64> = gate
            .iter()
            .zip(&up)
            .map(|(gate, up)| {
                if bounded {
                    let gate = gate.min(7.0);
                    gate / (1.0 + (-1.702 * gate).exp()) * (up.clamp(-7.0, 7.0) + 1.0)
                } else {
                    gate / (1.0 + (-gate).exp()) * up
                }
            })
            .collect();
        self.rows(&down, &hidden, index * x.len()..(index + 1) * x.len())
    }

    fn feed_forward(&self, layer: usize, x: &[f64]) -> Vec<f64> {
        let experts = self.spec.experts.unwrap();
        let named = |kind: &str| {
            ["gate", "up", "down"].map(|part| format!("blk.{layer}.ffn_{part}_{kind}"))
        };
        let scores = self.all_rows(&format!("blk.{layer}.ffn_gate_inp"), x);
        let mut best: Vec<usize> = (0..scores.len()).collect();
        best.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        best.truncate(experts.used as usize);
        let sum: f64 = match self.spec.architecture {
            Architecture::Olmoe => scores.iter().map(|score| score.exp()).sum(),
            _ => best.iter().map(|&expert| scores[expert].exp()).sum(),
        };
        let mut out = match experts.shared as usize {
            0 => vec![0.0; x.len()],
            shared => self.gated(named("shexp"), x, 0, shared),
        };
        for expert in best {
            let share = scores[expert].exp() / sum;
            let output = self.gated(named("exps"), x, expert, experts.ffn as usize);
            let each = out.iter_mut().zip(output);
            each.for_each(|(out, output)| *out += share * output);
        }
        out
    }

    /// Logits of each position.
    fn run(&self, ids: &[u32]) -> Vec<Vec<f64>> {
        let dim = self.spec.dim as usize;
        let embedding = self.tensor("token_embd").unwrap();
        let scale = self.factor("embedding_scale").unwrap_or(1.0);
        let embed = |&id: &u32| {
            let row = &embedding[id as usize * dim..][..dim];
            row.iter().map(|x| x * scale).collect::<Vec<f64>>()
        };
        let mut stream: Vec<_> = ids.iter().map(embed).collect();
        let factor = self.factor("residual_scale").unwrap_or(1.0);
        let add = |stream: &mut [Vec<f64>], update: &[Vec<f64>]| {
            for (x, y) in stream.iter_mut().flatten().zip(update.iter().flatten()) {
                *x += y * factor;
            }
        };
        for layer in 0..self.spec.layers as usize {
            let normed = |stream: &[Vec<f64>], name: &str| -> Vec<Vec<f64>> {
                let name = format!("blk.{layer}.{name}");
                stream.iter().map(|x| self.norm(&name, x)).collect()
            };
            let update = self.attention(layer, &normed(&stream, "attn_norm"));
            add(&mut stream, &update);
            let norm = match self.spec.architecture {
                Architecture::GptOss => "post_attention_norm",
                _ => "ffn_norm",
            };
            let inputs = normed(&stream, norm);
            let update: Vec<_> = inputs.iter().map(|x| self.feed_forward(layer, x)).collect();
            add(&mut stream, &update);
        }
        let output = if self.spec.tied {
            "token_embd"
        } else {
            "output"
        };
        let divisor = self.factor("logit_scale").unwrap_or(1.0);
        let logits = |x: &Vec<f64>| {
            let logits = self.all_rows(output, &self.norm("output_norm", x));
            logits.iter().map(|x| x / divisor).collect()
        };
        stream.iter().map(logits).collect()
    }
}

#[test]
fn experts_equal_the_naive_implementation() {
    for preset in PRESETS {
        let naive = Naive::of(preset);
        let prompt = ids(11, 33, naive.spec.vocab as usize);
        let wanted = naive.run(&prompt);
        for isa in Isa::available() {
            let gguf = Gguf::from_bytes(naive.spec.to_bytes().unwrap()).unwrap();
            let model = Model::load(gguf, isa, Pool::new(2), &options(None), &mut |_| {});
            let found = logits(&mut model.unwrap(), &prompt, 0);
            for (row, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                let far = found.iter().zip(wanted);
                let far = far.map(|(a, b)| (f64::from(*a) - b).abs());
                let far = far.fold(0.0, f64::max);
                assert!(far < 0.02, "{preset}, {isa}, row {row}: {far}");
            }
        }
    }
}

/// The file with tensors replaced.
pub(crate) fn rewritten(
    file: &[u8],
    replace: impl Fn(&str, &[u64], &[u8]) -> Vec<(String, Vec<u64>, Vec<u8>)>,
) -> Vec<u8> {
    let gguf = Gguf::from_bytes(file.to_vec()).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in gguf.metadata() {
        writer.value(key, value);
    }
    let mut contents = Vec::new();
    for tensor in gguf.tensors() {
        for (name, dims, bytes) in replace(tensor.name, tensor.dims, tensor.bytes) {
            let kind = tensor.kind;
            writer.tensor(TensorPlan { name, dims, kind });
            contents.push(bytes);
        }
    }
    let (mut out, mut next) = (Vec::new(), contents.iter());
    let fill = |_: &TensorPlan, sink: &mut dyn std::io::Write| sink.write_all(next.next().unwrap());
    writer.write(&mut out, fill).unwrap();
    out
}

/// The file as converters wrote Mixtral before there were tensors of three dimensions.
pub(crate) fn one_by_one(file: &[u8]) -> Vec<u8> {
    rewritten(file, |name, dims, bytes| {
        let Some(part) = name.strip_suffix("_exps.weight") else {
            return vec![(name.to_owned(), dims.to_vec(), bytes.to_vec())];
        };
        let each = bytes.chunks(bytes.len() / dims[2] as usize).enumerate();
        each.map(|(expert, bytes)| {
            let name = format!("{part}.{expert}.weight");
            (name, dims[..2].to_vec(), bytes.to_vec())
        })
        .collect()
    })
}

#[test]
fn experts_in_single_tensors_equal_those_in_one() {
    let whole = bytes("x preset=small-mixtral mix=Q4_K_M");
    let said = |file: Vec<u8>| {
        let mut model = try_load(file, 2).unwrap();
        let prompt = ids(5, 40, model.dims().vocab);
        logits(&mut model, &prompt, 0)
    };
    assert!(said(one_by_one(&whole)) == said(whole));
}

pub(crate) fn refused(file: Vec<u8>) -> LoadError {
    try_load(file, 1).map(|_| ()).unwrap_err()
}

#[test]
fn bad_expert_tensors_are_refused_in_one_line() {
    let whole = bytes("x preset=tiny-qwen3moe mix=F32");
    // One expert less than the count of the metadata.
    for name in [
        "ffn_gate_inp",
        "ffn_gate_exps",
        "ffn_up_exps",
        "ffn_down_exps",
    ] {
        let full = format!("blk.1.{name}.weight");
        let file = rewritten(&whole, |found, dims, bytes| {
            let (mut dims, mut bytes) = (dims.to_vec(), bytes.to_vec());
            if found == full {
                let last = dims.last_mut().unwrap();
                bytes.truncate(bytes.len() / *last as usize * (*last as usize - 1));
                *last -= 1;
            }
            vec![(found.to_owned(), dims, bytes)]
        });
        let error = refused(file);
        let LoadError::Shape {
            tensor,
            wanted,
            found,
        } = &error
        else {
            panic!("{error}")
        };
        assert_eq!(
            (tensor, wanted.last(), found.last()),
            (&full, Some(&8), Some(&7))
        );
        assert!(!error.to_string().contains('\n'));
    }
    // An expert of other formats than the first, and one that is missing.
    let single = one_by_one(&bytes("x preset=tiny-mixtral mix=F32"));
    let renamed = |from: &str, to: &str| {
        rewritten(&single, |name, dims, bytes| {
            let name = if name == from { to } else { name };
            vec![(name.to_owned(), dims.to_vec(), bytes.to_vec())]
        })
    };
    let error = refused(renamed("blk.0.ffn_up.3.weight", "blk.0.ffn_up.9.weight"));
    let tensor = "blk.0.ffn_up.3.weight".to_owned();
    assert_eq!(error, LoadError::Missing { tensor });
}

/// Bytes of the weights and of the workspace grow with what they hold.
#[test]
fn memory_of_experts_is_counted() {
    let of = |line: &str| try_load(bytes(line), 1).unwrap().bytes();
    let few = of("x preset=tiny-qwen3moe mix=F32");
    let many = of("x preset=tiny-qwen3moe mix=F32 experts=16");
    // Eight experts of three matrices of 64 times 64 in each of two layers, and their rows of the router.
    assert_eq!(many.weights - few.weights, 2 * 8 * 3 * 64 * 64 * 4);
    assert!(many.scratch > few.scratch && many.kv == few.kv);
}
