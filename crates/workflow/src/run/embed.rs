//! Embeddings of prompts.

use super::machine::Next;
use super::{Run, Trouble};
use crate::model::SubmittedRequest;
use crate::program::{Op, Slot};
use crate::value::Value;
use engine::Token;
use generate::embedding::EmbeddingVector;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use stream::{End, Read};

/// An embedding that the engine computes.
pub(super) struct Embedding {
    request: SubmittedRequest,
    vector: EmbeddingVector,
}

impl Embedding {
    /// Ready when the embedding's log has ended.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let mut nothing = [Token::default()];
        match ready!(self.request.reader.poll_read(cx, &mut nothing)) {
            Read::Ended(end) => Poll::Ready(end),
            Read::Items(_) | Read::Empty => Poll::Ready(End::Lost), // the log stays empty
        }
    }
}

impl Run {
    /// The result of `forward`: submits the request first, then waits for the end.
    pub(super) fn embed(&mut self, op: &Op, cx: &mut Context<'_>) -> Poll<Result<Next, Trouble>> {
        let Op::Forward {
            model,
            input,
            output,
            normalize,
        } = op
        else {
            return Poll::Ready(Ok(Next::On));
        };
        let mut embedding = match self.embedding.take() {
            Some(embedding) => embedding,
            None => match self.ask_embedding(*model, *input) {
                Ok(embedding) => embedding,
                Err(why) => return Poll::Ready(Err(why)),
            },
        };
        let Poll::Ready(end) = embedding.poll(cx) else {
            self.embedding = Some(embedding);
            return Poll::Pending;
        };
        let (End::Stop(_), Some(vector)) = (end, embedding.vector.get()) else {
            return Poll::Ready(Err(Trouble::ended(end)));
        };
        let mut vector = vector.to_vec();
        let done = self.flag(normalize).and_then(|normalize| {
            if normalize {
                to_unit_length(&mut vector);
            }
            self.set(*output, Value::Tensor(Arc::new(vector)))
        });
        Poll::Ready(done.map(|()| Next::On))
    }

    fn ask_embedding(&mut self, model: usize, input: Slot) -> Result<Embedding, Trouble> {
        let ids = self.tokens_var(input)?;
        if ids.is_empty() {
            return Err(Trouble::program("is given no token"));
        }
        self.expect_vocabulary(model, &ids)?;
        let vector = EmbeddingVector::default();
        let terms = self.request_terms(1);
        let request = self.models[model].request_embedding(&ids, &vector, terms)?;
        self.prefilled += ids.len() as u64;
        Ok(Embedding { request, vector })
    }
}

/// Normalizes a vector; the zero vector stays.
#[expect(clippy::cast_possible_truncation, reason = "entries of at most 1")]
fn to_unit_length(vector: &mut [f32]) {
    let squares = vector.iter().map(|x| f64::from(*x).powi(2));
    let length = squares.sum::<f64>().sqrt();
    if length > 0.0 {
        for x in vector {
            *x = (f64::from(*x) / length) as f32;
        }
    }
}
