//! Models that were made for embeddings or for scores: llama.cpp's numbers, and independence of the batch.
//!
//! Promise (Arithmetic): models for embeddings and rerankers (`bert`, XLM-R, `nomic-bert`, `nomic-bert-moe`,
//! `gemma-embedding`, Qwen3-Embedding, Qwen3-Reranker) give llama.cpp's vectors or scores for the same ids.
//! Also held by `tools/oracle/embeddings.py`.

use crate::support::case::encoder;
use crate::support::{ROWS, bytes, ids, load, options, pages, try_load};
use cpu::{EncoderModel, LoadOptions, Model};
use kernels::{Isa, Pool};
use model::{Batch, Forward, ForwardError, Want};
use weights::LoadError;
use weights::encoder::EncoderKind;
use weights::gguf::{Gguf, GgufWriter, TensorPlan};

/// Permitted distance from llama.cpp's numbers, of the largest: another order of sums, f16 keys, values and gelu.
const OFF: f32 = 5e-3;
pub(crate) const GEMMA: &str = "gemma preset=tiny-gemma-embedding mix=F32";
pub(crate) const RERANKER: &str = "qwen3 preset=tiny-qwen3-reranker mix=F32";

/// The vectors of a text's tokens that `want` asks for, alone in its batch.
fn vectors(model: &mut dyn Forward, ids: &[u32], want: Want) -> Vec<Vec<f32>> {
    let mut batch = Batch::default();
    batch.push(ids, 0, &pages(3, ids.len()), want);
    assert_eq!(model.forward(&batch).map(|logits| logits.len()), Ok(0));
    let rows = model.hidden().chunks(model.capabilities().hidden_dim);
    rows.map(<[f32]>::to_vec).collect()
}

fn mean(rows: &[Vec<f32>]) -> Vec<f32> {
    let of = |at: usize| rows.iter().map(|row| row[at]).sum::<f32>() / rows.len() as f32;
    (0..rows[0].len()).map(of).collect()
}

/// The numbers after a line's first word.
fn numbers<T: std::str::FromStr>(line: &str) -> Vec<T> {
    let words = line.split(' ').skip(1);
    words.filter_map(|word| word.parse().ok()).collect()
}

pub(crate) fn load_encoder(bytes: Vec<u8>) -> Result<EncoderModel, LoadError> {
    let gguf = Gguf::from_bytes(bytes).unwrap();
    let kind = EncoderKind::of(&gguf).unwrap();
    let (isa, pool) = (Isa::detect(), Pool::new(2));
    EncoderModel::load(gguf, kind, isa, pool, &options(None), &mut |_| {})
}

/// What the model of a case makes of a text, pooled as its file says, in llama.cpp's terms.
fn pooled(case: &str, text: &[u32]) -> Vec<f32> {
    let name = case.split(' ').next().unwrap();
    if let Some(spec) = encoder(case) {
        let mut model = load_encoder(spec.to_bytes().unwrap()).unwrap();
        return match name {
            "nomic-bert" | "nomic-bert-moe" => mean(&vectors(&mut model, text, Want::AllHidden)),
            _ => vectors(&mut model, text, Want::FirstHidden).concat(),
        };
    }
    let gguf = Gguf::from_bytes(bytes(case)).unwrap();
    // A prompt of a reranker is one batch.
    let options = LoadOptions {
        rows_max: 2 * ROWS,
        ..options(None)
    };
    let (isa, pool) = (Isa::detect(), Pool::new(2));
    let mut model = Model::load(gguf, isa, pool, &options, &mut |_| {}).unwrap();
    match name {
        "gemma-embedding" => mean(&vectors(&mut model, text, Want::AllHidden)),
        "qwen3-reranker" => {
            // llama.cpp gives the shares of yes and no.
            let score = vectors(&mut model, text, Want::LastHidden)[0][0];
            let yes = 1.0 / (1.0 + (-score).exp());
            vec![yes, 1.0 - yes]
        }
        _ => vectors(&mut model, text, Want::LastHidden).concat(),
    }
}

/// Against `tools/oracle/embeddings.py`.
#[test]
fn pooled_vectors_equal_llama_cpp() {
    let goldens = include_str!("../goldens/encoders.txt");
    let cases: Vec<&str> = goldens.split("case ").skip(1).collect();
    assert_eq!(cases.len(), 9);
    for golden in cases {
        let case = golden.lines().next().unwrap();
        let line = |name: &str| golden.lines().find(|line| line.starts_with(name)).unwrap();
        let theirs: Vec<f32> = numbers(line("vector "));
        let ours = pooled(case, &numbers::<u32>(line("ids ")));
        assert_eq!(ours.len(), theirs.len(), "{case}");
        // A score may be close to zero, and is a sum of terms that are not.
        let largest = theirs.iter().fold(1.0, |most: f32, x| most.max(x.abs()));
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let off = (ours - theirs).abs();
            assert!(off <= OFF * largest, "{case}: {ours}, not {theirs}");
        }
    }
}

