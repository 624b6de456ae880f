//! A model with its pages laid out and filled, ready to be timed.

use super::options::SpeedError;
use super::rows::Rows;
use super::test::Test;
use model::{Batch, Forward, Model, PAGE_TOKENS, Want};

/// Rows of one forward pass: longer prompts come in chunks of this.
pub(super) const CHUNK_ROWS: usize = 512;
/// Ids that are asked for; every vocabulary has as many.
const IDS: usize = 256;

/// The model and the one batch it is given.
pub(super) struct Desk {
    model: Model,
    batch: Batch,
    ids: usize,
}

impl Desk {
    /// Takes a model whose pages hold the largest of `rows`, and fills them all.
    pub(super) fn new(mut model: Model, rows: &Rows) -> Result<Self, SpeedError> {
        let ids = model.dims().vocab.min(IDS);
        let filled = rows.most(Test::positions).min(CHUNK_ROWS);
        let mut batch = Batch::default();
        let tokens: Vec<u32> = (0..filled).map(|i| id(i, ids)).collect();
        let sample = filled.div_ceil(PAGE_TOKENS);
        batch.push(&tokens, 0, &pages(0, sample), Want::Last);
        model.forward(&batch).map_err(SpeedError::of)?;
        // Speed does not depend on what keys and values say, but it does on whether their memory
        // was ever written.
        for page in sample..model.dims().pages {
            model.copy_page((page % sample) as u32, page as u32);
        }
        Ok(Self { model, batch, ids })
    }

    /// One step before the clock starts, so that code and scratch are warm.
    pub(super) fn warm(&mut self, test: Test) -> Result<(), SpeedError> {
        match test {
            Test::Prompt { tokens, context } => self.prompt(tokens.min(CHUNK_ROWS), context),
            Test::Decode { batch, context, .. } => self.decode(1, batch, context),
        }
    }

    /// The timed work.
    pub(super) fn run(&mut self, test: Test) -> Result<(), SpeedError> {
        match test {
            Test::Prompt { tokens, context } => self.prompt(tokens, context),
            Test::Decode {
                tokens,
                batch,
                context,
            } => self.decode(tokens, batch, context),
        }
    }

    fn prompt(&mut self, tokens: usize, context: usize) -> Result<(), SpeedError> {
        let table = pages(0, (context + tokens).div_ceil(PAGE_TOKENS));
        let mut done = 0;
        while done < tokens {
            let count = (tokens - done).min(CHUNK_ROWS);
            let ids: Vec<u32> = (done..done + count).map(|i| id(i, self.ids)).collect();
            let last = done + count == tokens;
            let want = if last { Want::Last } else { Want::None };
            self.batch.clear();
            self.batch.push(&ids, context + done, &table, want);
            self.model.forward(&self.batch).map_err(SpeedError::of)?;
            done += count;
        }
        Ok(())
    }

    fn decode(&mut self, steps: usize, batch: usize, context: usize) -> Result<(), SpeedError> {
        let each = (context + steps).div_ceil(PAGE_TOKENS);
        let tables: Vec<Vec<u32>> = (0..batch).map(|i| pages(i * each, each)).collect();
        for step in 0..steps {
            self.batch.clear();
            for (i, table) in tables.iter().enumerate() {
                let id = id(i + step, self.ids);
                self.batch.push(&[id], context + step, table, Want::Last);
            }
            self.model.forward(&self.batch).map_err(SpeedError::of)?;
        }
        Ok(())
    }
}

fn id(i: usize, ids: usize) -> u32 {
    (i * 37 % ids) as u32
}

fn pages(first: usize, count: usize) -> Vec<u32> {
    (first..first + count).map(|page| page as u32).collect()
}
