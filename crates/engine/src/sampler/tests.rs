//! Each sampling parameter by itself in a table of labelled cases.

use super::*;
use crate::Constraint;

/// Logits of these probabilities.
fn ln(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

pub(super) fn off() -> SamplingParams {
    SamplingParams {
        seed: 1,
        ..SamplingParams::default()
    }
}

fn draw<'a>(
    sampling: &'a SamplingParams,
    tokens: &'a [u32],
    prompt_tokens: usize,
) -> SampleContext<'a> {
    SampleContext {
        sampling,
        tokens,
        prompt_tokens,
        choice: 0,
        eos: &[],
        constraint: None,
    }
}

/// The ids that the filters keep.
pub(super) fn kept(logits: &[f32], s: &SamplingParams) -> Vec<u32> {
    let mut sampler = Sampler::new(logits.len());
    choose_id(&mut sampler.candidates, logits, &draw(s, &[0], 1));
    sampler.candidates.ids()
}

/// Neutral parameters, changed by `set`.
fn with(set: impl FnOnce(&mut SamplingParams)) -> SamplingParams {
    let mut sampling = off();
    set(&mut sampling);
    sampling
}

#[test]
fn filters_keep_the_expected_ids() {
    let p = ln(&[0.1, 0.4, 0.05, 0.3, 0.15]);
    let case = |label: &str, set: fn(&mut SamplingParams), expected: &[u32]| {
        assert_eq!(kept(&p, &with(set)), expected, "{label}");
    };
    let all = [0, 1, 2, 3, 4];
    case("all off", |_| (), &all);
    case("top_k", |s| s.top_k = 2, &[1, 3]);
    case("top_k of all", |s| s.top_k = 5, &all);
    case("top_k beyond all", |s| s.top_k = 99, &all);
    case("top_p", |s| s.top_p = 0.69, &[1, 3]);
    case(
        "top_p reaches into the next",
        |s| s.top_p = 0.71,
        &[1, 3, 4],
    );
    case("top_p 0 leaves one", |s| s.top_p = 0.0, &[1]);
    case("min_p", |s| s.min_p = 0.3, &[1, 3, 4]);
    case("min_p 1 leaves the most likely", |s| s.min_p = 1.0, &[1]);
    // Entropy 1.39; surprises 2.30, 0.92, 3.00, 1.20, 1.90: nearest are 3, 1, 4.
    case("typical_p, in the middle", |s| s.typical_p = 0.2, &[3]);
    case("typical_p", |s| s.typical_p = 0.75, &[1, 3, 4]);
    let exclude = |s: &mut SamplingParams| (s.xtc_probability, s.xtc_threshold) = (1.0, 0.09);
    case("xtc leaves the least likely of the top", exclude, &[0, 2]);
    let exclude = |s: &mut SamplingParams| (s.xtc_probability, s.xtc_threshold) = (1.0, 0.35);
    case("xtc with one at the threshold", exclude, &all);
    let exclude = |s: &mut SamplingParams| (s.xtc_probability, s.xtc_threshold) = (1.0, 0.51);
    case("xtc above a half is off", exclude, &all);
    let exclude = |s: &mut SamplingParams| (s.top_k, s.xtc_probability) = (2, 1.0);
    case("xtc after top_k", exclude, &[3]);
    // Of the three left by top_k, renormalised 0.47, 0.35, 0.18, two make up 0.8.
    case(
        "top_p after top_k",
        |s| (s.top_k, s.top_p) = (3, 0.8),
        &[1, 3],
    );
    let heat = |s: &mut SamplingParams| (s.temperature, s.top_p) = (10.0, 0.69);
    case("temperature comes before top_p", heat, &[0, 1, 3, 4]);
    let cool = |s: &mut SamplingParams| (s.temperature, s.min_p) = (0.25, 0.4);
    case("temperature comes before min_p", cool, &[1]);
    let freeze = |s: &mut SamplingParams| (s.temperature, s.min_p) = (1e-30, 0.5);
    case("temperature near 0", freeze, &[1]);
}

