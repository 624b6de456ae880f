//! A description that is being generated.

use super::DescribeError;
use crate::keys::TokenCharge;
use crate::media::MadeDescription;
use ::stream::End;
use generate::output::collected::CollectedAnswer;
use generate::output::event::Event;
use generate::output::generation_reader::{GenerationReader, Turn};
use generate::stream_source::{StartedGeneration, StreamSource};
use std::future::poll_fn;
use std::sync::Arc;
use wire::clock;

/// A description that is being generated; the drop cancels it.
pub(super) struct InnerGeneration {
    pub(super) source: Arc<StreamSource>,
    pub(super) reader: GenerationReader,
    pub(super) charge: TokenCharge,
    /// Tokens that the key was charged.
    pub(super) charged: u64,
}

impl InnerGeneration {
    /// Reads the description to its end.
    pub(super) async fn read(
        mut self,
        prompt_tokens: u64,
    ) -> Result<MadeDescription, DescribeError> {
        let mut answer = CollectedAnswer::default();
        loop {
            let mut add = |event: Event<'_>| {
                answer.take(&event);
                true
            };
            let turn = poll_fn(|cx| self.reader.poll_turn(cx, &mut add, &mut |end| end)).await;
            self.charge_new();
            match turn {
                Turn::Open => {}
                Turn::Broken(end) => return Err(DescribeError::of_end(end)),
                Turn::Ended => {
                    return Ok(MadeDescription {
                        text: answer.text().into_owned(),
                        is_cut: answer.end == Some(End::Length),
                        prompt_tokens,
                        completion_tokens: self.charged,
                    });
                }
            }
        }
    }

    fn charge_new(&mut self) {
        let tokens = self.reader.tokens_read();
        let new = tokens.saturating_sub(self.charged);
        self.charged = tokens;
        if new > 0 {
            self.charge.charge(new, clock::now());
        }
    }
}

impl Drop for InnerGeneration {
    fn drop(&mut self) {
        let Some(StartedGeneration {
            engine, requests, ..
        }) = self.source.started()
        else {
            return;
        };
        for request in requests {
            // Without effect on a request that has ended.
            engine.cancel(request.id);
        }
    }
}
