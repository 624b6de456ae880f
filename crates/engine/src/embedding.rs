//! Embeddings: a prompt as one vector, pooled from the prompt's hidden states.
//!
//! A request for an embedding is scheduled like any other and ends, without a token, when the prompt is
//! computed. Such a request uses no pages of the prefix cache, because every hidden state is needed, and adds
//! none. Rows are added one by one in the order of positions, so chunking the prompt differently does not
//! change a bit.

use model::Want;
use std::sync::{Arc, OnceLock};
use stream::FailCode;

/// How hidden states become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The last token's, which attends to all others.
    Last,
    /// The mean.
    Mean,
    /// The first token's, of a model whose tokens attend to all others; see [`model::Capabilities::is_causal`].
    First,
}

/// A request for an embedding instead of tokens.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// Pooling of the hidden states.
    pub pooling: Pooling,
    /// Receives the vector, `(hidden_dim)`, not normalized, before the log ends with `Stop(Eos)`.
    pub vector: Arc<OnceLock<Box<[f32]>>>,
}

/// Sums of the hidden states computed so far.
pub(crate) struct EmbeddingPool {
    embedding: Embedding,
    /// `(hidden_dim)`; allocated with the first rows.
    sums: Vec<f64>,
    rows: usize,
}

impl EmbeddingPool {
    pub(crate) fn new(embedding: Embedding) -> Self {
        Self {
            embedding,
            sums: Vec::new(),
            rows: 0,
        }
    }

    /// What the vector is for.
    pub(crate) fn embedding(&self) -> &Embedding {
        &self.embedding
    }

    /// The rows that a span of the prompt is computed for; `is_last`: no span follows.
    pub(crate) fn wanted_rows(&self, is_last: bool) -> Want {
        match self.embedding.pooling {
            Pooling::Mean => Want::AllHidden,
            Pooling::Last if is_last => Want::LastHidden,
            Pooling::Last => Want::None,
            Pooling::First => Want::FirstHidden,
        }
    }

    /// Adds rows of `dim` entries, of a span that begins at `position`. A span at position 0 discards earlier rows:
    /// the prompt is computed again after a preemption.
    pub(crate) fn add_rows(&mut self, position: usize, rows: &[f32], dim: usize) {
        if position == 0 || self.rows == 0 {
            self.sums.clear();
            self.sums.resize(dim, 0.0);
            self.rows = 0;
        }
        if dim == 0 {
            return;
        }
        for row in rows.chunks_exact(dim) {
            self.rows += 1;
            for (sum, &entry) in self.sums.iter_mut().zip(row) {
                *sum += f64::from(entry);
            }
        }
    }

    /// Sets the vector.
    ///
    /// # Errors
    /// No rows were added, or an entry is NaN or infinite.
    pub(crate) fn finish(&self) -> Result<(), FailCode> {
        let rows = self.rows as f64;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a mean of f32 is within their range"
        )]
        let mean = |sum: &f64| (sum / rows) as f32;
        let vector: Box<[f32]> = self.sums.iter().map(mean).collect();
        if vector.iter().any(|entry| !entry.is_finite()) {
            return Err(FailCode::NotFinite);
        }
        let is_new = !vector.is_empty() && self.embedding.vector.set(vector).is_ok();
        is_new.then_some(()).ok_or(FailCode::Inference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(pooling: Pooling, spans: &[(usize, &[f32])]) -> Option<Vec<f32>> {
        let vector = Arc::new(OnceLock::new());
        let mut pool = EmbeddingPool::new(Embedding {
            pooling,
            vector: Arc::clone(&vector),
        });
        for (position, rows) in spans {
            pool.add_rows(*position, rows, 2);
        }
        let finished = pool.finish().ok();
        finished.map(|()| vector.get().expect("set").to_vec())
    }

    #[test]
    fn pooled_vector_is_independent_of_chunks() {
        let rows: &[f32] = &[1.0, 10.0, 2.0, 20.0, 6.0, 60.0];
        let whole = Some(vec![3.0, 30.0]);
        assert_eq!(pooled(Pooling::Mean, &[(0, rows)]), whole);
        let cut = [(0, &rows[..2]), (1, &rows[2..])];
        assert_eq!(pooled(Pooling::Mean, &cut), whole, "however it is cut");
        let anew = [(0, &rows[2..]), (0, &rows[..2]), (1, &rows[2..])];
        assert_eq!(pooled(Pooling::Mean, &anew), whole, "after a preemption");
        assert_eq!(
            pooled(Pooling::Last, &[(2, &rows[4..])]),
            Some(vec![6.0, 60.0])
        );
        assert_eq!(pooled(Pooling::Mean, &[]), None, "of nothing");
        assert_eq!(pooled(Pooling::Mean, &[(0, &[f32::NAN, 1.0])]), None);
    }
}
