//! Greedy answers.
//!
//! Promise (Arithmetic): greedy answers of 24 tokens on a device are those of the CPU in floats, for nine families with prompts
//! after which no tie decides.

use crate::models::{TIE, spread};
use crate::support::{best, device, ids, on_cpu, on_device, pages, spec};
use model::{Batch, Forward, SpanStates, Want};
use std::collections::BTreeSet;

/// Tokens of a prompt and of its answer.
const PROMPT: usize = 9;
const ANSWER: usize = 24;
/// Tokens that an answer has of different kinds: of a loop of few tokens, each step would be right after the first ones.
const DISTINCT_MIN: usize = 6;
/// Prompts of which one has an answer without ties.
const PROMPTS: u64 = 300;

/// The greedy answer, and the least distance of a best logit to the second, in standard deviations of the row.
fn greedy(model: &mut dyn Forward, prompt: &[u32]) -> (Vec<u32>, f32) {
    let table = pages(0, PROMPT + ANSWER);
    let (mut batch, mut sequence, mut least) = (Batch::default(), prompt.to_vec(), f32::MAX);
    for turn in 0..ANSWER {
        let at = if turn == 0 { 0 } else { sequence.len() - 1 };
        batch.clear();
        batch.push(&sequence[at..], at, &table, Want::Last);
        batch.set_states(Some(SpanStates::alternating(0, turn, at)));
        let row = model.forward(&batch).expect("a batch");
        let token = best(row);
        let most = row[token];
        let deviation = spread(row);
        row[token] = f32::NEG_INFINITY;
        least = least.min((most - row[best(row)]) / deviation);
        sequence.push(token as u32);
    }
    (sequence.split_off(prompt.len()), least)
}

#[test]
fn greedy_answers_equal_the_processors() {
    let Some(device) = device() else { return };
    for (preset, mix) in [
        ("tiny-llama", "Q8_0"),
        ("tiny-gemma3", "F32"),
        ("tiny-gemma4", "Q8_0"),
        ("tiny-qwen3", "F16"),
        ("tiny-gpt-oss", "MXFP4_MOE"),
        ("tiny-qwen3moe", "Q8_0"),
        ("tiny-qwen35", "Q8_0"),
        ("tiny-mamba2", "Q8_0"),
        ("tiny-deepseek2", "Q8_0"),
    ] {
        let spec = spec(preset, mix);
        let mut theirs = on_cpu(&spec);
        let vocab = theirs.dims().vocab;
        let found = (0..PROMPTS).find_map(|seed| {
            let prompt = ids(seed, PROMPT, vocab);
            let (answer, least) = greedy(&mut theirs, &prompt);
            let distinct = answer.iter().collect::<BTreeSet<_>>().len();
            (least > TIE && distinct >= DISTINCT_MIN).then_some((prompt, answer))
        });
        let (prompt, wanted) = found.unwrap_or_else(|| panic!("{preset}: ties everywhere"));
        let (answer, _) = greedy(&mut on_device(&spec, &device), &prompt);
        assert_eq!(answer, wanted, "{preset} {mix}");
    }
}