#[test]
fn filters_handle_equal_and_impossible_tokens() {
    let case = |label: &str, logits: &[f32], set: fn(&mut SamplingParams), expected: &[u32]| {
        assert_eq!(kept(logits, &with(set)), expected, "{label}");
    };
    let no = f32::NEG_INFINITY;
    case("top_k takes low ids", &[1.0; 5], |s| s.top_k = 2, &[0, 1]);
    case("top_p takes low ids", &[0.0; 4], |s| s.top_p = 0.5, &[0, 1]);
    case(
        "typical_p takes low ids",
        &[0.0; 4],
        |s| s.typical_p = 0.5,
        &[0, 1],
    );
    case(
        "min_p takes all",
        &[0.0; 4],
        |s| s.min_p = 1.0,
        &[0, 1, 2, 3],
    );
    case("never is left out", &[1.0, no, 0.5], |_| (), &[0, 2]);
    case(
        "never is not among k",
        &[1.0, no, 0.5],
        |s| s.top_k = 3,
        &[0, 2],
    );
    case("nothing at all", &[no, no], |s| s.top_p = 0.5, &[]);
    case(
        "xtc leaves the highest id of equals",
        &[0.0; 4],
        |s| s.xtc_probability = 1.0,
        &[3],
    );
    case(
        "xtc of nothing",
        &[no, no],
        |s| s.xtc_probability = 1.0,
        &[],
    );
}

#[test]
fn xtc_excludes_as_often_as_asked_and_equally_for_equal_seeds() {
    let logits = ln(&[0.5, 0.3, 0.2]);
    let s = with(|s| s.xtc_probability = 0.25);
    let sampled = |s: &SamplingParams| -> Vec<u32> {
        let mut sampler = Sampler::new(3);
        let tokens = vec![0; 4001];
        let ids = (1..4001).map(|n| sampler.sample_id(&logits, draw(s, &tokens[..n], 0)));
        ids.map(|id| id.expect("an id")).collect()
    };
    let ids = sampled(&s);
    assert_eq!(ids, sampled(&s));
    let share = |id: u32| ids.iter().filter(|&&other| other == id).count() as f64 / 4000.0;
    // In a quarter of the draws only the third is left.
    assert!(
        (share(2) - (0.25 + 0.75 * 0.2)).abs() < 0.03,
        "{}",
        share(2)
    );
    assert!((share(0) - 0.75 * 0.5).abs() < 0.03, "{}", share(0));
}

#[test]
fn greedy_sampling_takes_the_lowest_id_of_equals() {
    let s = SamplingParams {
        temperature: 0.0,
        ..off()
    };
    let mut sampler = Sampler::new(4);
    let token = sampler.sample_token(&[0.5, 2.0, 2.0, 1.0], draw(&s, &[0], 1));
    assert_eq!(token.map(|t| t.id), Some(1));
}

