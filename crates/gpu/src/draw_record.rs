//! Draws as a device reads them: a head of [`DRAW_WORDS`] words for each, then lists of tokens and sets of allowed tokens, to
//! which the heads point.

use crate::operation::Program;
use model::{DrawOutcome, DrawRule, DrawView, DrawnToken};

/// Words of the head of a draw; their order is that of `kernels/draw.wgsl`.
pub(crate) const DRAW_WORDS: usize = 20;

/// Words of the result of a draw.
pub(crate) const RESULT_WORDS: usize = 8 + 2 * ALTERNATIVES_MAX;

/// Most likely tokens that a draw may ask for.
pub(crate) const ALTERNATIVES_MAX: usize = 64;

/// Words of a record for which there is room where a draw takes fewer.
const WORDS_LEAST: usize = 1 << 18;

/// Bytes of adjusted rows, at most; a batch with more such draws is drawn in several rounds.
const ADJUSTED_BYTES_MAX: u64 = 64 << 20;

/// Draws of one round, at most.
const ROUND_MAX: usize = 1024;

/// A mass of 1 in units of the high word.
const MASS_UNITS: f64 = 4096.0;

/// In place of a number that there is not.
const NONE: u32 = u32::MAX;

/// Sizes of the logits that are drawn from, and of the device's buffers for draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DrawBounds {
    /// Entries of a row.
    pub(crate) vocab: usize,
    /// Draws of a batch.
    pub(crate) draws: usize,
    /// Rows of adjusted logits.
    pub(crate) adjusted_rows: usize,
}

/// Bounds of the draws of a program; zeros where nothing is drawn.
pub(crate) fn draw_bounds(program: &Program) -> DrawBounds {
    let Some(shape) = program.draws else {
        return DrawBounds::default();
    };
    let logits = program.buffers[shape.logits.0 as usize];
    let row_bytes = u64::from(logits.stride()) * 4;
    let rows = (ADJUSTED_BYTES_MAX / row_bytes.max(1)).max(1);
    DrawBounds {
        vocab: logits.cols as usize,
        draws: shape.draws_max as usize,
        adjusted_rows: rows.min(u64::from(shape.draws_max)).max(1) as usize,
    }
}

/// Bytes of the record of draws, of adjusted logits, of results and of drawn tokens.
pub(crate) fn draw_bytes(program: &Program) -> [u64; 4] {
    let (bounds, Some(shape)) = (draw_bounds(program), program.draws) else {
        return [0; 4];
    };
    let logits = program.buffers[shape.logits.0 as usize];
    let draws = bounds.draws as u64;
    [
        bounds.words() as u64 * 4,
        bounds.adjusted_rows as u64 * u64::from(logits.stride()) * 4,
        result_bytes(bounds.draws),
        draws * 4,
    ]
}

/// Bytes of the results of so many draws.
pub(crate) fn result_bytes(draws: usize) -> u64 {
    (draws * RESULT_WORDS * 4) as u64
}

impl DrawBounds {
    /// Words of the device's record of draws: any single draw fits.
    pub(crate) fn words(&self) -> usize {
        let list = 2 * self.vocab;
        let one = DRAW_WORDS + self.vocab.div_ceil(32) + 2 * list;
        one.max(WORDS_LEAST.min(self.draws * one))
    }

    /// The fault of a draw from one of `rows` rows of logits.
    pub(crate) fn check(&self, draw: &DrawView<'_>, rows: usize) -> Result<(), &'static str> {
        let is_known = |token: u32| (token as usize) < self.vocab;
        let counts = draw.counts.iter().map(|(token, _)| *token);
        let bias = draw.bias.iter().map(|(token, _)| *token);
        let mut tokens = counts.chain(bias).chain(draw.forbidden.iter().copied());
        let words = draw.allowed.map_or(0, <[u32]>::len);
        let alternatives = draw.rule.map_or(0, |rule| rule.alternatives as usize);
        let checks = [
            (draw.row >= rows, "a draw is from a row that has no logits"),
            (
                !tokens.all(is_known),
                "a draw names a token that is not in the vocabulary",
            ),
            (
                draw.allowed.is_some() && words != self.vocab.div_ceil(32),
                "a set of allowed tokens has another size than the vocabulary",
            ),
            (
                draw.counts.len().max(draw.bias.len()) > self.vocab,
                "a draw lists more tokens than there are",
            ),
            (
                alternatives > ALTERNATIVES_MAX,
                "a draw asks for more alternatives than 64",
            ),
        ];
        match checks.iter().find(|(is_bad, _)| *is_bad) {
            Some((_, why)) => Err(why),
            None => Ok(()),
        }
    }
}

/// The record of a round of draws: as many as the device has room for. Reused, so that a warm step allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct DrawRecord {
    bounds: DrawBounds,
    heads: Vec<u32>,
    lists: Vec<u32>,
    words: Vec<u32>,
    adjusted: usize,
}

impl DrawRecord {
    pub(crate) fn new(bounds: DrawBounds) -> Self {
        Self {
            bounds,
            ..Self::default()
        }
    }

