//! A row's choice among the experts of a layer.

use kernels::{Isa, exp_shifted};

/// An expert that a row uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Choice {
    /// Index of the expert.
    pub(super) expert: u32,
    /// Factor of the expert's output.
    pub(super) share: f32,
}

/// Chooses the experts with the largest scores, of equal scores those with the lowest indices, in ascending order of
/// their indices. A share is the expert's part of the softmax over all scores or, if `normalized`, over the chosen. The
/// result depends on `scores` alone, which are overwritten.
pub(super) fn choose(isa: Isa, scores: &mut [f32], normalized: bool, choices: &mut [Choice]) {
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
    let Some(best) = choices.first() else { return };
    exp_shifted(isa, scores, best.share);
    let part = |choice: &Choice| scores[choice.expert as usize];
    // Sums in a fixed order: of the chosen by score, of all by index.
    let sum: f32 = match normalized {
        true => choices.iter().map(part).sum(),
        false => scores.iter().sum(),
    };
    for choice in &mut *choices {
        choice.share = scores[choice.expert as usize] / sum;
    }
    choices.sort_unstable_by_key(|choice| choice.expert);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(scores: &[f32], used: usize, normalized: bool) -> Vec<(u32, f32)> {
        let mut choices = vec![Choice::default(); used];
        choose(
            Isa::detect(),
            &mut scores.to_vec(),
            normalized,
            &mut choices,
        );
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
}
