//! A row's choice among the experts of a layer.

use kernels::{Isa, add_assign, exp_shifted};
use weights::config::RouterConfig;
use weights::config::limits::EXPERTS;

/// The least sum of the parts that shares are divided by.
const SUM_LEAST: f32 = 6.103_515_6e-5;

/// An expert that a row uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Choice {
    /// Index of the expert.
    pub(super) expert: u32,
    /// Factor of the expert's output.
    pub(super) share: f32,
}

/// Chooses a row's experts by `scores`, which are overwritten, in ascending order of their indices. `bias` is added to the
/// experts' parts for the choice only. The result depends on the arguments alone.
pub(super) fn choose(
    isa: Isa,
    (router, bias): (&RouterConfig, Option<&[f32]>),
    scores: &mut [f32],
    choices: &mut [Choice],
) {
    if bias.is_none() && *router == RouterConfig::softmax(router.normalized) {
        choose_by_scores(isa, scores, router.normalized, choices);
    } else {
        choose_by_parts(isa, (router, bias), scores, choices);
    }
    choices.sort_unstable_by_key(|choice| choice.expert);
}

/// Chooses the experts with the largest scores, of equal scores those with the lowest indices. A share is the expert's part
/// of the softmax over all scores or, if `normalized`, over the chosen.
fn choose_by_scores(isa: Isa, scores: &mut [f32], normalized: bool, choices: &mut [Choice]) {
    take_best(scores, choices);
    let Some(best) = choices.first() else { return };
    exp_shifted(isa, scores, best.share);
    let part = |choice: &Choice| scores[choice.expert as usize];
    // Sums in a fixed order: of the chosen by score, of all by index.
    let sum: f32 = if normalized {
        choices.iter().map(part).sum()
    } else {
        scores.iter().sum()
    };
    for choice in &mut *choices {
        choice.share = scores[choice.expert as usize] / sum;
    }
}

/// Chooses the experts with the largest parts plus bias, within the best groups if there are groups.
fn choose_by_parts(
    isa: Isa,
    (router, bias): (&RouterConfig, Option<&[f32]>),
    scores: &mut [f32],
    choices: &mut [Choice],
) {
    if router.sigmoid {
        scores
            .iter_mut()
            .for_each(|score| *score = 1.0 / (1.0 + (-*score).exp()));
    } else {
        softmax(isa, scores);
    }
    let mut ranked = [0.0; EXPERTS];
    let ranked = &mut ranked[..scores.len()];
    ranked.copy_from_slice(scores);
    if let Some(bias) = bias {
        add_assign(isa, ranked, bias);
    }
    if let Some((groups, used)) = router.groups {
        leave_out_groups(ranked, groups, used);
    }
    take_best(ranked, choices);
    let part = |choice: &Choice| scores[choice.expert as usize];
    let factor = if router.normalized {
        // At least the smallest normal f16, as llama.cpp has it.
        router.scale / choices.iter().map(part).sum::<f32>().max(SUM_LEAST)
    } else {
        router.scale
    };
    for choice in choices {
        choice.share = scores[choice.expert as usize] * factor;
    }
}

/// Leaves out the experts of all but the `used` groups with the largest sum of their best two.
fn leave_out_groups(ranked: &mut [f32], groups: usize, used: usize) {
    let size = ranked.len() / groups;
    let mut sums = [0.0; EXPERTS];
    for (sum, group) in sums.iter_mut().zip(ranked.chunks_exact(size)) {
        let mut best = [Choice::default(); 2];
        take_best(group, &mut best);
        *sum = best[0].share + best[1].share;
    }
    let mut kept = [Choice::default(); EXPERTS];
    let kept = &mut kept[..used];
    take_best(&sums[..groups], kept);
    for (group, ranked) in ranked.chunks_exact_mut(size).enumerate() {
        if !kept.iter().any(|choice| choice.expert as usize == group) {
            ranked.fill(f32::NEG_INFINITY);
        }
    }
}

fn softmax(isa: Isa, scores: &mut [f32]) {
    let best = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    exp_shifted(isa, scores, best);
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= sum);
}