    /// Begins a round.
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.lists.clear();
        self.adjusted = 0;
    }

    /// Draws of the round.
    pub(crate) fn len(&self) -> usize {
        self.heads.len() / DRAW_WORDS
    }

    /// Whether logits of a draw are changed.
    pub(crate) fn has_adjusted(&self) -> bool {
        self.adjusted > 0
    }

    /// Words before the lists.
    pub(crate) fn heads_words(&self) -> usize {
        self.heads.len()
    }

    /// All words.
    pub(crate) fn words(&mut self) -> &[u32] {
        self.words.clear();
        self.words.extend_from_slice(&self.heads);
        self.words.extend_from_slice(&self.lists);
        &self.words
    }

    /// Adds a draw, which was checked, whose result has this number. Returns false where the round is full; it has room for
    /// the first one.
    pub(crate) fn push(&mut self, number: usize, draw: &DrawView<'_>, rule: &DrawRule) -> bool {
        let has_set = draw.allowed.is_some() || !draw.forbidden.is_empty();
        let is_adjusted = has_set || !draw.counts.is_empty() || !draw.bias.is_empty();
        let set = if has_set {
            self.bounds.vocab.div_ceil(32)
        } else {
            0
        };
        let words = DRAW_WORDS + set + 2 * (draw.counts.len() + draw.bias.len());
        let after = self.heads.len() + self.lists.len() + words;
        let slots = self.adjusted + usize::from(is_adjusted);
        let is_full = after > self.bounds.words() || slots > self.bounds.adjusted_rows;
        if self.len() == ROUND_MAX || (is_full && self.len() > 0) {
            return false;
        }
        let slot = if is_adjusted {
            self.adjusted as u32
        } else {
            NONE
        };
        self.adjusted = slots;
        let counts = self.list(draw.counts.iter().copied());
        let bias = self.list(
            draw.bias
                .iter()
                .map(|(token, bias)| (*token, bias.to_bits())),
        );
        let allowed = if has_set { self.set(draw) } else { NONE };
        let wants = rule.logprob || rule.alternatives > 0;
        let alternatives = if wants { rule.alternatives } else { NONE };
        // Devices take a number that is not normal for 0, and divide by it.
        let is_greedy = rule.temperature == 0.0;
        let least = if is_greedy { 0.0 } else { f32::MIN_POSITIVE };
        let temperature = rule.temperature.max(least);
        let [p_high, p_low] = parts(f64::from(rule.top_p));
        let rest = (1.0 - rule.top_p).max(0.0);
        let [q_high, q_low] = parts(rule.quantile);
        self.heads.extend([
            draw.row as u32,
            slot,
            number as u32,
            temperature.to_bits(),
            rule.top_k,
            p_high,
            p_low,
            rest.to_bits(),
            rule.min_p.to_bits(),
            q_high,
            q_low,
            rule.repetition_penalty.to_bits(),
            rule.frequency_penalty.to_bits(),
            rule.presence_penalty.to_bits(),
            counts,
            draw.counts.len() as u32,
            bias,
            draw.bias.len() as u32,
            allowed,
            alternatives,
        ]);
        true
    }

    /// Adds a list of pairs; returns its place.
    fn list(&mut self, pairs: impl Iterator<Item = (u32, u32)>) -> u32 {
        let at = self.lists.len() as u32;
        self.lists.extend(pairs.flat_map(|(token, of)| [token, of]));
        at
    }

    /// Adds the set of tokens that a draw allows and does not forbid; all that it allows, where it forbids them all.
    fn set(&mut self, draw: &DrawView<'_>) -> u32 {
        let (vocab, at) = (self.bounds.vocab, self.lists.len());
        let words = vocab.div_ceil(32);
        match draw.allowed {
            Some(allowed) => self.lists.extend_from_slice(allowed),
            None => self.lists.resize(at + words, u32::MAX),
        }
        let set = &mut self.lists[at..];
        if !vocab.is_multiple_of(32) {
            set[words - 1] &= (1 << (vocab % 32)) - 1;
        }
        let is_empty = |set: &[u32]| set.iter().all(|word| *word == 0);
        for token in draw.forbidden {
            set[*token as usize / 32] &= !(1 << (token % 32));
        }
        if is_empty(set) {
            for token in draw.forbidden {
                let word = *token as usize / 32;
                let allowed = draw.allowed.map_or(u32::MAX, |allowed| allowed[word]);
                set[word] |= allowed & (1 << (token % 32));
            }
        }
        at as u32
    }
}

/// The result of a draw, as the device writes it.
pub(crate) struct DrawResult<'a> {
    words: &'a [u32],
}

impl<'a> DrawResult<'a> {
    /// The result with this number among all.
    pub(crate) fn of(results: &'a [u32], number: usize) -> Self {
        Self {
            words: &results[number * RESULT_WORDS..][..RESULT_WORDS],
        }
    }

