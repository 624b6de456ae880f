//! Encoders: a naive implementation as the reference, and independence of the batch.
//!
//! Promise (Arithmetic): hidden states of encoders are those of a naive implementation in plain loops, on every
//! instruction set, for `bert`, `nomic-bert` and `nomic-bert-moe`; a text's bits depend on no other text of its
//! batch, in all formats.
//!
//! Promise (Arithmetic): a reranker's scores are those of the naive implementation or of llama.cpp, ordered, whatever
//! shares the step; a document is shortened before the end of the prompt, and names of control tokens in it are text.
//! Also held by `cpu/tests/it/embedding_models.rs`, `millrace/tests/it/encoders.rs`,
//! `millrace/tests/it/embedding_decoders.rs`.

use crate::support::{PAGE, PAGES, ROWS, options, pages};
use cpu::EncoderModel;
use kernels::{Format, Isa, Pool};
use model::{Batch, Forward, ForwardError, Want};
use synth::{EncoderSpec, EncoderVocab, Mix, PoolingSynth};
use weights::LoadError;
use weights::encoder::EncoderKind;
use weights::gguf::Gguf;

/// The separator of the synthetic vocabulary.
const SEPARATOR: u32 = 3;
const PRESETS: [&str; 5] = [
    "tiny-bert",
    "tiny-nomic-bert",
    "tiny-bert-rank",
    "tiny-xlm-r-rank",
    "tiny-nomic-bert-moe",
];
/// Experts that a row uses.
const EXPERTS_USED: usize = 2;

fn spec(preset: &str) -> EncoderSpec {
    EncoderSpec::preset(preset).unwrap()
}

fn try_load(bytes: Vec<u8>, isa: Isa, threads: usize) -> Result<EncoderModel, LoadError> {
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let kind = EncoderKind::of(&gguf).unwrap();
    EncoderModel::load(
        gguf,
        kind,
        isa,
        Pool::new(threads),
        &options(None),
        &mut |_| {},
    )
}

fn load(spec: &EncoderSpec, isa: Isa, threads: usize) -> EncoderModel {
    try_load(spec.to_bytes().unwrap(), isa, threads).unwrap()
}

fn ids(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32)
        .map(|i| 5 + (i * i + 7 * i + seed * 13) % 90)
        .collect()
}

/// Hidden states of one text, alone in its batch.
fn hidden(model: &mut EncoderModel, ids: &[u32], want: Want) -> Vec<f32> {
    let mut batch = Batch::default();
    batch.push(ids, 0, &pages(3, ids.len()), want);
    assert_eq!(model.forward(&batch).map(|logits| logits.len()), Ok(0));
    model.hidden().to_vec()
}

/// The model in plain loops over `f64`, with keys and values in f16 as the store of the kernels keeps them.
struct Naive {
    gguf: Gguf,
    spec: EncoderSpec,
}

impl Naive {
    fn tensor(&self, name: &str) -> Option<Vec<f64>> {
        let tensor = self.gguf.tensor(name)?;
        let quads = tensor.bytes.as_chunks::<4>().0.iter();
        Some(
            quads
                .map(|quad| f64::from(f32::from_le_bytes(*quad)))
                .collect(),
        )
    }

    fn linear(&self, name: &str, x: &[f64], rows: std::ops::Range<usize>) -> Vec<f64> {
        let weight = self.tensor(&format!("{name}.weight")).unwrap();
        let bias = self.tensor(&format!("{name}.bias"));
        rows.map(|row| {
            let weights = &weight[row * x.len()..][..x.len()];
            let sum: f64 = weights.iter().zip(x).map(|(w, x)| w * x).sum();
            sum + bias.as_ref().map_or(0.0, |bias| bias[row])
        })
        .collect()
    }

    fn norm(&self, name: &str, x: &mut [f64]) {
        let [weight, bias] =
            ["weight", "bias"].map(|part| self.tensor(&format!("{name}.{part}")).unwrap());
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        for (i, x) in x.iter_mut().enumerate() {
            *x = (*x - mean) / (variance + 1e-12).sqrt() * weight[i] + bias[i];
        }
    }

    fn turn(&self, x: &mut [f64], position: usize) {
        let dim = (self.spec.dim / self.spec.heads) as usize;
        for head in x.chunks_mut(dim) {
            for i in 0..dim / 2 {
                let angle = position as f64 * 1000f64.powf(-2.0 * i as f64 / dim as f64);
                let (a, b) = (head[i], head[i + dim / 2]);
                head[i] = a * angle.cos() - b * angle.sin();
                head[i + dim / 2] = a * angle.sin() + b * angle.cos();
            }
        }
    }

