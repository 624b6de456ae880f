//! A fake model that follows a script, loosely: at each position of the answer the script's token is likely.

use engine::fake::{FakeConfig, FakeModel};
use model::{Batch, Capabilities, Dims, Forward, ForwardError, PageId, Want};
use std::sync::{Arc, OnceLock};

/// Logit of the script's token; others have at most 8 without a habit.
const LIKELY: f32 = 13.0;

/// The model.
pub(crate) struct Scripted {
    fake: FakeModel,
    vocab: usize,
    script: Vec<u32>,
    /// Length of the prompt, where the script begins; unset: no script.
    prompt_len: Arc<OnceLock<usize>>,
}

impl Scripted {
    pub(crate) fn new(
        config: FakeConfig,
        script: Vec<u32>,
        prompt_len: Arc<OnceLock<usize>>,
    ) -> Self {
        Self {
            vocab: config.dims.vocab,
            fake: FakeModel::new(config),
            script,
            prompt_len,
        }
    }
}

impl Forward for Scripted {
    fn dims(&self) -> Dims {
        self.fake.dims()
    }

    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        let logits = self.fake.forward(batch)?;
        let Some(&prompt_len) = self.prompt_len.get() else {
            return Ok(logits);
        };
        let positions = batch.spans().flat_map(|span| {
            let end = span.position + span.tokens.len();
            match span.want {
                Want::Last => end - 1..end,
                Want::All => span.position..end,
                Want::None | Want::LastHidden | Want::AllHidden | Want::FirstHidden => end..end,
            }
        });
        for (row, position) in logits.chunks_mut(self.vocab).zip(positions) {
            let at = (position + 1).checked_sub(prompt_len);
            if let Some(&next) = at.and_then(|at| self.script.get(at)) {
                row[next as usize] = LIKELY;
            }
        }
        Ok(logits)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            adapters: self.fake.capabilities().adapters,
            ..Capabilities::LOGITS
        }
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        self.fake.copy_page(from, to);
    }
}
