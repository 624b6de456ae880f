//! Our logits and greedy ids against those that llama.cpp computed.
//!
//! `goldens/*.txt` hold llama.cpp's numbers for the models of `goldens/cases.txt`, written by
//! `tools/oracle/oracle.py --write`. That script compares all logits of all positions; here three
//! rows of each case and, for F32, every greedy id are. Goldens of quantized models are what
//! llama.cpp computes from the same weights in f32: nearer to the truth than its quantized run,
//! which rounds activations more coarsely than we do.

use crate::support::adapters::adapters_of;
use crate::support::case::Case;
use crate::support::{adapted_logits, best, options};
use cpu::{LoadOptions, Model};
use kernels::{Format, Isa, KvKind, Pool};
use synth::Mix;
use weights::ModelFiles;
use weights::gguf::Gguf;

/// Largest difference of a logit, in standard deviations of its row, for weights that are not quantized: the
/// order of sums, and f16 keys and values.
const EXACT: f32 = 0.02;
/// Largest difference for quantized weights. Goldens are llama.cpp's logits for equal weights in f32, so this
/// is the rounding of activations to 8 bits, amplified by random weights.
const QUANTIZED: f32 = 0.35;
/// Largest difference on tiles, where both factors are rounded to bf16 or, with one scale for 256 columns, to
/// int8.
const TILED: f32 = 0.7;
/// Additional difference with keys and values in 8 bits; random weights amplify the rounding.
const CODED: f32 = 0.15;
/// Least cosine: of each golden row, or over a case's rows if its weights are quantized.
const COSINE: (f64, f64) = (0.9999, 0.999);
/// Least cosine with keys and values in 8 bits, over a case's rows.
const COSINE_CODED: f64 = 0.998;
/// Least cosine on tiles.
const COSINE_TILED: f64 = 0.996;
/// Logits closer than this, in standard deviations, may swap (the script's TIE).
const TIE: f32 = 5e-3;

