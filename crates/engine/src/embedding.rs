//! A prompt as one vector: its hidden states, pooled.
//!
//! A request for an embedding is scheduled like any other and ends, without a token, when its prompt is
//! computed. Nothing is taken from the prefix cache for it, because every hidden state is needed, and
//! nothing is put there. Rows are added up one by one in the order of positions, so the way the prompt was cut
//! does not change a bit.

use model::Want;
use std::sync::{Arc, OnceLock};
use stream::FailCode;

/// How hidden states become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// That of the last token, which has seen all others.
    Last,
    /// Their mean.
    Mean,
}

/// What is asked for instead of tokens.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// How it is made.
    pub pooling: Pooling,
    /// Where it is put, `(hidden_dim)`, not normed, before the log says `Stop(Eos)`.
    pub vector: Arc<OnceLock<Box<[f32]>>>,
}

/// An embedding that is being made.
pub(crate) struct Pool {
    embedding: Embedding,
    /// Allocated with the first rows. (hidden_dim)
    sums: Vec<f64>,
    rows: usize,
}

impl Pool {
    pub(crate) fn new(embedding: Embedding) -> Self {
        Self {
            embedding,
            sums: Vec::new(),
            rows: 0,
        }
    }

    /// What a span of the prompt is computed for; `last`: none follows it.
    pub(crate) fn want(&self, last: bool) -> Want {
        match self.embedding.pooling {
            Pooling::Mean => Want::AllHidden,
            Pooling::Last if last => Want::LastHidden,
            Pooling::Last => Want::None,
        }
    }

    /// Takes rows of `dim` entries, of a span that begins at `position`. One that begins anew does so after
    /// a preemption.
    pub(crate) fn take(&mut self, position: usize, rows: &[f32], dim: usize) {
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

    /// Hands it over.
    ///
    /// # Errors
    /// Nothing was taken, or an entry is NaN or infinite.
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
        let mut pool = Pool::new(Embedding {
            pooling,
            vector: Arc::clone(&vector),
        });
        for (position, rows) in spans {
            pool.take(*position, rows, 2);
        }
        let finished = pool.finish().ok();
        finished.map(|()| vector.get().expect("set").to_vec())
    }

    #[test]
    fn rows_become_one() {
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
