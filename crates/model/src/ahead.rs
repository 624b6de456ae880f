//! A model that computes the next batch while the tokens of the last one are on their way.
//!
//! Such a model has a queue, as a device has. For each batch there are three calls, in this order; the next batch may be
//! started between the second and the third, so that at most two batches are in flight:
//!
//! ```text
//! start(k)    draw(k)    start(k+1)    drawn() of k    draw(k+1)    start(k+2)    drawn() of k+1 ..
//! ```
//!
//! Everything takes effect in the order of the calls, [`crate::Forward::copy_page`], [`crate::ExportPages`] and
//! [`crate::Predict`] included. So a page or a state that a batch in flight reads or writes may be given to another
//! sequence at once: what is written for that sequence is written later.

use crate::{Batch, ForwardError};
use std::ops::Range;

/// A token of a batch that is drawn by the batch before: `DRAWN | i` is the token of draw `i`. The mark of a row that is a
/// [`crate::VECTOR`] has this bit, too, and is no draw.
pub const DRAWN: u32 = 1 << 31;

/// Starts batches before the tokens of the last one are known.
pub trait Ahead {
    /// Queues a batch. Where a token is [`DRAWN`] by a draw that gives none, the row is void: it is computed for any token,
    /// and changes nothing but the span's own positions and states.
    ///
    /// # Errors
    /// See [`ForwardError`]; the batch is not queued, those before are.
    fn start(&mut self, batch: &Batch) -> Result<(), ForwardError>;

    /// Says how tokens are drawn from the rows of the batch that was started last; also where there are no draws. All that a
    /// draw depends on is in `draws`.
    ///
    /// # Errors
    /// The device failed.
    fn draw(&mut self, draws: &Draws) -> Result<(), ForwardError>;

    /// Waits for the draws of the oldest batch in flight, and gives them.
    ///
    /// # Errors
    /// The device failed.
    fn drawn(&mut self) -> Result<Drawn<'_>, ForwardError>;
}

/// How a token is drawn. Each field names the value that turns it off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawRule {
    /// 0: the most likely token, the lowest id where equal.
    pub temperature: f32,
    /// 0 = off.
    pub top_k: u32,
    /// 1 = off.
    pub top_p: f32,
    /// 0 = off.
    pub min_p: f32,
    /// 1 = off. Divides positive logits of counted tokens, multiplies negative ones.
    pub repetition_penalty: f32,
    /// 0 = off. Subtracted once for each time that the token is counted as generated.
    pub frequency_penalty: f32,
    /// 0 = off. Subtracted once if the token is counted as generated.
    pub presence_penalty: f32,
    /// The random number, in `[0, 1)`: the token is the one at this part of the mass that is left, in the order of ids.
    pub quantile: f64,
    /// Whether the log-probability of the token is wanted, before penalties, temperature and filters.
    pub logprob: bool,
    /// Number of the most likely tokens that are wanted with their log-probabilities.
    pub alternatives: u32,
}

impl DrawRule {
    /// Takes the most likely token; everything else is off.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        frequency_penalty: 0.0,
        presence_penalty: 0.0,
        quantile: 0.0,
        logprob: false,
        alternatives: 0,
    };
}

/// One draw of a batch.
#[derive(Clone, Copy, Debug)]
pub struct DrawView<'a> {
    /// Row of logits of the batch.
    pub row: usize,
    /// `None`: no token is drawn, and the row itself is wanted.
    pub rule: Option<DrawRule>,
    /// Tokens that penalties apply to, with the number of times that each was generated; each once.
    pub counts: &'a [(u32, u32)],
    /// Added to logits after the penalties, by token id.
    pub bias: &'a [(u32, f32)],
    /// Allowed tokens: bit `id % 32` of word `id / 32`. `None`: all.
    pub allowed: Option<&'a [u32]>,
    /// Tokens that are not drawn, unless no other token is possible.
    pub forbidden: &'a [u32],
}

/// The draws of a batch. Reused between steps, so that a warm step allocates nothing.
#[derive(Debug, Default)]
pub struct Draws {
    draws: Vec<Draw>,
    counts: Vec<(u32, u32)>,
    bias: Vec<(u32, f32)>,
    allowed: Vec<u32>,
    forbidden: Vec<u32>,
}

/// A draw, as ranges of the flat buffers.
#[derive(Debug)]
struct Draw {
    row: usize,
    rule: Option<DrawRule>,
    counts: Range<usize>,
    bias: Range<usize>,
    allowed: Range<usize>,
    forbidden: Range<usize>,
}