    /// The token; the alternatives that the rule asks for are added to `alternatives`.
    pub(crate) fn token(&self, rule: &DrawRule, alternatives: &mut Vec<(u32, f32)>) -> DrawnToken {
        let outcome = match self.words[0] {
            0 => DrawOutcome::Token(self.words[1]),
            1 => DrawOutcome::NoToken,
            _ => DrawOutcome::NotFinite,
        };
        let mut drawn = DrawnToken {
            outcome,
            logprob: f32::NAN,
            alternatives: 0,
        };
        if !matches!(outcome, DrawOutcome::Token(_)) {
            return drawn;
        }
        let logprob = |bits: u32| (f64::from(f32::from_bits(bits)) - self.norm()) as f32;
        if rule.logprob {
            drawn.logprob = logprob(self.words[2]);
        }
        if rule.alternatives > 0 {
            drawn.alternatives = (self.words[6] as usize).min(ALTERNATIVES_MAX);
            let pairs = &self.words[8..8 + 2 * drawn.alternatives];
            let pairs = pairs.as_chunks::<2>().0.iter();
            alternatives.extend(pairs.map(|[id, bits]| (*id, logprob(*bits))));
        }
        drawn
    }

    /// Logarithm of the sum of the exponentials of all logits.
    fn norm(&self) -> f64 {
        let [most, high, low] = [3, 4, 5].map(|word| self.words[word]);
        let mass = f64::from(high) / MASS_UNITS + f64::from(low) / MASS_UNITS / (1u64 << 32) as f64;
        f64::from(f32::from_bits(most)) + mass.ln()
    }
}

/// A number from 0 to below 1 as parts of 2^64, rounded down: the high and the low word. The number has at most 53 bits.
fn parts(number: f64) -> [u32; 2] {
    let scaled = number.clamp(0.0, 1.0) * (1u64 << 32) as f64;
    let high = scaled.floor().min(f64::from(u32::MAX));
    let low = (scaled - high) * (1u64 << 32) as f64;
    [high as u32, low as u32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selftest::PLAIN;
    use model::Draws;

    const BOUNDS: DrawBounds = DrawBounds {
        vocab: 40,
        draws: 8,
        adjusted_rows: 2,
    };

    #[test]
    fn forbidden_tokens_leave_the_set_unless_nothing_is_left() {
        for (allowed, forbidden, want) in [
            (None, &[0, 33][..], [!1, 0xfd]),
            (Some([6, 1]), &[1], [4, 1]),
            (Some([6, 0]), &[1, 2, 7], [6, 0]),
            (Some([0, 0]), &[3], [0, 0]),
        ] {
            let mut draws = Draws::default();
            draws.push(0, Some(PLAIN));
            if let Some(allowed) = allowed {
                draws.set_allowed(&allowed);
            }
            draws.set_forbidden(forbidden);
            let mut record = DrawRecord::new(BOUNDS);
            let draw = draws.iter().next().expect("a draw");
            assert!(record.push(0, &draw, &PLAIN));
            assert_eq!(record.words()[DRAW_WORDS..], want, "{allowed:?}");
        }
    }

    #[test]
    fn round_is_full_when_its_rows_are_used_up() {
        let mut draws = Draws::default();
        for row in 0..4 {
            draws.push(row, Some(PLAIN));
            draws.set_bias(&[(1, 2.0)]);
        }
        let mut record = DrawRecord::new(BOUNDS);
        let pushed: Vec<_> = draws
            .iter()
            .map(|draw| record.push(0, &draw, &PLAIN))
            .collect();
        assert_eq!(pushed, [true, true, false, false]);
        assert_eq!((record.len(), record.has_adjusted()), (2, true));
        record.clear();
        assert!(record.push(0, &draws.iter().next().expect("a draw"), &PLAIN));
    }

    #[test]
    fn draws_that_name_what_there_is_not_are_refused() {
        let check = |fill: &dyn Fn(&mut Draws), rule: DrawRule| {
            let mut draws = Draws::default();
            draws.push(1, Some(rule));
            fill(&mut draws);
            let draw = draws.iter().next().expect("a draw");
            BOUNDS.check(&draw, 2)
        };
        assert_eq!(check(&|_| {}, PLAIN), Ok(()));
        let many = DrawRule {
            alternatives: 65,
            ..PLAIN
        };
        for (part, found) in [
            ("vocabulary", check(&|d| d.add_count(40, 1), PLAIN)),
            ("vocabulary", check(&|d| d.set_bias(&[(40, 1.0)]), PLAIN)),
            ("vocabulary", check(&|d| d.set_forbidden(&[99]), PLAIN)),
            ("another size", check(&|d| d.set_allowed(&[1]), PLAIN)),
            ("more alternatives", check(&|_| {}, many)),
        ] {
            assert!(found.is_err_and(|why| why.contains(part)), "{part}");
        }
        let mut draws = Draws::default();
        draws.push(2, None);
        let draw = draws.iter().next().expect("a draw");
        assert!(BOUNDS.check(&draw, 2).is_err());
    }

    #[test]
    fn numbers_are_parts_of_a_power_of_two() {
        assert_eq!(parts(0.0), [0, 0]);
        assert_eq!(parts(0.5), [1 << 31, 0]);
        assert_eq!(parts(0.75 + 2f64.powi(-53)), [3 << 30, 1 << 11]);
        assert_eq!(parts(1.0 - 2f64.powi(-53)), [u32::MAX, 0xffff_f800]);
    }
}
