//! Steps that are longer than the target, because they finish more prompts than they delay tokens.

use crate::support::{Asked, Bench};
use engine::EngineConfig;
use engine::fake::FakeConfig;
use model::Dims;
use std::time::Duration;

/// Positions of a prompt.
const PROMPT: usize = 100;

/// Time of a row: as many rows fit the target as a prompt has.
const ROW: Duration = Duration::from_millis(1);

fn bench(step_target: Option<Duration>) -> Bench {
    let model = FakeConfig {
        dims: Dims {
            vocab: 64,
            context_max: 512,
            page_tokens: 4,
            pages: 4096,
            rows_max: 512,
            logit_rows_max: 64,
        },
        tokens: 1..60,
        ..FakeConfig::default()
    };
    let config = EngineConfig {
        step_target,
        prefix_cache: false,
        ..EngineConfig::default()
    };
    Bench::new(model, config)
}

/// Runs a step. Returns its rows of prompts.
fn step(bench: &mut Bench) -> usize {
    let report = bench.engine.step(bench.now);
    bench.now += ROW * report.rows as u32;
    report.rows_prefill
}

fn ask(bench: &Bench, first: u32, prompt: usize) -> Asked {
    let prompt: Vec<u32> = (0..prompt as u32).map(|at| 1 + (first + at) % 50).collect();
    bench.ask(bench.request(&prompt, 300), 1)
}

/// A bench in which so many sequences have decoded for so many steps.
fn decoding(bench: &mut Bench, sequences: u32, steps: usize) -> Vec<Asked> {
    let asked = (0..sequences).map(|i| ask(bench, i, 1)).collect();
    (0..steps).for_each(|_| _ = step(bench));
    asked
}

fn ask_prompts(bench: &Bench, prompts: u32) -> Vec<Asked> {
    (0..prompts).map(|i| ask(bench, 7 * i, PROMPT)).collect()
}

#[test]
fn prompts_are_finished_in_one_step_where_fewer_tokens_wait() {
    // (sequences that decode, steps so far, prompts, whether all are finished at once)
    let rows = [
        (1, 20, 3, true),
        (2, 20, 3, true),
        (3, 20, 3, false),
        (3, 200, 3, true),
        (4, 200, 3, false),
    ];
    for (decodes, steps, prompts, is_long) in rows {
        let mut bench = bench(Some(Duration::from_millis(100)));
        let _decoding = decoding(&mut bench, decodes, steps);
        let _prompts = ask_prompts(&bench, prompts);
        let rows = step(&mut bench);
        let label = format!("{decodes} decodes, {prompts} prompts: {rows} rows");
        if is_long {
            assert_eq!(rows, prompts as usize * PROMPT, "{label}");
        } else {
            assert!(rows < PROMPT, "{label}");
        }
    }
}

#[test]
fn bursts_of_prompts_delay_few_tokens() {
    let mut bench = bench(Some(Duration::from_millis(100)));
    let _decoding = decoding(&mut bench, 2, 1);
    let mut long = 0;
    for _ in 0..20 {
        let prompts = ask_prompts(&bench, 3);
        for _ in 0..12 {
            long += usize::from(step(&mut bench) > PROMPT);
        }
        prompts
            .iter()
            .for_each(|asked| bench.handle.cancel(asked.id));
        step(&mut bench);
    }
    // Of 260 steps with at most five decodes each.
    assert!((1..=5).contains(&long), "{long} long steps");
}

#[test]
fn tokens_do_not_depend_on_long_steps() {
    let answers = |step_target| {
        let mut bench = bench(step_target);
        let mut asked = decoding(&mut bench, 2, 20);
        asked.extend(ask_prompts(&bench, 4));
        while asked
            .iter_mut()
            .any(|asked| asked.answers[0].seen().1.is_none())
        {
            step(&mut bench);
        }
        let ids = asked.iter().map(|asked| asked.answers[0].ids());
        ids.collect::<Vec<_>>()
    };
    let small = answers(Some(Duration::from_millis(1)));
    assert_eq!(answers(Some(Duration::from_millis(100))), small);
    assert_eq!(answers(None), small);
}
