//! Draws of tokens next to their twin.

use super::cases::Noise;
use super::twin::draws::{TwinDraw, draw};
use crate::draw_record::{DrawRecord, DrawResult, draw_bounds};
use crate::operation::{At, BufferId, DrawShape, MatrixShape, Operation, Program, RowSet};
use crate::record::{Record, Row};
use crate::webgpu::device::Device;
use crate::webgpu::loaded::{Loaded, Output};
use kernels::Format;
use model::{DRAWN, DrawOutcome, DrawRule, DrawnToken, Draws};
use std::sync::Arc;

/// Entries of the rows of the cases: below and above a block of a workgroup, no multiple of four.
const VOCABS: [usize; 2] = [301, 5003];

/// Rows of the cases.
const ROWS: usize = 6;

/// The largest error of a log-probability.
const LOGPROB_ERROR_MAX: f64 = 2e-5;

/// Rows of logits with draws from them.
pub(super) struct DrawCase {
    /// `(rows, vocab)`.
    pub(super) rows: Vec<Vec<f32>>,
    pub(super) draws: Draws,
}

/// Checks the kernels of draws, and that a batch reads the tokens: names, and errors.
pub(super) fn check(device: &Arc<Device>) -> Vec<(String, Option<String>)> {
    let result = |vocab: usize| {
        let case = usual(vocab, 1);
        let name = format!("draws from {vocab} tokens");
        (name, compare(device, &case).err())
    };
    VOCABS.into_iter().map(result).collect()
}

/// Rules off.
pub(crate) const PLAIN: DrawRule = DrawRule {
    temperature: 1.0,
    quantile: 0.5,
    ..DrawRule::GREEDY
};

/// Rules alone, and all.
const RULES: [DrawRule; 9] = [
    DrawRule {
        temperature: 0.0,
        ..PLAIN
    },
    PLAIN,
    DrawRule {
        temperature: 0.7,
        top_p: 0.9,
        ..PLAIN
    },
    DrawRule { top_k: 40, ..PLAIN },
    DrawRule {
        top_k: 270,
        ..PLAIN
    },
    DrawRule {
        min_p: 0.05,
        ..PLAIN
    },
    DrawRule {
        temperature: 1.3,
        top_k: 30,
        top_p: 0.8,
        min_p: 0.02,
        repetition_penalty: 1.4,
        frequency_penalty: 0.3,
        presence_penalty: 0.6,
        ..PLAIN
    },
    DrawRule {
        top_p: 0.0,
        ..PLAIN
    },
    DrawRule {
        temperature: 1e-39,
        ..PLAIN
    },
];

/// Draws by all rules from rows of all kinds.
pub(super) fn usual(vocab: usize, seed: u32) -> DrawCase {
    let mut noise = Noise(seed);
    let mut rows: Vec<Vec<f32>> = (0..ROWS).map(|_| noise.floats(vocab)).collect();
    rows.iter_mut().flatten().for_each(|logit| *logit *= 6.0);
    // Equal logits, a row of them only, and one that is broken.
    for (at, logit) in rows[3].iter_mut().enumerate() {
        *logit = (at * 7 % 11) as f32 * 0.5;
    }
    rows[4].fill(1.5);
    rows[5][vocab - 1] = f32::NAN;
    let mut draws = Draws::default();
    for row in 0..ROWS {
        for (number, rule) in RULES.iter().enumerate() {
            let rule = DrawRule {
                quantile: f64::from(noise.next()) / f64::from(1 << 24),
                logprob: number % 2 == 0,
                alternatives: [0, 1, 20, 64][number % 4],
                ..*rule
            };
            draws.push(row, Some(rule));
            adjust(&mut draws, number, vocab, &mut noise);
        }
    }
    DrawCase { rows, draws }
}

/// Gives some of the draws penalties, bias, and sets of tokens.
fn adjust(draws: &mut Draws, number: usize, vocab: usize, noise: &mut Noise) {
    let token = |noise: &mut Noise| noise.next() % vocab as u32;
    if number == 6 {
        let first = token(noise);
        // Each token once.
        for i in 0..50.min(vocab as u32 / 3) {
            draws.add_count((first + 3 * i) % vocab as u32, i % 3);
        }
    }
    if number.is_multiple_of(3) {
        let listed = [0, 1].map(|_| (token(noise), 8.0 * noise.float()));
        let [(twice, _), _] = listed;
        draws.set_bias(&[listed[0], listed[1], (twice, 0.5)]);
    }
    if number % 4 == 2 {
        let words: Vec<u32> = (0..vocab.div_ceil(32))
            .map(|_| noise.next() << 8 | noise.next() >> 4)
            .collect();
        draws.set_allowed(&words);
    }
    if number % 4 >= 2 {
        let forbidden = [0, 1, 2].map(|_| token(noise));
        draws.set_forbidden(&forbidden);
    }
    if number == 5 {
        draws.set_allowed(&vec![0; vocab.div_ceil(32)]);
    }
}