    /// Query, key and value of one row.
    fn qkv(&self, layer: usize, x: &[f64], position: usize) -> [Vec<f64>; 3] {
        let dim = x.len();
        let mut all = match self.spec.kind {
            EncoderKind::Bert => ["attn_q", "attn_k", "attn_v"]
                .map(|part| self.linear(&format!("blk.{layer}.{part}"), x, 0..dim)),
            EncoderKind::NomicBert | EncoderKind::NomicBertMoe => [0, 1, 2].map(|part| {
                let rows = part * dim..(part + 1) * dim;
                self.linear(&format!("blk.{layer}.attn_qkv"), x, rows)
            }),
        };
        if self.spec.kind != EncoderKind::Bert {
            self.turn(&mut all[0], position);
            self.turn(&mut all[1], position);
        }
        for x in all[1..].iter_mut().flatten() {
            *x = half::f16::from_f64(*x).to_f64();
        }
        all
    }

    fn attention(&self, layer: usize, stream: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let dim = (self.spec.dim / self.spec.heads) as usize;
        let rows = stream.iter().enumerate();
        let all: Vec<_> = rows.map(|(at, x)| self.qkv(layer, x, at)).collect();
        let attend = |query: &[f64]| {
            let mut out = vec![0.0; query.len()];
            for (head, out) in out.chunks_mut(dim).enumerate() {
                let part = head * dim..(head + 1) * dim;
                let score = |key: &[f64]| {
                    let products = query[part.clone()].iter().zip(&key[part.clone()]);
                    products.map(|(q, k)| q * k).sum::<f64>() / (dim as f64).sqrt()
                };
                let weights: Vec<f64> = all.iter().map(|row| score(&row[1]).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for (weight, row) in weights.iter().zip(&all) {
                    for (out, value) in out.iter_mut().zip(&row[2][part.clone()]) {
                        *out += weight / sum * value;
                    }
                }
            }
            out
        };
        let name = format!("blk.{layer}.attn_output");
        let out = all
            .iter()
            .map(|row| self.linear(&name, &attend(&row[0]), 0..row[0].len()));
        out.collect()
    }

    fn feed_forward(&self, layer: usize, x: &[f64]) -> Vec<f64> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let ffn = self.spec.ffn as usize;
        if self.tensor(&name("ffn_gate_inp.weight")).is_some() {
            return self.experts(layer, x);
        }
        let mut up = self.linear(&name("ffn_up"), x, 0..ffn);
        match self.spec.kind {
            EncoderKind::Bert | EncoderKind::NomicBertMoe => gelu(&mut up),
            EncoderKind::NomicBert => {
                let gate = self.linear(&name("ffn_gate"), x, 0..ffn);
                for (up, gate) in up.iter_mut().zip(gate) {
                    *up *= gate / (1.0 + (-gate).exp());
                }
            }
        }
        self.linear(&name("ffn_down"), &up, 0..x.len())
    }

    /// The chosen experts' outputs, by their shares of the softmax over all.
    fn experts(&self, layer: usize, x: &[f64]) -> Vec<f64> {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let (dim, ffn) = (x.len(), self.spec.ffn as usize);
        let count = self.tensor(&name("ffn_gate_inp.weight")).unwrap().len() / dim;
        let scores = self.linear(&name("ffn_gate_inp"), x, 0..count);
        let sum: f64 = scores.iter().map(|score| score.exp()).sum();
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let mut out = vec![0.0; dim];
        for &expert in &order[..EXPERTS_USED] {
            let up = name("ffn_up_exps");
            let mut up = self.linear(&up, x, expert * ffn..(expert + 1) * ffn);
            gelu(&mut up);
            let down = self.linear(
                &name("ffn_down_exps"),
                &up,
                expert * dim..(expert + 1) * dim,
            );
            let share = scores[expert].exp() / sum;
            out.iter_mut()
                .zip(&down)
                .for_each(|(out, x)| *out += share * x);
        }
        out
    }

    fn embed(&self, id: u32, position: usize, token_type: usize) -> Vec<f64> {
        let dim = self.spec.dim as usize;
        let row = |name: &str, row: usize| {
            let table = self.tensor(name);
            table.map_or(vec![0.0; dim], |table| table[row * dim..][..dim].to_vec())
        };
        let parts = [
            row("token_embd.weight", id as usize),
            row("token_types.weight", token_type),
            row("position_embd.weight", position),
        ];
        let mut x: Vec<f64> = (0..dim)
            .map(|i| parts.iter().map(|part| part[i]).sum())
            .collect();
        self.norm("token_embd_norm", &mut x);
        x
    }

    fn run(&self, ids: &[u32]) -> Vec<Vec<f64>> {
        let separator = ids.iter().position(|id| *id == SEPARATOR);
        let has_types = self.spec.vocabulary == EncoderVocab::WordPiece;
        let is_second = |at: usize| has_types && separator.is_some_and(|separator| at > separator);
        let positions = ids.iter().enumerate();
        let mut stream: Vec<_> = positions
            .map(|(at, &id)| self.embed(id, at, usize::from(is_second(at))))
            .collect();
        for layer in 0..self.spec.layers as usize {
            let attended = self.attention(layer, &stream);
            for (x, update) in stream.iter_mut().zip(&attended) {
                x.iter_mut().zip(update).for_each(|(x, y)| *x += y);
                self.norm(&format!("blk.{layer}.attn_output_norm"), x);
                let update = self.feed_forward(layer, x);
                x.iter_mut().zip(&update).for_each(|(x, y)| *x += y);
                self.norm(&format!("blk.{layer}.layer_output_norm"), x);
            }
        }
        stream
    }