/// Takes the largest of `scores` in descending order, of equal ones the first; a share is the score.
fn take_best(scores: &[f32], choices: &mut [Choice]) {
    let mut found = 0;
    for (expert, &score) in scores.iter().enumerate() {
        let better = |choice: &Choice| score > choice.share;
        let at = choices[..found].iter().position(better).unwrap_or(found);
        if at == choices.len() {
            continue;
        }
        found = (found + 1).min(choices.len());
        choices[at..found].rotate_right(1);
        choices[at] = Choice {
            expert: expert as u32,
            share: score,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(scores: &[f32], used: usize, normalized: bool) -> Vec<(u32, f32)> {
        let mut choices = vec![Choice::default(); used];
        let router = RouterConfig::softmax(normalized);
        let scores = &mut scores.to_vec();
        choose(Isa::detect(), (&router, None), scores, &mut choices);
        let all = choices.iter();
        all.map(|choice| (choice.expert, choice.share)).collect()
    }

    fn experts(scores: &[f32], used: usize) -> Vec<u32> {
        let all = chosen(scores, used, true).into_iter();
        all.map(|(expert, _)| expert).collect()
    }

    #[test]
    fn largest_scores_are_chosen() {
        assert_eq!(experts(&[0.1, 3.0, -1.0, 2.0, 2.5], 3), [1, 3, 4]);
        assert_eq!(experts(&[-3.0, -2.0, -1.0], 1), [2]);
        assert_eq!(experts(&[1.0, 2.0], 2), [0, 1]);
    }

    #[test]
    fn of_equal_scores_the_lowest_indices_are_chosen() {
        assert_eq!(experts(&[1.0; 6], 3), [0, 1, 2]);
        assert_eq!(experts(&[0.0, 2.0, 1.0, 2.0, 1.0, 1.0], 3), [1, 2, 3]);
        assert_eq!(experts(&[0.0, -0.0, 0.0], 1), [0]);
    }

    #[test]
    fn shares_are_parts_of_the_softmax() {
        let scores = [0.5f32, -1.0, 2.0, 1.0];
        let exps = scores.map(|score| f64::from(score).exp());
        for (normalized, sum) in [(true, exps[2] + exps[3]), (false, exps.iter().sum())] {
            let found = chosen(&scores, 2, normalized);
            assert_eq!((found[0].0, found[1].0), (2, 3));
            for (expert, share) in found {
                let wanted = exps[expert as usize] / sum;
                assert!((f64::from(share) - wanted).abs() < 1e-6, "{share} {wanted}");
            }
        }
    }

    #[test]
    fn scores_that_are_not_numbers_choose_existing_experts() {
        for scores in [
            [f32::NAN; 4],
            [f32::INFINITY; 4],
            [1.0, f32::NAN, f32::NEG_INFINITY, 2.0],
        ] {
            let found = experts(&scores, 3);
            assert!(found.is_sorted() && found.iter().all(|expert| *expert < 4));
        }
        assert_eq!(experts(&[f32::MAX, 0.0, f32::MIN], 2), [0, 1]);
    }

    /// Sorts in f64, and takes the best by the definition.
    fn chosen_by_definition(
        router: &RouterConfig,
        bias: Option<&[f32]>,
        scores: &[f32],
        used: usize,
    ) -> Vec<(u32, f64)> {
        let exps: Vec<f64> = scores.iter().map(|s| f64::from(*s).exp()).collect();
        let sum: f64 = exps.iter().sum();
        let part = |exp: &f64| {
            if router.sigmoid {
                exp / (1.0 + exp)
            } else {
                exp / sum
            }
        };
        let parts: Vec<f64> = exps.iter().map(part).collect();
        let bias = |expert: usize| bias.map_or(0.0, |bias| f64::from(bias[expert]));
        let ranked = |expert: usize| parts[expert] + bias(expert);
        let by_rank = |of: &dyn Fn(usize) -> f64, mut all: Vec<usize>| {
            all.sort_by(|a, b| of(*b).total_cmp(&of(*a)));
            all
        };
        let (groups, kept) = router.groups.unwrap_or((1, 1));
        let size = scores.len() / groups;
        let members = |group: usize| by_rank(&ranked, (group * size..(group + 1) * size).collect());
        let best_two = |group: usize| {
            members(group)[..2]
                .iter()
                .map(|at| ranked(*at))
                .sum::<f64>()
        };
        let groups = by_rank(&best_two, (0..groups).collect());
        let all = groups[..kept].iter().flat_map(|group| members(*group));
        let mut best = by_rank(&ranked, all.collect())[..used].to_vec();
        let sum: f64 = best.iter().map(|at| parts[*at]).sum();
        let sum = if router.normalized { sum } else { 1.0 };
        best.sort_unstable();
        let scale = f64::from(router.scale);
        best.iter()
            .map(|at| (*at as u32, parts[*at] / sum * scale))
            .collect()
    }

    #[test]
    fn groups_bias_and_sigmoid_follow_the_definition() {
        let scores: Vec<f32> = (0..16)
            .map(|i| ((i * i * 7 % 31) as f32 * 0.7).sin() * 2.0)
            .collect();
        let bias: Vec<f32> = (0..16).map(|i| ((i * 5 % 13) as f32).cos() * 0.3).collect();
        for (sigmoid, normalized) in [(true, true), (true, false), (false, true), (false, false)] {
            for groups in [None, Some((4, 2)), Some((8, 3)), Some((2, 1))] {
                for bias in [None, Some(&bias[..])] {
                    let router = RouterConfig {
                        sigmoid,
                        normalized,
                        groups,
                        scale: 2.5,
                    };
                    let mut choices = vec![Choice::default(); 5];
                    choose(
                        Isa::detect(),
                        (&router, bias),
                        &mut scores.clone(),
                        &mut choices,
                    );
                    let wanted = chosen_by_definition(&router, bias, &scores, 5);
                    for (found, (expert, share)) in choices.iter().zip(wanted) {
                        assert_eq!(found.expert, expert, "{router:?} {bias:?}");
                        assert!((f64::from(found.share) - share).abs() < 1e-5, "{router:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn groups_of_scores_that_are_not_numbers_choose_existing_experts() {
        let router = RouterConfig {
            sigmoid: true,
            groups: Some((2, 1)),
            ..RouterConfig::softmax(true)
        };
        for mut scores in [
            [f32::NAN; 4],
            [f32::NEG_INFINITY; 4],
            [1.0, f32::NAN, f32::INFINITY, 2.0],
        ] {
            let mut choices = [Choice::default(); 2];
            choose(Isa::detect(), (&router, None), &mut scores, &mut choices);
            assert!(choices[0].expert < choices[1].expert && choices[1].expert < 4);
        }
    }
}
