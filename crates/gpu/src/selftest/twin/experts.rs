//! The definition of what experts compute.

use super::{Twin, dot};
use crate::operation::{Operation, RouteRule};

/// The least sum of the parts that shares are divided by.
const SUM_LEAST: f64 = 6.103_515_6e-5;

impl Twin<'_> {
    pub(super) fn route(&mut self, row: usize, operation: &Operation) {
        let Operation::Route {
            scores,
            count,
            used,
            rule,
            choice_bias,
            factors,
            out,
        } = *operation
        else {
            return;
        };
        let scores = self.read(scores, row, count);
        let bias = |expert: usize| choice_bias.map_or(0.0, |bias| self.vector(bias, expert));
        let biases: Vec<f32> = (0..count as usize).map(bias).collect();
        let mut chosen = choose(&scores, &biases, used as usize, &rule);
        for (expert, share) in &mut chosen {
            *share *= factors.map_or(1.0, |factors| self.vector(factors, *expert));
        }
        let pairs = chosen
            .iter()
            .flat_map(|(expert, share)| [*expert as f32, *share]);
        let pairs: Vec<f32> = pairs.collect();
        self.write(out, row, &pairs);
    }

    pub(super) fn copy_parts(&mut self, row: usize, operation: &Operation) {
        let Operation::CopyParts {
            mut input,
            input_stride,
            parts,
            len,
            mut out,
            out_stride,
        } = *operation
        else {
            return;
        };
        for _ in 0..parts {
            let part = self.read(input, row, len);
            self.at(out, row, part.len()).copy_from_slice(&part);
            input.column += input_stride;
            out.column += out_stride;
        }
    }

    pub(super) fn expert_matmul(&mut self, row: usize, operation: &Operation) {
        let Operation::ExpertMatmul {
            stack,
            choices,
            used,
            mut input,
            input_stride,
            bias,
            mut out,
            out_stride,
        } = *operation
        else {
            return;
        };
        let shape = self.program.matrices[stack.0 as usize];
        let outputs = shape.unit_rows as usize;
        let chosen = self.read(choices, row, 2 * used);
        for pair in chosen.as_chunks::<2>().0 {
            let first = pair[0] as usize * outputs;
            let x = self.read(input, row, shape.cols);
            let weights = self.matrices[stack.0 as usize].chunks_exact(x.len());
            let weights = weights.skip(first).take(outputs);
            let mut sums: Vec<f32> = weights.map(|weights| dot(weights, &x)).collect();
            for (output, sum) in sums.iter_mut().enumerate() {
                *sum += bias.map_or(0.0, |bias| self.vector(bias, first + output));
            }
            self.at(out, row, outputs).copy_from_slice(&sums);
            input.column += input_stride;
            out.column += out_stride;
        }
    }

    pub(super) fn combine(&mut self, row: usize, operation: &Operation) {
        let Operation::Combine {
            mut outputs,
            stride,
            choices,
            used,
            cols,
            add,
            out,
        } = *operation
        else {
            return;
        };
        let mut sum = if add {
            self.read(out, row, cols)
        } else {
            vec![0.0; cols as usize]
        };
        let chosen = self.read(choices, row, 2 * used);
        for pair in chosen.as_chunks::<2>().0 {
            let output = self.read(outputs, row, cols);
            for (sum, output) in sum.iter_mut().zip(output) {
                *sum += pair[1] * output;
            }
            outputs.column += stride;
        }
        self.write(out, row, &sum);
    }
}

/// The chosen experts, ascending, with their shares.
fn choose(scores: &[f32], biases: &[f32], used: usize, rule: &RouteRule) -> Vec<(usize, f32)> {
    let exps: Vec<f64> = scores.iter().map(|score| f64::from(*score).exp()).collect();
    let sum: f64 = exps.iter().sum();
    let part = |exp: &f64| {
        if rule.sigmoid {
            exp / (1.0 + exp)
        } else {
            exp / sum
        }
    };
    let parts: Vec<f64> = exps.iter().map(part).collect();
    let rank = |expert: usize| {
        if rule.by_scores {
            f64::from(scores[expert])
        } else {
            parts[expert] + f64::from(biases[expert])
        }
    };
    let mut best = of_best_groups(scores.len(), rule.groups, &rank);
    best.sort_by(|a, b| rank(*b).total_cmp(&rank(*a)));
    best.truncate(used);
    best.sort_unstable();
    let of_chosen: f64 = best.iter().map(|expert| parts[*expert]).sum();
    let divisor = if rule.normalized {
        of_chosen.max(SUM_LEAST)
    } else {
        1.0
    };
    let share = |expert: usize| (parts[expert] / divisor * f64::from(rule.scale)) as f32;
    best.iter()
        .map(|expert| (*expert, share(*expert)))
        .collect()
}

/// The experts of the best groups: those with the largest sums of their best two ranks.
fn of_best_groups(
    count: usize,
    groups: Option<(u32, u32)>,
    rank: &dyn Fn(usize) -> f64,
) -> Vec<usize> {
    let Some((groups, used)) = groups else {
        return (0..count).collect();
    };
    let size = count / groups as usize;
    let mut sums: Vec<(f64, usize)> = Vec::new();
    for group in 0..groups as usize {
        let mut ranks: Vec<f64> = (group * size..(group + 1) * size).map(rank).collect();
        ranks.sort_by(|a, b| b.total_cmp(a));
        sums.push((ranks.iter().take(2).sum(), group));
    }
    sums.sort_by(|a, b| b.0.total_cmp(&a.0));
    sums.truncate(used as usize);
    let experts = sums
        .iter()
        .flat_map(|(_, group)| group * size..(group + 1) * size);
    experts.collect()
}
