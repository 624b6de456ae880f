//! Guesses at what comes next: who makes how many, the rows and pages they take, and what becomes
//! of them. Why this changes no token: [`crate::speculation`].
//!
//! A run's rows write keys and values at positions that do not count as computed until the token
//! there is drawn; the next step's row for such a position writes it again. So rows of wrong
//! guesses need no undoing but for the pages taken for them, which are given back at once.

use super::{Scheduler, count};
use crate::accounts::DECODE_COST;
use crate::plan::Planned;
use crate::speculation::lookup;
use crate::{Progress, Speculation};
use model::{Batch, Want};

/// What became of a run.
pub(super) struct Verified {
    /// Its tokens were forced, not guessed.
    pub(super) forced: bool,
    pub(super) drafted: usize,
    /// Of them, drawn.
    pub(super) accepted: usize,
}

impl Scheduler {
    /// Guesses for those who generate, in a step without prefill, from the rows and the free
    /// pages that are left: no page is taken from anybody, or from the prefix cache, for a guess. So many
    /// rows are forced tokens'; who has some has no guesses.
    pub(super) fn select_drafts(&mut self, forced: usize) {
        if self.inbox.config.speculation == Speculation::Off {
            return;
        }
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        keys.extend(self.live().filter(|(_, s)| s.rows > 0).map(|(key, _)| key));
        let prefills = |key: &usize| self.sequences[*key].as_ref().is_some_and(|s| !s.decodes());
        if !keys.iter().any(prefills) && self.worth.begin(keys.len()) {
            let rows = self.rows_max.min(self.logit_rows_max);
            let mut left = rows - keys.len() - forced;
            for &key in &keys {
                if self.sequences[key]
                    .as_ref()
                    .is_some_and(|s| s.drafts.forced)
                {
                    continue;
                }
                left -= match self.small {
                    Some(_) => self.let_guess(key, keys.len(), left),
                    None => self.look_up(key, keys.len(), left),
                };
            }
        }
        self.keys = keys;
    }

    /// Lets the draft model guess for one of so many sequences, at most so many. Returns how many.
    fn let_guess(&mut self, key: usize, sequences: usize, rows_left: usize) -> usize {
        let most = self.guesses_max(key).min(rows_left);
        let Some(sequence) = &mut self.sequences[key] else {
            return 0;
        };
        let worth = match most {
            0 => 0,
            most => self
                .worth
                .guesses(&mut sequence.drafts.guess, sequences, most),
        };
        if worth == 0 {
            return 0;
        }
        let room = self.reserve(key, worth);
        let room = self.reserve_small(key, room);
        if let Some(sequence) = &mut self.sequences[key] {
            sequence.drafts.most = room;
        }
        room
    }

    /// What one of so many sequences said before, at most so many tokens. Returns how many.
    fn look_up(&mut self, key: usize, sequences: usize, rows_left: usize) -> usize {
        let most = self.guesses_max(key).min(rows_left);
        let Some(sequence) = &mut self.sequences[key] else {
            return 0;
        };
        let Some(common) = &self.requests[sequence.slot] else {
            return 0;
        };
        let (tokens, drafts) = (&sequence.tokens, &mut sequence.drafts);
        drafts.run.extend(tokens.last());
        lookup(tokens, most, &mut drafts.run);
        if !common.sampling.ignore_eos {
            // What follows an end is never drawn; the end itself is drawn from the row before it.
            let end = drafts.guessed().iter().position(|t| common.eos.contains(t));
            drafts.keep(end.unwrap_or(most));
        }
        let found = drafts.guessed().len();
        let worth = match found {
            0 => 0,
            found => self.worth.guesses(&mut drafts.guess, sequences, found),
        };
        let room = self.reserve(key, worth);
        if let Some(sequence) = &mut self.sequences[key] {
            sequence.drafts.keep(room);
        }
        room
    }

    fn guesses_max(&self, key: usize) -> usize {
        self.run_max(key).min(self.inbox.config.guesses_max())
    }

