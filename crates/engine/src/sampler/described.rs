//! Draws that the model makes: their description, and what they give.
//!
//! A model that runs ahead ([`model::Ahead`]) draws tokens itself. A draw is described by numbers only: penalties as counts,
//! a constraint as the set of allowed tokens, the random number of the token's place. [`Sampler::draw_described`] is the
//! reference of what such a draw gives: the token, and the log-probabilities, of [`Sampler::sample_token`].

use super::adjust::{self, Penalties};
use super::{Filters, SampleContext, Sampler, XTC_THRESHOLD_MAX, draw_id};
use crate::{SamplingParams, sampler};
use model::{DrawOutcome, DrawRule, DrawView, DrawnToken, Draws};

/// Whether a model can draw with these parameters: DRY, XTC and `typical_p` are only here.
pub(crate) fn is_describable(s: &SamplingParams) -> bool {
    let has_xtc = s.xtc_probability > 0.0 && s.xtc_threshold <= XTC_THRESHOLD_MAX;
    s.dry_multiplier <= 0.0 && s.typical_p >= 1.0 && !has_xtc
}

impl Sampler {
    /// Adds the draw of the next token from a row of the batch. The parameters are [`is_describable`].
    ///
    /// Calls the caller's constraint, which may panic; the draw is then incomplete.
    pub(crate) fn describe(
        &mut self,
        row: usize,
        context: &mut SampleContext<'_>,
        draws: &mut Draws,
    ) {
        let s = context.sampling;
        let index = (context.tokens.len() - context.prompt_tokens) as u64;
        let rule = DrawRule {
            temperature: s.temperature,
            top_k: s.top_k,
            top_p: s.top_p,
            min_p: s.min_p,
            repetition_penalty: s.repetition_penalty,
            frequency_penalty: s.frequency_penalty,
            presence_penalty: s.presence_penalty,
            quantile: sampler::uniform(s.seed, context.choice, index),
            logprob: s.logprobs,
            alternatives: s.top_logprobs,
        };
        draws.push(row, Some(rule));
        draws.set_bias(&s.logit_bias);
        if adjust::masks_eos(context) {
            draws.set_forbidden(context.eos);
        }
        if let Some(constraint) = &mut context.constraint {
            self.allowed.fill(0);
            if constraint.mask(&mut self.allowed) {
                draws.set_allowed(&self.allowed);
            }
        }
        if Penalties::of(s).is_some() {
            self.counts.count_window(context);
            while let Some((token, generated)) = self.counts.pop() {
                draws.add_count(token, generated);
            }
        }
    }

    /// Draws as described; alternatives are in [`Sampler::alternatives`] after.
    pub(crate) fn draw_described(&mut self, logits: &[f32], draw: &DrawView<'_>) -> DrawnToken {
        let mut drawn = DrawnToken {
            outcome: DrawOutcome::Row,
            logprob: f32::NAN,
            alternatives: 0,
        };
        self.top.clear();
        let Some(rule) = draw.rule else {
            return drawn;
        };
        drawn.outcome = if !self.is_sound(logits) {
            DrawOutcome::NotFinite
        } else if let Some(id) = self.draw_rule(logits, &rule, draw) {
            drawn.logprob = self.find_logprobs(logits, id, rule.logprob, rule.alternatives);
            drawn.alternatives = self.top.len();
            DrawOutcome::Token(id)
        } else {
            DrawOutcome::NoToken
        };
        drawn
    }