/// Logits after penalties, bias and masks.
fn adjusted(logits: &[f32], mut draw: SampleContext<'_>) -> Vec<f32> {
    let mut logits = logits.to_vec();
    let mut counts = TokenCounts::new(logits.len());
    counts.apply_penalties(&mut logits, &draw);
    assert!(counts.is_clean(), "scratch comes back clean");
    adjust::add_bias(&mut logits, &draw.sampling.logit_bias);
    adjust::apply_constraint(&mut logits, &mut draw, &mut [0]);
    if adjust::masks_eos(&draw) {
        adjust::forbid(&mut logits, draw.eos);
    }
    logits
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn penalties_bias_and_masks_adjust_logits() {
    type Set = fn(&mut SamplingParams);
    let base = [1.0, -1.0, 2.0, 0.5];
    let case = |label: &str, set: Set, tokens: &[u32], prompt: usize, expected: [f32; 4]| {
        let s = with(set);
        assert_eq!(
            adjusted(&base, draw(&s, tokens, prompt)),
            expected,
            "{label}"
        );
    };
    let set: Set = |s| (s.repetition_penalty, s.penalty_window) = (2.0, 0);
    case(
        "repetition divides, multiplies",
        set,
        &[0, 1],
        2,
        [0.5, -2.0, 2.0, 0.5],
    );
    case(
        "repetition counts once",
        set,
        &[0, 0, 0],
        1,
        [0.5, -1.0, 2.0, 0.5],
    );
    let set: Set = |s| (s.repetition_penalty, s.penalty_window) = (2.0, 2);
    case(
        "repetition in the window",
        set,
        &[0, 1, 2],
        2,
        [1.0, -2.0, 1.0, 0.5],
    );
    let set: Set = |s| s.presence_penalty = 0.5;
    case(
        "presence, generated only",
        set,
        &[0, 2, 2],
        1,
        [1.0, -1.0, 1.5, 0.5],
    );
    let set: Set = |s| s.frequency_penalty = 0.5;
    case(
        "frequency, each time",
        set,
        &[0, 2, 2],
        1,
        [1.0, -1.0, 1.0, 0.5],
    );
    let set: Set = |s| (s.presence_penalty, s.penalty_window) = (0.5, 1);
    case(
        "presence in the window",
        set,
        &[0, 1, 2],
        1,
        [1.0, -1.0, 1.5, 0.5],
    );
    let set: Set = |s| s.logit_bias = vec![(3, 1.5), (0, -100.0)];
    case("bias", set, &[0], 1, [-99.0, -1.0, 2.0, 2.0]);
    let set: Set = |s| (s.repetition_penalty, s.frequency_penalty) = (2.0, 1.0);
    case(
        "repetition, then frequency",
        set,
        &[0, 2],
        1,
        [0.5, -1.0, 0.0, 0.5],
    );
}

struct Allows(u32);

impl Constraint for Allows {
    fn mask(&mut self, allowed: &mut [u32]) -> bool {
        allowed[0] = self.0;
        true
    }
    fn accept(&mut self, _: u32) {}
    fn is_complete(&self) -> bool {
        false
    }
}

#[test]
fn masked_tokens_are_never_sampled() {
    let no = f32::NEG_INFINITY;
    let case =
        |label: &str, s: &SamplingParams, generated: usize, allows: u32, expected: [f32; 3]| {
            let mut constraint = Allows(allows);
            let tokens = vec![1; 1 + generated];
            let drawing = SampleContext {
                eos: &[2],
                constraint: Some(&mut constraint),
                ..draw(s, &tokens, 1)
            };
            assert_eq!(adjusted(&[1.0, 2.0, 3.0], drawing), expected, "{label}");
        };
    let least = SamplingParams {
        min_tokens: 2,
        ..off()
    };
    case("a constraint", &off(), 0, 0b011, [1.0, 2.0, no]);
    case("too early for the end", &least, 1, 0b111, [1.0, 2.0, no]);
    case("late enough", &least, 2, 0b111, [1.0, 2.0, 3.0]);
    case(
        "nothing but the end is allowed",
        &least,
        0,
        0b100,
        [no, no, 3.0],
    );
    let ignoring = SamplingParams {
        ignore_eos: true,
        ..least
    };
    case("an ordinary token", &ignoring, 0, 0b111, [1.0, 2.0, 3.0]);
    case("nothing is allowed", &off(), 0, 0, [no, no, no]);
    let mut nothing = Allows(0);
    let s = off();
    let drawing = SampleContext {
        constraint: Some(&mut nothing),
        ..draw(&s, &[1], 1)
    };
    assert_eq!(
        Sampler::new(3).sample_token(&[1.0, 2.0, 3.0], drawing),
        None
    );
}

#[test]
fn unsound_logits_are_detected() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for (label, row, sound) in [
        ("finite", [1.0, 2.0], true),
        ("one never", [1.0, -inf], true),
        ("all never", [-inf, -inf], false),
        ("infinite", [1.0, inf], false),
        ("not a number first", [nan, 1.0], false),
        ("not a number last", [1.0, nan], false),
    ] {
        assert_eq!(Sampler::new(2).is_sound(&row), sound, "{label}");
    }
}

