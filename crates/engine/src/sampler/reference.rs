//! All filters together against a slow reference: a full sort in doubles, written from the definitions.

use super::tests::{kept, off};
use crate::{SamplingParams, sampler};

/// The reference implementation of the filters: sorts all candidates, in doubles.
fn kept_by_reference(logits: &[f32], s: &SamplingParams) -> Vec<u32> {
    let mut all: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|&l| f64::from(l))).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if s.top_k > 0 {
        all.truncate(s.top_k as usize);
    }
    let max = all[0].1;
    all.iter_mut()
        .for_each(|c| c.1 = ((c.1 - max) / f64::from(s.temperature)).exp());
    normalize(&mut all);
    if s.typical_p < 1.0 {
        let entropy: f64 = all.iter().map(|c| -c.1 * c.1.ln()).sum();
        let key = |c: &(u32, f64)| (-c.1.ln() - entropy).abs();
        all.sort_by(|a, b| key(a).total_cmp(&key(b)).then(a.0.cmp(&b.0)));
        truncate_to_mass(&mut all, f64::from(s.typical_p));
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if s.top_p < 1.0 {
        truncate_to_mass(&mut all, f64::from(s.top_p));
    }
    let least = all[0].1 * f64::from(s.min_p);
    all.retain(|c| c.1 >= least);
    if s.xtc_probability >= 1.0 {
        normalize(&mut all);
        let tops = all.iter().filter(|c| c.1 >= f64::from(s.xtc_threshold));
        all.drain(..tops.count().saturating_sub(1));
    }
    let mut ids: Vec<_> = all.iter().map(|c| c.0).collect();
    ids.sort_unstable();
    ids
}

fn normalize(all: &mut [(u32, f64)]) {
    let sum: f64 = all.iter().map(|c| c.1).sum();
    all.iter_mut().for_each(|c| c.1 /= sum);
}

fn truncate_to_mass(all: &mut Vec<(u32, f64)>, mass: f64) {
    let mut sum = 0.0;
    let enough = all.iter().position(|c| {
        sum += c.1;
        sum >= mass
    });
    all.truncate(enough.map_or(all.len(), |at| at + 1));
    normalize(all);
}

#[test]
fn filters_agree_with_the_slow_reference() {
    let mut state = 0;
    let mut number = move || {
        state += 1;
        sampler::uniform(99, 0, state) as f32
    };
    let mut differ = 0;
    for round in 0..300 {
        let vocab = 2 + (number() * [40.0, 400.0, 8000.0][round / 100]) as usize;
        let spread = [0.5, 3.0, 12.0][round % 3];
        let logits: Vec<f32> = (0..vocab).map(|_| number() * spread).collect();
        let mut maybe = |value: f32, off: f32| if number() < 0.5 { value } else { off };
        let mut s = off();
        let k = [3.0, 1.0, 0.01][round / 100] * vocab as f32 / 3.0;
        s.top_k = maybe(k + 1.0, 0.0) as u32;
        s.temperature = maybe(0.6, 1.0);
        s.typical_p = maybe(0.87, 1.0);
        s.top_p = maybe(0.91, 1.0);
        s.min_p = maybe(0.043, 0.0);
        s.xtc_probability = maybe(1.0, 0.0);
        s.xtc_threshold = maybe(0.01, 0.1);
        let (fast, slow) = (kept(&logits, &s), kept_by_reference(&logits, &s));
        if fast == slow {
            continue;
        }
        // Single precision may put one candidate on the other side of each cut.
        differ += 1;
        let odd = fast.iter().filter(|id| !slow.contains(id)).count();
        let missing = slow.iter().filter(|id| !fast.contains(id)).count();
        assert!(
            odd + missing <= 2,
            "round {round}: {odd} more, {missing} fewer; {s:?}"
        );
    }
    assert!(differ <= 6, "{differ} of 300 rounds differ at a cut");
}