    fn score(&self, first: &[f64]) -> Vec<f64> {
        let mut pooled = self.linear("cls", first, 0..first.len());
        pooled.iter_mut().for_each(|x| *x = x.tanh());
        self.linear("cls.output", &pooled, 0..1)
    }
}

/// The approximation by tanh.
fn gelu(x: &mut [f64]) {
    for x in x {
        let inner = 0.797_884_560_802_865_4 * (*x + 0.044_715 * x.powi(3));
        *x *= 0.5 * (1.0 + inner.tanh());
    }
}

#[test]
fn encoders_equal_the_naive_implementation() {
    for preset in PRESETS {
        let spec = spec(preset);
        let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
        let naive = Naive { gguf, spec };
        for len in [1, 2, 17, 40] {
            let mut text = ids(len as u32, len);
            if len > 2 {
                (text[len / 2], text[len - 1]) = (SEPARATOR, SEPARATOR);
            }
            let states = naive.run(&text);
            let (want, expected) = match naive.spec.pooling {
                PoolingSynth::Rank => (Want::FirstHidden, naive.score(&states[0])),
                _ => (Want::AllHidden, states.concat()),
            };
            for isa in Isa::available().map(Isa::without_amx) {
                let found = hidden(&mut load(&naive.spec, isa, 2), &text, want);
                assert_eq!(found.len(), expected.len(), "{preset}");
                for (found, expected) in found.iter().zip(&expected) {
                    let off = (f64::from(*found) - expected).abs();
                    assert!(
                        off < 5e-4,
                        "{preset}, {len} tokens, {isa}: {found}, not {expected}"
                    );
                }
            }
        }
    }
}

/// Every format that loads, on texts that share a batch with others.
#[test]
fn encoder_rows_are_batch_invariant() {
    let formats = Mix::all().filter(|mix| *mix != Mix::Uniform(Format::F32));
    let mixes = std::iter::once(Mix::Uniform(Format::F32)).chain(formats);
    for (mix, kind) in mixes.flat_map(|mix| EncoderKind::ALL.map(|kind| (mix, kind))) {
        let spec = EncoderSpec {
            mix,
            ..spec(&format!("small-{}", kind.name()))
        };
        let mut model = load(&spec, Isa::best(), 2);
        let texts = [ids(1, 33), ids(2, 1), ids(3, 16), ids(4, 40)];
        let alone: Vec<_> = texts
            .iter()
            .map(|text| hidden(&mut model, text, Want::AllHidden))
            .collect();
        let mut batch = Batch::default();
        for (i, text) in texts.iter().enumerate() {
            batch.push(text, 0, &pages(40 - 10 * i, text.len()), Want::AllHidden);
        }
        model.forward(&batch).unwrap();
        assert!(model.hidden() == alone.concat(), "{mix} {kind:?}");
        batch.clear();
        batch.push(&texts[0], 0, &pages(0, 33), Want::LastHidden);
        batch.push(&texts[3], 0, &pages(10, 40), Want::FirstHidden);
        batch.push(&texts[1], 0, &pages(20, 1), Want::None);
        model.forward(&batch).unwrap();
        let dim = model.capabilities().hidden_dim;
        let expected = [&alone[0][32 * dim..], &alone[3][..dim]].concat();
        assert!(model.hidden() == expected, "{mix} {kind:?}: chosen rows");
    }
}

#[test]
fn encoders_see_the_whole_text() {
    let mut model = load(&spec("tiny-bert"), Isa::best(), 1);
    let mut text = ids(1, 20);
    let before = hidden(&mut model, &text, Want::FirstHidden);
    text[19] += 1;
    assert_ne!(hidden(&mut model, &text, Want::FirstHidden), before);
}

#[test]
fn encoders_reject_batches_that_cut_a_text() {
    let mut model = load(&spec("tiny-bert"), Isa::best(), 1);
    let text = ids(1, 20);
    let bad = |batch: &Batch, model: &mut EncoderModel| match model.forward(batch) {
        Err(ForwardError::BadBatch(why)) => why,
        other => panic!("{:?}", other.map(|logits| logits.len())),
    };
    let mut batch = Batch::default();
    for (position, want) in [(1, Want::AllHidden), (0, Want::Last), (0, Want::All)] {
        batch.clear();
        batch.push(&text, position, &pages(0, 32), want);
        assert!(bad(&batch, &mut model).contains("one span without logits"));
        assert!(model.hidden().is_empty());
    }
    batch.clear();
    batch.push(&ids(1, 65), 0, &pages(0, 65), Want::AllHidden);
    assert!(bad(&batch, &mut model).contains("context_max"));
    const { assert!(PAGE * PAGES > ROWS) };
}
