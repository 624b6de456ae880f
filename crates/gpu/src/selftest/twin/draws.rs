//! Draws of tokens by their definition: all tokens sorted, in doubles.

use model::{DrawRule, DrawView};

/// Results of a draw.
#[derive(Debug, PartialEq)]
pub(crate) struct TwinDraw {
    /// 0: a token; 1: none is possible; 2: a logit is not finite.
    pub(crate) outcome: u32,
    /// The token.
    pub(crate) token: u32,
    /// Log-probability of the token.
    pub(crate) logprob: f64,
    /// The most likely tokens with their log-probabilities.
    pub(crate) alternatives: Vec<(u32, f64)>,
}

/// Draws from a row of logits.
pub(crate) fn draw(logits: &[f32], draw: &DrawView<'_>, rule: &DrawRule) -> TwinDraw {
    let mut drawn = TwinDraw {
        outcome: 2,
        token: 0,
        logprob: f64::NAN,
        alternatives: Vec::new(),
    };
    if logits.iter().any(|logit| !logit.is_finite()) {
        return drawn;
    }
    let sorted = sorted(&adjusted(logits, draw, rule));
    let Some(token) = choose(sorted, rule) else {
        return TwinDraw {
            outcome: 1,
            ..drawn
        };
    };
    (drawn.outcome, drawn.token) = (0, token);
    let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
    let logprob = |token: u32| f64::from(logits[token as usize]) - sum.ln();
    drawn.logprob = logprob(token);
    let plain: Vec<f64> = logits.iter().map(|logit| f64::from(*logit)).collect();
    let best = self::sorted(&plain).into_iter();
    let best = best.take(rule.alternatives as usize);
    drawn.alternatives = best.map(|(token, _)| (token, logprob(token))).collect();
    drawn
}

/// Logits after penalties, bias and masks; minus infinity for tokens that are not allowed.
fn adjusted(logits: &[f32], draw: &DrawView<'_>, rule: &DrawRule) -> Vec<f64> {
    let mut adjusted = logits.to_vec();
    for &(token, generated) in draw.counts {
        let logit = &mut adjusted[token as usize];
        let repetition = rule.repetition_penalty;
        *logit = if *logit > 0.0 {
            *logit / repetition
        } else {
            *logit * repetition
        };
        if generated > 0 {
            *logit -= generated as f32 * rule.frequency_penalty + rule.presence_penalty;
        }
    }
    for &(token, bias) in draw.bias {
        adjusted[token as usize] += bias;
    }
    let is_allowed = |token: usize| {
        draw.allowed
            .is_none_or(|allowed| allowed[token / 32] >> (token % 32) & 1 == 1)
    };
    let is_free = |token: usize| is_allowed(token) && !draw.forbidden.contains(&(token as u32));
    let any_free = (0..logits.len()).any(is_free);
    for (token, logit) in adjusted.iter_mut().enumerate() {
        if !is_allowed(token) || (any_free && !is_free(token)) {
            *logit = f32::NEG_INFINITY;
        }
    }
    adjusted.into_iter().map(f64::from).collect()
}

/// Possible tokens, most likely first, the lower id first where equal.
fn sorted(logits: &[f64]) -> Vec<(u32, f64)> {
    let all = (0..).zip(logits.iter().copied());
    let mut all: Vec<(u32, f64)> = all.filter(|(_, logit)| logit.is_finite()).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all
}

/// The token at the quantile of what the filters keep, in the order of ids.
fn choose(mut sorted: Vec<(u32, f64)>, rule: &DrawRule) -> Option<u32> {
    let (token, most) = *sorted.first()?;
    if rule.temperature == 0.0 {
        return Some(token);
    }
    if rule.top_k > 0 {
        sorted.truncate(rule.top_k as usize);
    }
    for (_, logit) in &mut sorted {
        *logit = ((*logit - most) / f64::from(rule.temperature)).exp();
    }
    let sum = |sorted: &[(u32, f64)]| sorted.iter().map(|(_, weight)| weight).sum::<f64>();
    if rule.top_p < 1.0 {
        let (wanted, mut reached) = (f64::from(rule.top_p) * sum(&sorted), 0.0);
        let last = sorted.iter().position(|(_, weight)| {
            reached += weight;
            reached >= wanted
        });
        sorted.truncate(last.map_or(sorted.len(), |last| last + 1));
    }
    sorted.retain(|(_, weight)| *weight >= f64::from(rule.min_p));
    sorted.sort_by_key(|(token, _)| *token);
    let mut left = rule.quantile * sum(&sorted);
    let found = sorted.iter().find(|(_, weight)| {
        left -= weight;
        left < 0.0
    });
    found.or(sorted.last()).map(|(token, _)| *token)
}
