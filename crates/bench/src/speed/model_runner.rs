//! A model with allocated and filled KV pages, ready for timing.

use super::options::SpeedError;
use super::speed_test::SpeedTest;
use super::test_plan::TestPlan;
use cpu::{Model, PAGE_TOKENS};
use model::{Batch, Forward, SpanStates, Want};

/// Tokens of one forward pass; longer prompts are split into chunks.
pub(super) const CHUNK_TOKENS: usize = 512;
/// States of a sequence of a model with recurrent layers: one is read, and one is written.
pub(super) const STATES_EACH: usize = 2;
/// Token ids used in tests; every vocabulary has as many.
const IDS: usize = 256;

/// A model and the batch of its forward passes.
pub(super) struct ModelRunner {
    model: Model,
    batch: Batch,
    ids: usize,
}

impl ModelRunner {
    /// Creates a runner for a model with pages for the largest test of `plan`, and fills all pages.
    pub(super) fn new(mut model: Model, plan: &TestPlan) -> Result<Self, SpeedError> {
        let ids = model.dims().vocab.min(IDS);
        let filled = plan.max_of(SpeedTest::positions).min(CHUNK_TOKENS);
        let mut batch = Batch::default();
        let tokens: Vec<u32> = (0..filled).map(|i| token_id(i, ids)).collect();
        let sample = filled.div_ceil(PAGE_TOKENS);
        batch.push(&tokens, 0, &page_range(0, sample), Want::Last);
        batch.set_states(Some(SpanStates::alternating(0, 0, 0)));
        model.forward(&batch).map_err(SpeedError::of)?;
        // Speed does not depend on the values of keys and values, but it does depend on whether their memory
        // was ever written.
        for page in sample..model.dims().pages {
            model.copy_page((page % sample) as u32, page as u32);
        }
        Ok(Self { model, batch, ids })
    }

    /// One step before the measurement, so that code and scratch memory are warm.
    pub(super) fn warm_up(&mut self, test: SpeedTest) -> Result<(), SpeedError> {
        match test {
            SpeedTest::Prompt { tokens, context } => {
                self.run_prompt(tokens.min(CHUNK_TOKENS), context)
            }
            SpeedTest::Decode { batch, context, .. } => self.run_decode(1, batch, context),
        }
    }

    /// The measured work of a test.
    pub(super) fn run_test(&mut self, test: SpeedTest) -> Result<(), SpeedError> {
        match test {
            SpeedTest::Prompt { tokens, context } => self.run_prompt(tokens, context),
            SpeedTest::Decode {
                tokens,
                batch,
                context,
            } => self.run_decode(tokens, batch, context),
        }
    }

    fn run_prompt(&mut self, tokens: usize, context: usize) -> Result<(), SpeedError> {
        let table = page_range(0, (context + tokens).div_ceil(PAGE_TOKENS));
        let (mut done, mut turn) = (0, 0);
        while done < tokens {
            let count = (tokens - done).min(CHUNK_TOKENS);
            let ids: Vec<u32> = (done..done + count)
                .map(|i| token_id(i, self.ids))
                .collect();
            let last = done + count == tokens;
            let want = if last { Want::Last } else { Want::None };
            self.batch.clear();
            self.batch.push(&ids, context + done, &table, want);
            let states = SpanStates::alternating(0, turn, context + done);
            self.batch.set_states(Some(states));
            turn += 1;
            self.model.forward(&self.batch).map_err(SpeedError::of)?;
            done += count;
        }
        Ok(())
    }

    fn run_decode(&mut self, steps: usize, batch: usize, context: usize) -> Result<(), SpeedError> {
        let each = (context + steps).div_ceil(PAGE_TOKENS);
        let tables: Vec<Vec<u32>> = (0..batch).map(|i| page_range(i * each, each)).collect();
        for step in 0..steps {
            self.batch.clear();
            for (i, table) in tables.iter().enumerate() {
                let id = token_id(i + step, self.ids);
                self.batch.push(&[id], context + step, table, Want::Last);
                let states = SpanStates::alternating(i, step, context + step);
                self.batch.set_states(Some(states));
            }
            self.model.forward(&self.batch).map_err(SpeedError::of)?;
        }
        Ok(())
    }
}

fn token_id(i: usize, ids: usize) -> u32 {
    (i * 37 % ids) as u32
}

fn page_range(first: usize, count: usize) -> Vec<u32> {
    (first..first + count).map(|page| page as u32).collect()
}