#[test]
fn samples_follow_the_distribution() {
    let p = [0.1, 0.4, 0.05, 0.3, 0.15];
    let (logits, draws) = (ln(&p), 20_000);
    let mut sampler = Sampler::new(5);
    let mut counts = [0.0; 5];
    for seed in 0..draws {
        let s = SamplingParams { seed, ..off() };
        let token = sampler.sample_token(&logits, draw(&s, &[0], 1)).unwrap();
        counts[token.id as usize] += 1.0;
    }
    // Chi-squared, 4 degrees of freedom; the seeds are fixed, so is the sum.
    let term = |(count, p): (&f64, &f32)| {
        let expected = f64::from(*p) * draws as f64;
        (count - expected).powi(2) / expected
    };
    let sum: f64 = counts.iter().zip(&p).map(term).sum();
    assert!(sum < 18.5, "chi-squared {sum}");
}

#[test]
fn log_probabilities_are_of_the_unfiltered_distribution() {
    let p = [0.1, 0.4, 0.05, 0.3, 0.15];
    let s = SamplingParams {
        temperature: 0.0,
        logit_bias: vec![(2, 100.0)],
        logprobs: true,
        top_logprobs: 3,
        ..off()
    };
    // A constant added to all logits changes no probability.
    let logits: Vec<_> = ln(&p).iter().map(|l| l + 20.0).collect();
    let mut sampler = Sampler::new(5);
    let token = sampler.sample_token(&logits, draw(&s, &[0], 1)).unwrap();
    assert_eq!(token.id, 2);
    assert!((token.logprob - 0.05f32.ln()).abs() < 1e-5);
    let ids: Vec<_> = sampler.alternatives().iter().map(|t| t.id).collect();
    assert_eq!(ids, [1, 3, 4]);
    for top in sampler.alternatives() {
        assert!((top.logprob - p[top.id as usize].ln()).abs() < 1e-5);
    }
}

/// The `count` most likely tokens.
fn top(logits: &[f32], norm: f64, count: usize) -> Vec<TopLogprob> {
    let (mut sampler, mut top) = (Sampler::new(logits.len()), Vec::new());
    let maxima = sampler.candidates.block_maxima(logits);
    row::top_logprobs(logits, maxima, norm, count, &mut top);
    top
}

#[test]
fn equal_alternatives_are_in_order_of_id() {
    let top = top(&[1.0, 2.0, 1.0, 2.0, 1.0], 0.0, 4);
    let ids: Vec<_> = top.iter().map(|t| t.id).collect();
    assert_eq!(ids, [1, 3, 0, 2]);
}

#[test]
fn alternatives_are_the_most_likely_tokens_in_order() {
    for len in [1, 63, 64, 65, 1000] {
        let logits: Vec<f32> = (0..len).map(|i| (i * 7919 % 257) as f32 * 0.1).collect();
        let mut order: Vec<u32> = (0..len as u32).collect();
        let of = |id: u32| logits[id as usize];
        order.sort_by(|a, b| of(*b).total_cmp(&of(*a)).then(a.cmp(b)));
        for count in [1, 5, 20] {
            let top = top(&logits, 0.5, count);
            let ids: Vec<_> = top.iter().map(|t| t.id).collect();
            assert_eq!(ids, order[..count.min(len)], "{count} of {len}");
            assert!(top.iter().all(|t| t.logprob == of(t.id) - 0.5));
        }
    }
}
