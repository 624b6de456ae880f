//! A model that takes its time: the fake one, whose steps last as long as is said.

use super::now;
use engine::fake::{FakeConfig, FakeModel};
use model::{Batch, Dims, Forward, ForwardError, PageId};
use std::time::Duration;

/// What a step takes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub step: Duration,
    /// For each sequence that generates.
    pub sequence: Duration,
    /// For each token of a prompt.
    pub prompt_token: Duration,
}

/// The model. It sleeps, so the processors are the server's and the clients'.
pub struct Paced {
    inner: FakeModel,
    pace: Pace,
}

impl Paced {
    pub fn new(config: FakeConfig, pace: Pace) -> Self {
        Self {
            inner: FakeModel::new(config),
            pace,
        }
    }
}

impl Forward for Paced {
    fn dims(&self) -> Dims {
        self.inner.dims()
    }

    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        let (mut generating, mut prompts) = (0, 0);
        for span in batch.spans() {
            match span.tokens.len() {
                1 => generating += 1,
                tokens => prompts += tokens as u32,
            }
        }
        let pace = self.pace;
        let until = now() + pace.step + pace.sequence * generating + pace.prompt_token * prompts;
        let logits = self.inner.forward(batch);
        while let Some(left) = until.checked_duration_since(now()) {
            std::thread::park_timeout(left);
        }
        logits
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.inner.copy_page(from, to);
    }
}