    fn draw_rule(&mut self, logits: &[f32], rule: &DrawRule, draw: &DrawView<'_>) -> Option<u32> {
        self.work.clear();
        self.work.extend_from_slice(logits);
        let penalties = Penalties {
            repetition: rule.repetition_penalty,
            frequency: rule.frequency_penalty,
            presence: rule.presence_penalty,
        };
        for &(token, generated) in draw.counts {
            penalties.apply(&mut self.work[token as usize], generated);
        }
        adjust::add_bias(&mut self.work, draw.bias);
        if let Some(allowed) = draw.allowed {
            adjust::keep_allowed(&mut self.work, allowed);
        }
        if !draw.forbidden.is_empty() {
            adjust::forbid(&mut self.work, draw.forbidden);
        }
        if rule.temperature == 0.0 {
            return self.candidates.most_likely(&self.work);
        }
        let filters = Filters {
            temperature: rule.temperature,
            top_k: rule.top_k,
            typical_p: 1.0,
            top_p: rule.top_p,
            min_p: rule.min_p,
            xtc_threshold: None,
        };
        draw_id(&mut self.candidates, &self.work, &filters, rule.quantile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Constraint;
    use crate::sampler::tests::off;
    use testing::random::Random;

    const VOCAB: usize = 150;

    /// Allows every token but those at multiples of a number; all for 0.
    struct Without(u32);

    impl Constraint for Without {
        fn mask(&mut self, allowed: &mut [u32]) -> bool {
            for id in (0..VOCAB as u32).filter(|id| self.0 > 0 && !id.is_multiple_of(self.0)) {
                allowed[id as usize / 32] |= 1 << (id % 32);
            }
            self.0 > 0
        }
        fn accept(&mut self, _: u32) {}
        fn is_complete(&self) -> bool {
            false
        }
    }

    fn parameters(random: &mut Random) -> SamplingParams {
        let mut some = |value: f32, off: f32| if random.chance(40) { value } else { off };
        SamplingParams {
            temperature: some(0.0, 0.8),
            top_k: some(20.0, 0.0) as u32,
            top_p: some(0.9, 1.0),
            min_p: some(0.05, 0.0),
            repetition_penalty: some(1.3, 1.0),
            presence_penalty: some(0.5, 0.0),
            frequency_penalty: some(0.3, 0.0),
            penalty_window: some(6.0, 0.0) as u32,
            logit_bias: vec![(3, some(4.0, 0.0)), (9, -1.0)],
            min_tokens: some(100.0, 0.0) as u32,
            logprobs: some(1.0, 0.0) > 0.0,
            top_logprobs: some(4.0, 0.0) as u32,
            seed: random.next(),
            ..off()
        }
    }

    #[test]
    fn described_draw_gives_the_sampled_token() {
        let mut sampler = Sampler::new(VOCAB);
        let mut draws = Draws::default();
        let mut random = Random(5);
        for case in 0..2000 {
            let s = parameters(&mut random);
            let logit = |_| random.below(1000) as f32 * 0.01 - 5.0;
            let logits: Vec<f32> = (0..VOCAB).map(logit).collect();
            let tokens: Vec<u32> = (0..20).map(|_| random.below(VOCAB as u64) as u32).collect();
            let mut constraint = Without((case % 5) as u32);
            let mut context = |draws: Option<&mut Draws>, sampler: &mut Sampler| {
                let mut context = SampleContext {
                    sampling: &s,
                    tokens: &tokens,
                    prompt_tokens: 8,
                    choice: 1,
                    eos: &[0, 7],
                    constraint: Some(&mut constraint),
                };
                match draws {
                    Some(draws) => {
                        sampler.describe(0, &mut context, draws);
                        None
                    }
                    None => sampler.sample_token(&logits, context),
                }
            };
            let want = context(None, &mut sampler);
            let alternatives = sampler.alternatives().to_vec();
            draws.clear();
            context(Some(&mut draws), &mut sampler);
            let draw = draws.iter().next().expect("one draw");
            let drawn = sampler.draw_described(&logits, &draw);
            let outcome = want.map_or(DrawOutcome::NoToken, |t| DrawOutcome::Token(t.id));
            assert_eq!(drawn.outcome, outcome, "case {case}: {s:?}");
            if let Some(token) = want {
                assert_eq!(token.logprob.to_bits(), drawn.logprob.to_bits());
                assert_eq!(sampler.alternatives(), alternatives, "case {case}");
            }
        }
    }

    #[test]
    fn row_with_a_nan_and_row_without_a_token_are_told_apart() {
        let mut sampler = Sampler::new(2);
        let mut draws = Draws::default();
        let s = off();
        let mut context = SampleContext {
            sampling: &s,
            tokens: &[1],
            prompt_tokens: 1,
            choice: 0,
            eos: &[],
            constraint: None,
        };
        sampler.describe(0, &mut context, &mut draws);
        draws.set_allowed(&[0b10]);
        draws.push(0, None);
        let rows = [
            ([1.0, f32::NAN], DrawOutcome::NotFinite),
            ([f32::NEG_INFINITY; 2], DrawOutcome::NotFinite),
            ([1.0, f32::NEG_INFINITY], DrawOutcome::NoToken),
            ([1.0, 0.0], DrawOutcome::Token(1)),
        ];
        for (logits, outcome) in rows {
            let mut views = draws.iter();
            let mut next = || views.next().expect("two draws");
            assert_eq!(sampler.draw_described(&logits, &next()).outcome, outcome);
            let row = sampler.draw_described(&logits, &next());
            assert_eq!(row.outcome, DrawOutcome::Row);
        }
    }
}