#[test]
fn bidirectional_rows_are_batch_invariant() {
    for mix in ["F32", "Q8_0"] {
        let mut model = load(&GEMMA.replace("F32", mix), 2);
        let vocab = model.dims().vocab;
        let texts = [33, 1, 16, 40].map(|len| ids(len as u64, len, vocab));
        let alone = texts
            .each_ref()
            .map(|text| vectors(&mut model, text, Want::AllHidden));
        let mut batch = Batch::default();
        for (i, text) in texts.iter().enumerate() {
            batch.push(text, 0, &pages(40 - 10 * i, text.len()), Want::AllHidden);
        }
        model.forward(&batch).unwrap();
        assert!(model.hidden() == alone.concat().concat(), "{mix}");
        batch.clear();
        batch.push(&texts[0], 0, &pages(0, 33), Want::LastHidden);
        batch.push(&texts[3], 0, &pages(10, 40), Want::FirstHidden);
        batch.push(&texts[1], 0, &pages(20, 1), Want::None);
        model.forward(&batch).unwrap();
        let chosen = [&alone[0][32][..], &alone[3][0]].concat();
        assert!(model.hidden() == chosen, "{mix}: chosen rows");
    }
}

/// A window of 16 has eight tokens on either side: in a model of one layer with a window, the ninth is out of sight.
#[test]
fn windows_reach_to_both_sides() {
    let mut model = load(&format!("{GEMMA} layers=1"), 1);
    assert!(!model.capabilities().is_causal);
    let text = ids(5, 30, model.dims().vocab);
    let before = vectors(&mut model, &text, Want::AllHidden);
    let mut changed = text.clone();
    changed[15] = (changed[15] + 1) % 250;
    let after = vectors(&mut model, &changed, Want::AllHidden);
    for at in 0..30_usize {
        let sees = at.abs_diff(15) <= 8;
        assert_eq!(before[at] != after[at], sees, "token {at}");
    }
}

#[test]
fn bidirectional_models_reject_batches_that_cut_a_text() {
    let mut model = load(GEMMA, 1);
    let text = ids(1, 20, model.dims().vocab);
    for (position, want) in [(1, Want::AllHidden), (0, Want::Last), (0, Want::All)] {
        let mut batch = Batch::default();
        batch.push(&text, position, &pages(0, 32), want);
        let Err(ForwardError::BadBatch(why)) = model.forward(&batch) else {
            panic!("{position} {want:?}");
        };
        assert!(why.contains("one span without logits"), "{why}");
    }
}

/// Many rows are projected a part at a time.
#[test]
fn heads_give_the_same_of_few_and_of_many_rows() {
    for case in [GEMMA, RERANKER] {
        let mut model = load(case, 2);
        let text = ids(2, 120, model.dims().vocab);
        let all = vectors(&mut model, &text, Want::AllHidden);
        assert_eq!(all.len(), 120, "{case}");
        let last = vectors(&mut model, &text, Want::LastHidden);
        assert!(last[0] == all[119], "{case}");
    }
}

/// A file of Gemma's embedding model that was converted without dense projections gives hidden states.
#[test]
fn dense_projections_may_be_absent() {
    let gguf = Gguf::from_bytes(bytes(GEMMA)).unwrap();
    let mut writer = GgufWriter::new();
    gguf.metadata().for_each(|(key, value)| {
        writer.value(key, value);
    });
    for tensor in gguf
        .tensors()
        .filter(|tensor| !tensor.name.starts_with("dense_"))
    {
        let (name, dims, kind) = (tensor.name.to_owned(), tensor.dims.to_vec(), tensor.kind);
        writer.tensor(TensorPlan { name, dims, kind });
    }
    let mut file = Vec::new();
    let fill = |plan: &TensorPlan, sink: &mut dyn std::io::Write| {
        sink.write_all(gguf.tensor(&plan.name).unwrap().bytes)
    };
    writer.write(&mut file, fill).unwrap();
    let mut plain: Model = try_load(file, 1).unwrap();
    let mut whole = load(GEMMA, 1);
    let text = ids(4, 20, plain.dims().vocab);
    let states = vectors(&mut plain, &text, Want::AllHidden);
    assert_ne!(states, vectors(&mut whole, &text, Want::AllHidden));
}