    /// Guesses that could all be used if they were right: each gives a token, and one more is drawn
    /// after the last.
    pub(super) fn run_max(&self, key: usize) -> usize {
        let Some(sequence) = &self.sequences[key] else {
            return 0;
        };
        let window = self.requests[sequence.slot]
            .as_ref()
            .map_or(0, |common| common.credit_window);
        let credit = match window {
            0 => usize::MAX,
            window => window.saturating_sub(sequence.writer.unaccepted()) as usize,
        };
        let tokens = sequence.own_left().min(credit);
        tokens.saturating_sub(1)
    }

    /// Pages for the positions of so many guesses, as far as there are free ones. Returns for how
    /// many guesses there is room.
    pub(super) fn reserve(&mut self, key: usize, guesses: usize) -> usize {
        let Some(sequence) = &mut self.sequences[key] else {
            return 0;
        };
        let positions = sequence.computed + 1;
        let need = self.pages.pages_for(positions + guesses);
        while sequence.pages.len() < need {
            let Some(page) = self.pages.take_free() else {
                break;
            };
            sequence.pages.push(page);
        }
        let held = sequence.pages.len() * self.pages.page_tokens();
        guesses.min(held - positions)
    }

    /// Puts a planned span into the batch, its guesses after it, unless its sequence has ended
    /// since. Returns for how many of its rows there will be logits.
    pub(crate) fn put(&self, span: &Planned, batch: &mut Batch) -> Option<usize> {
        let sequence = self.sequences[span.key].as_ref()?;
        let run = &sequence.drafts.run;
        if !run.is_empty() {
            batch.push(run, span.positions.start, &sequence.pages, Want::All);
            return Some(run.len());
        }
        let tokens = &sequence.tokens[span.positions.clone()];
        let want = match (&sequence.pool, span.draws) {
            (Some(pool), last) => pool.want(last),
            (None, true) => Want::Last,
            (None, false) => Want::None,
        };
        batch.push(tokens, span.positions.start, &sequence.pages, want);
        Some(want.logit_rows(tokens.len()))
    }

    /// Takes a sequence's guesses back before they are computed (again). Returns whether it had any.
    pub(crate) fn forget_guesses(&mut self, key: usize) -> bool {
        let Some(sequence) = &mut self.sequences[key] else {
            return false;
        };
        let had = !sequence.drafts.run.is_empty();
        sequence.drafts.clear();
        had
    }

    /// Rows of guesses since the step's head.
    pub(crate) fn drafted(&self) -> usize {
        self.drafted
    }

    /// Of a run so many tokens were drawn as they stood in it. `progress` is its request's, which may be
    /// over.
    pub(super) fn verified(&mut self, key: usize, progress: &Progress, run: &Verified) {
        let &Verified {
            drafted, accepted, ..
        } = run;
        self.drafted += drafted;
        match run.forced {
            true => count(&self.inbox.stats.tokens_forced, accepted),
            false => {
                count(&self.inbox.stats.tokens_drafted, drafted);
                count(&self.inbox.stats.tokens_accepted, accepted);
                progress.add_guesses(drafted, accepted);
            }
        }
        let Some(sequence) = &mut self.sequences[key] else {
            return;
        };
        if let Some(common) = &self.requests[sequence.slot] {
            self.accounts
                .charge(common.share, DECODE_COST * accepted as u64);
        }
        if !run.forced {
            let tried = drafted.min(accepted + 1);
            self.worth
                .verified(&mut sequence.drafts.guess, tried, accepted);
        }
        if self.small.is_some() && !run.forced {
            // All guesses but the last were computed; those that were right count from now on.
            sequence.drafts.table.computed += accepted.min(drafted - 1);
        }
        let keep = self.pages.pages_for(sequence.computed);
        while sequence.pages.len() > keep
            && let Some(page) = sequence.pages.pop()
        {
            self.pages.release(page);
        }
    }
}