/// Runs a case on the device and by its twin; an error says where they differ.
pub(super) fn compare(device: &Arc<Device>, case: &DrawCase) -> Result<(), String> {
    let (found, alternatives, embedded) =
        on_device(device, case).map_err(|error| error.to_string())?;
    let mut rest = &alternatives[..];
    for (number, view) in case.draws.iter().enumerate() {
        let Some(rule) = view.rule else { continue };
        let wanted = draw(&case.rows[view.row], &view, &rule);
        let (of_draw, after) = rest.split_at(found[number].alternatives);
        rest = after;
        differ(&found[number], of_draw, &wanted, &rule)
            .map_err(|why| format!("draw {number} from row {}: {why}", view.row))?;
        let x = embedded[number];
        if x != wanted.token as f32 {
            return Err(format!("draw {number}: the next batch reads token {x}"));
        }
    }
    Ok(())
}

fn differ(
    found: &DrawnToken,
    alternatives: &[(u32, f32)],
    wanted: &TwinDraw,
    rule: &DrawRule,
) -> Result<(), String> {
    let outcome = match wanted.outcome {
        0 => DrawOutcome::Token(wanted.token),
        1 => DrawOutcome::NoToken,
        _ => DrawOutcome::NotFinite,
    };
    if found.outcome != outcome {
        return Err(format!("{:?}, not {outcome:?}", found.outcome));
    }
    if rule.logprob && outcome == DrawOutcome::Token(wanted.token) {
        let off = (f64::from(found.logprob) - wanted.logprob).abs();
        if off.is_nan() || off > LOGPROB_ERROR_MAX {
            return Err(format!("a log-probability is off by {off:.1e}"));
        }
    }
    let ids = |(id, _): &(u32, f32)| *id;
    let wanted_ids = wanted.alternatives.iter().map(|(id, _)| *id);
    if !alternatives.iter().map(ids).eq(wanted_ids) {
        return Err(format!(
            "alternatives {alternatives:?}, not {:?}",
            wanted.alternatives
        ));
    }
    let pairs = alternatives.iter().zip(&wanted.alternatives);
    let off = pairs.map(|((_, found), (_, wanted))| (f64::from(*found) - wanted).abs());
    match off.fold(0.0, f64::max) {
        off if off > LOGPROB_ERROR_MAX => Err(format!("alternatives are off by {off:.1e}")),
        _ => Ok(()),
    }
}

/// Tokens, alternatives, and what a batch embeds for the drawn tokens: each token's embedding is its number.
type OnDevice = (Vec<DrawnToken>, Vec<(u32, f32)>, Vec<f32>);

fn on_device(device: &Arc<Device>, case: &DrawCase) -> Result<OnDevice, crate::PrepareError> {
    let (vocab, count) = (case.rows[0].len() as u32, case.draws.len() as u32);
    let mut program = Program {
        rows_max: count,
        context_max: 1,
        record_words_max: Record::words_max(count as usize, 0, 1) as u32,
        ..Program::default()
    };
    let logits = program.buffer(case.rows.len() as u32, vocab);
    let out = program.buffer(count, 1);
    let table = program.matrix(MatrixShape {
        format: Format::F32,
        rows: vocab,
        cols: 1,
        unit_rows: 1,
    });
    let embed = Operation::Embed {
        table,
        factor: 1.0,
        out: At::start(out),
    };
    program.push(RowSet::All, embed);
    program.outputs = vec![out];
    program.draws = Some(DrawShape {
        logits,
        draws_max: count,
    });
    let mut bounds = draw_bounds(&program);
    // Several rounds.
    bounds.adjusted_rows = 7;
    let mut loaded = Loaded::new(Arc::clone(device), program)?;
    loaded.write_buffer(logits, &case.rows.concat());
    let embeddings = (0..vocab).flat_map(|token| (token as f32).to_le_bytes());
    loaded.upload(table, 0, &embeddings.collect::<Vec<_>>())?;
    let mut record = DrawRecord::new(bounds);
    loaded.queue_draws(&mut record, &case.draws, &[])?;
    let (mut tokens, mut alternatives) = (Vec::new(), Vec::new());
    let mut embedded = vec![0.0; count as usize];
    loaded.finish_results(|words| {
        for (number, view) in case.draws.iter().enumerate() {
            let result = DrawResult::of(words, number);
            let rule = view.rule.unwrap_or(PLAIN);
            tokens.push(result.token(&rule, &mut alternatives));
        }
    })?;
    run_drawn(&mut loaded, out, &mut embedded)?;
    Ok((tokens, alternatives, embedded))
}

/// Runs a batch whose tokens are those of the draws before.
fn run_drawn(
    loaded: &mut Loaded,
    out: BufferId,
    embedded: &mut [f32],
) -> Result<(), crate::DeviceError> {
    let row = |number: u32| Row {
        token: DRAWN | number,
        ..Row::default()
    };
    let rows: Vec<Row> = (0..embedded.len() as u32).map(row).collect();
    let mut record = Record::default();
    record.clear();
    record.set(RowSet::All, &rows, [&[]; 2]);
    let output = Output {
        buffer: out,
        rows: embedded,
    };
    loaded.run(&record, &mut [output])
}