#[test]
fn logits_and_greedy_ids_equal_llama_cpp() {
    let cases = include_str!("../goldens/cases.txt");
    let cases = cases
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut failures = Vec::new();
    for line in cases {
        let case = Case::parse(line).unwrap();
        for (isa, kv) in every_path() {
            let failed = check(&case, isa, kv).err();
            failures.extend(failed.map(|why| format!("{}, {isa}, {kv}: {why}", case.name)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Both arithmetics, if this machine has both, the batch-invariant one with either format of keys and values.
/// Vector levels without tiles compute equal bits; `MILLRACE_ISA` selects one.
fn every_path() -> impl Iterator<Item = (Isa, KvKind)> {
    let steady = Isa::detect();
    let fastest = Some(Isa::fastest()).filter(|isa| *isa != steady);
    // 4 bits change logits of random weights too much for a bound that would find a mistake.
    [KvKind::F16, KvKind::Q8_0]
        .map(|kv| (steady, kv))
        .into_iter()
        .chain(fastest.map(|isa| (isa, KvKind::F16)))
}

fn check(case: &Case, isa: Isa, kv: KvKind) -> Result<(), String> {
    let golden = Golden::read(&case.name)?;
    let gguf = Gguf::from_bytes(case.spec.to_bytes().unwrap()).unwrap();
    let options = LoadOptions {
        kv,
        ..options(Some(case.context))
    };
    let files = ModelFiles::from(gguf);
    let (adapters, set) = adapters_of(case, &files);
    let mut model = Model::load(files, isa, Pool::new(2), &options, &mut |_| {})
        .map_err(|error| error.to_string())?;
    model.adapt(&adapters).map_err(|error| error.to_string())?;
    let ids = [golden.prompt.as_slice(), &golden.greedy].concat();
    let ours = adapted_logits(&mut model, &ids, 0, set);
    check_rows(&golden, &ours, case.spec.mix, isa, kv)?;
    if isa.is_batch_invariant() && kv == KvKind::F16 && case.spec.mix == Mix::Uniform(Format::F32) {
        check_greedy(&golden, &ours)?;
    }
    Ok(())
}

fn check_rows(
    golden: &Golden,
    ours: &[Vec<f32>],
    mix: Mix,
    isa: Isa,
    kv: KvKind,
) -> Result<(), String> {
    let halves = kv == KvKind::F16;
    let coded = if halves { 0.0 } else { CODED };
    let in_floats = matches!(mix.name(), "F16" | "BF16");
    let tiled = !isa.is_batch_invariant() && mix.name() != "F32";
    let exact = mix.name() == "F32" || isa.is_batch_invariant() && in_floats;
    let bound = match (exact, tiled) {
        (true, _) => EXACT,
        // On tiles, f16 and bf16 activations are rounded to bf16, as those of quantized weights are rounded
        // to 8 bits.
        (_, true) if !in_floats && mix.name() != "Q8_0" => TILED,
        _ => QUANTIZED,
    };
    let mut all = Cosine::default();
    for row in &golden.rows {
        let cosine = check_row(row, &ours[row.position], coded + bound)?;
        if exact && halves {
            cosine.at_least(COSINE.0)?;
        }
        all.add(&cosine);
    }
    all.at_least(match (halves, bound == TILED) {
        (_, true) => COSINE_TILED,
        (true, _) => COSINE.1,
        (false, _) => COSINE_CODED,
    })
}

fn check_row(golden: &GoldenRow, ours: &[f32], tolerance: f32) -> Result<Cosine, String> {
    let mut cosine = Cosine::default();
    for &(id, theirs) in &golden.logits {
        let ours = ours[id];
        if (ours - theirs).abs() > tolerance * golden.spread {
            let position = golden.position;
            return Err(format!(
                "position {position}, id {id}: {ours}, llama.cpp has {theirs}"
            ));
        }
        let (a, b) = (f64::from(ours), f64::from(theirs));
        cosine.add(&Cosine {
            ab: a * b,
            aa: a * a,
            bb: b * b,
        });
    }
    Ok(cosine)
}

/// Sums of a cosine.
#[derive(Default)]
struct Cosine {
    ab: f64,
    aa: f64,
    bb: f64,
}

impl Cosine {
    fn add(&mut self, other: &Self) {
        self.ab += other.ab;
        self.aa += other.aa;
        self.bb += other.bb;
    }

    fn at_least(&self, least: f64) -> Result<(), String> {
        let cosine = self.ab / (self.aa * self.bb).sqrt();
        if cosine >= least {
            Ok(())
        } else {
            Err(format!("cosine {cosine}, not {least}"))
        }
    }
}

/// Every greedy id has the largest logit, or ties with the largest.
fn check_greedy(golden: &Golden, ours: &[Vec<f32>]) -> Result<(), String> {
    let rows = &ours[golden.prompt.len() - 1..];
    for (step, (row, &theirs)) in rows.iter().zip(&golden.greedy).enumerate() {
        let (ours, gap) = (best(row), row[best(row)] - row[theirs as usize]);
        if ours != theirs as usize && gap > TIE * spread(row) {
            return Err(format!(
                "greedy step {step}: {ours}, llama.cpp has {theirs}, gap {gap}"
            ));
        }
    }
    Ok(())
}

fn spread(row: &[f32]) -> f32 {
    let mean = row.iter().sum::<f32>() / row.len() as f32;
    (row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / row.len() as f32).sqrt()
}

/// llama.cpp's results for one case.
#[derive(Default)]
struct Golden {
    prompt: Vec<u32>,
    greedy: Vec<u32>,
    rows: Vec<GoldenRow>,
}

/// Some logits of one position.
struct GoldenRow {
    position: usize,
    /// Standard deviation over the whole row.
    spread: f32,
    logits: Vec<(usize, f32)>,
}

impl Golden {
    fn read(name: &str) -> Result<Self, String> {
        let path = format!("{}/tests/goldens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let mut golden = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            golden
                .take(line)
                .ok_or_else(|| format!("{path}: cannot read {line:?}"))?;
        }
        let complete = golden.greedy.len() == 64 && golden.rows.len() == 3;
        complete
            .then_some(golden)
            .ok_or(format!("{path}: incomplete"))
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let ids = || {
            rest.split(' ')
                .map(|id| id.parse().ok())
                .collect::<Option<Vec<u32>>>()
        };
        match kind {
            "prompt" => self.prompt = ids()?,
            "greedy" => self.greedy = ids()?,
            "spread" => {
                let (position, spread) = rest.split_once(' ')?;
                let (position, spread) = (position.parse().ok()?, spread.parse().ok()?);
                self.rows.push(GoldenRow {
                    position,
                    spread,
                    logits: Vec::new(),
                });
            }
            "top" | "sampled" => {
                let (position, pairs) = rest.split_once(' ')?;
                let row = self.rows.last_mut()?;
                (row.position == position.parse::<usize>().ok()?).then_some(())?;
                for pair in pairs.split(' ') {
                    let (id, logit) = pair.split_once(':')?;
                    row.logits.push((id.parse().ok()?, logit.parse().ok()?));
                }
            }
            _ => return None,
        }
        Some(())
    }
}