impl Draws {
    /// Removes all draws and keeps the buffers.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Keeps the first `draws` draws.
    pub fn truncate(&mut self, draws: usize) {
        if let Some(first) = self.draws.get(draws) {
            self.counts.truncate(first.counts.start);
            self.bias.truncate(first.bias.start);
            self.allowed.truncate(first.allowed.start);
            self.forbidden.truncate(first.forbidden.start);
        }
        self.draws.truncate(draws);
    }

    /// Adds a draw from a row of logits of the batch; `None`: the row itself is wanted.
    pub fn push(&mut self, row: usize, rule: Option<DrawRule>) {
        let empty = |len| len..len;
        self.draws.push(Draw {
            row,
            rule,
            counts: empty(self.counts.len()),
            bias: empty(self.bias.len()),
            allowed: empty(self.allowed.len()),
            forbidden: empty(self.forbidden.len()),
        });
    }

    /// Counts a token for the penalties of the draw that was added last.
    pub fn add_count(&mut self, token: u32, generated: u32) {
        if let Some(draw) = self.draws.last_mut() {
            self.counts.push((token, generated));
            draw.counts.end = self.counts.len();
        }
    }

    /// Sets the bias of the draw that was added last.
    pub fn set_bias(&mut self, bias: &[(u32, f32)]) {
        if let Some(draw) = self.draws.last_mut() {
            self.bias.extend_from_slice(bias);
            draw.bias.end = self.bias.len();
        }
    }

    /// Sets the allowed tokens of the draw that was added last; not empty.
    pub fn set_allowed(&mut self, allowed: &[u32]) {
        if let Some(draw) = self.draws.last_mut() {
            self.allowed.extend_from_slice(allowed);
            draw.allowed.end = self.allowed.len();
        }
    }

    /// Sets the forbidden tokens of the draw that was added last.
    pub fn set_forbidden(&mut self, forbidden: &[u32]) {
        if let Some(draw) = self.draws.last_mut() {
            self.forbidden.extend_from_slice(forbidden);
            draw.forbidden.end = self.forbidden.len();
        }
    }

    /// Number of draws.
    pub fn len(&self) -> usize {
        self.draws.len()
    }

    /// Whether there are no draws.
    pub fn is_empty(&self) -> bool {
        self.draws.is_empty()
    }

    /// The draws in the order of insertion.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = DrawView<'_>> {
        self.draws.iter().map(|draw| DrawView {
            row: draw.row,
            rule: draw.rule,
            counts: &self.counts[draw.counts.clone()],
            bias: &self.bias[draw.bias.clone()],
            allowed: Some(&self.allowed[draw.allowed.clone()]).filter(|words| !words.is_empty()),
            forbidden: &self.forbidden[draw.forbidden.clone()],
        })
    }
}

/// What the draws of a batch gave, valid until the next call.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'a> {
    /// One for each draw, in the order of the draws.
    pub tokens: &'a [DrawnToken],
    /// Alternatives with log-probabilities, draw after draw, most likely first.
    pub alternatives: &'a [(u32, f32)],
    /// The rows that are wanted themselves, in the order of the draws; shape `(rows, vocab)`.
    pub logits: &'a [f32],
    /// As [`crate::Forward::hidden`].
    pub hidden: &'a [f32],
}

/// What a draw gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawnToken {
    /// The token, or why there is none.
    pub outcome: DrawOutcome,
    /// Natural logarithm of the token's probability; NaN where it is not wanted.
    pub logprob: f32,
    /// Number of alternatives.
    pub alternatives: usize,
}

/// The outcome of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawOutcome {
    /// This token.
    Token(u32),
    /// No token is allowed and possible.
    NoToken,
    /// The row contains NaN or plus infinity, or no token is possible at all.
    NotFinite,
    /// No token was to be drawn: the row is among the logits.
    Row,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_draws_leave_nothing_behind() {
        let mut draws = Draws::default();
        for row in 0..3 {
            draws.push(row, None);
            draws.add_count(7, row as u32);
            draws.set_bias(&[(1, 0.5)]);
            draws.set_allowed(&[row as u32; 2]);
            draws.set_forbidden(&[9, 10]);
        }
        draws.truncate(1);
        draws.push(5, None);
        let views: Vec<_> = draws.iter().collect();
        assert_eq!((draws.len(), views[0].row, views[1].row), (2, 0, 5));
        assert_eq!(views[0].counts, [(7, 0)]);
        assert_eq!(views[0].allowed, Some(&[0, 0][..]));
        let last = &views[1];
        assert!(last.counts.is_empty() && last.bias.is_empty() && last.forbidden.is_empty());
        assert_eq!(last.allowed, None);
        draws.clear();
        assert!(draws.is_empty() && draws.counts.is_empty() && draws.forbidden.is_empty());
    }
}
