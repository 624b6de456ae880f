//! The encoder of the fake model: rows that are a function of the input, given after some units.
//!
//! A row that is a vector counts as a token that is a hash of the vector; one with other positions on axes than its own as a hash of these, too.
//! So a vector or a position that is wrong gives wrong tokens. Rows that see each other are in [`super::blocks`].

use super::{FakeModel, mix};
use model::{
    Batch, DeviceFault, Encode, EncodeError, EncoderDims, EncoderInput, ForwardError, RowAdditions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Elements of a row.
pub(super) const ROW_WIDTH: usize = 3;

/// An input of the fake encoder.
#[derive(Clone, Copy, Debug)]
pub struct FakeInput {
    /// Equal seeds give equal rows.
    pub seed: u64,
    /// Rows.
    pub rows: usize,
    /// Units that the encoding takes.
    pub units: usize,
    /// How the encoding fails.
    pub fault: Option<EncodeFault>,
}

/// How an encoding fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeFault {
    /// The input is refused.
    Refused,
    /// The last unit panics.
    Panic,
    /// The last unit reports a row that is not finite.
    NotFinite,
    /// An element of the rows is NaN.
    NotANumber,
    /// There is a row too few.
    TooFew,
    /// The device fails in the last unit, and has to be opened again.
    Device,
}

/// Properties of the fake encoder.
#[derive(Clone, Debug)]
pub struct FakeEncoderConfig {
    /// Rows of an input at most.
    pub rows_max: usize,
    /// As [`model::Capabilities::axes`].
    pub axes: bool,
    /// Units of each block, where rows of an input see each other; 0: they do not.
    pub block_units: usize,
    /// Costs of units, of which the next one has the one after; the last is followed by the first.
    pub costs: &'static [u64],
    /// Calls of the encoder so far.
    pub log: EncoderLog,
}

/// Calls of a fake model's encoder.
#[derive(Clone, Debug, Default)]
pub struct EncoderLog {
    counts: Arc<[AtomicU64; 6]>,
}

impl EncoderLog {
    /// Encodings that were begun.
    pub fn begun(&self) -> u64 {
        self.counts[0].load(Ordering::Relaxed)
    }

    /// Units that were computed.
    pub fn units(&self) -> u64 {
        self.counts[1].load(Ordering::Relaxed)
    }

    /// Encodings that were finished.
    pub fn finished(&self) -> u64 {
        self.counts[2].load(Ordering::Relaxed)
    }

    /// Blocks that were begun.
    pub fn blocks_begun(&self) -> u64 {
        self.counts[3].load(Ordering::Relaxed)
    }

    /// Units of blocks that were computed.
    pub fn block_units(&self) -> u64 {
        self.counts[4].load(Ordering::Relaxed)
    }

    /// Cost of all units that were computed.
    pub fn cost(&self) -> u64 {
        self.counts[5].load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, what: usize) {
        self.counts[what].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_cost(&self, cost: u64) {
        self.counts[5].fetch_add(cost, Ordering::Relaxed);
    }
}

pub(super) struct FakeEncoder {
    pub(super) config: FakeEncoderConfig,
    /// The input that is being encoded, and its units that are left.
    current: Option<(FakeInput, usize)>,
    rows: Vec<f32>,
}

impl FakeEncoder {
    pub(super) fn taken(&self) -> RowAdditions {
        RowAdditions {
            vectors: true,
            axes: self.config.axes,
        }
    }

    /// Cost of the next unit.
    fn next_cost(&self) -> u64 {
        let (costs, left) = (self.config.costs, self.current.map_or(0, |(_, left)| left));
        costs.get(left % costs.len().max(1)).map_or(1, |&cost| cost)
    }

    /// Drops what is being encoded.
    pub(super) fn lose(&mut self) {
        self.current = None;
    }
}

impl FakeModel {
    /// This model with an encoder.
    pub fn encoding(self, config: FakeEncoderConfig) -> Self {
        Self {
            encoder: Some(FakeEncoder {
                config,
                current: None,
                rows: Vec::new(),
            }),
            ..self
        }
    }

    /// Checks rows that are no tokens.
    pub(super) fn check_rows(&self, batch: &Batch) -> Result<(), ForwardError> {
        let taken = self.encoder.as_ref().map(FakeEncoder::taken);
        batch.check_additions(taken.unwrap_or(RowAdditions::NONE))?;
        let has_blocks = self.block_units() > 0;
        if has_blocks && batch.vector_rows().iter().any(|run| run.rows.len() > 1) {
            return Err(ForwardError::BadBatch(
                "rows that see each other are a batch of their own",
            ));
        }
        batch.check_row_inputs(ROW_WIDTH)
    }

    /// Writes what each row of a batch counts as.
    pub(super) fn read_rows(batch: &Batch, rows: &mut Vec<u32>) {
        rows.clear();
        rows.extend_from_slice(batch.tokens());
        for (row, counted) in rows.iter_mut().enumerate() {
            if let Some(vector) = batch.vector(row) {
                let bits = vector.iter().map(|entry| u64::from(entry.to_bits()));
                *counted = 1 << 31 | (bits.fold(1, mix) >> 33) as u32;
            }
        }
        for span in batch.ranges().iter().filter(|span| !span.axes.is_empty()) {
            let axes = &batch.axes()[span.axes.clone()];
            let rows = rows[span.tokens.clone()].iter_mut().zip(axes);
            for (position, (counted, axes)) in (span.position..).zip(rows) {
                // A row without axes has its position on each.
                if *axes != [position as u32; 3] {
                    let hash = axes.iter().fold(u64::from(*counted), |hash, &axis| {
                        mix(hash, u64::from(axis) + 1)
                    });
                    *counted = 1 << 31 | (hash >> 33) as u32;
                }
            }
        }
    }
}

impl Encode for FakeModel {
    fn dims(&self) -> EncoderDims {
        let rows_max = self.encoder.as_ref().map_or(0, |e| e.config.rows_max);
        EncoderDims {
            row_width: ROW_WIDTH,
            rows_max,
        }
    }

    fn begin(&mut self, input: &EncoderInput) -> Result<usize, EncodeError> {
        let Some(encoder) = &mut self.encoder else {
            return Err(EncodeError::BadInput("no encoder"));
        };
        encoder.current = None;
        let input = input.downcast_ref::<FakeInput>();
        let input = *input.ok_or(EncodeError::BadInput("an input of another encoder"))?;
        encoder.config.log.count(0);
        if input.fault == Some(EncodeFault::Refused) {
            return Err(EncodeError::BadInput("a simulated refusal"));
        }
        encoder.current = Some((input, input.units.max(1)));
        Ok(input.units.max(1))
    }

    fn next_cost(&self) -> u64 {
        self.encoder.as_ref().map_or(1, FakeEncoder::next_cost)
    }

    fn advance(&mut self) -> Result<Option<&[f32]>, EncodeError> {
        if let Some(late) = &self.late {
            late.check_idle();
        }
        if self.is_lost {
            return Err(EncodeError::Device(DeviceFault::Lost));
        }
        let current = self.encoder.as_ref().and_then(|encoder| encoder.current);
        if current
            .is_some_and(|(input, left)| left == 1 && input.fault == Some(EncodeFault::Device))
        {
            self.lose_device(DeviceFault::Failed);
            return Err(EncodeError::Device(DeviceFault::Failed));
        }
        let nothing = EncodeError::BadInput("nothing is being encoded");
        let encoder = self.encoder.as_mut().ok_or(nothing)?;
        let cost = encoder.next_cost();
        let (input, left) = encoder.current.as_mut().ok_or(nothing)?;
        encoder.config.log.count(1);
        encoder.config.log.count_cost(cost);
        *left -= 1;
        if *left > 0 {
            return Ok(None);
        }
        let input = *input;
        encoder.current = None;
        assert!(
            input.fault != Some(EncodeFault::Panic),
            "a simulated panic in an encoder"
        );
        if input.fault == Some(EncodeFault::NotFinite) {
            return Err(EncodeError::NotFinite);
        }
        let rows = match input.fault {
            Some(EncodeFault::TooFew) => input.rows - 1,
            _ => input.rows,
        };
        encoder.rows.clear();
        encoder
            .rows
            .extend((0..rows * ROW_WIDTH).map(|at| element(input.seed, at)));
        if input.fault == Some(EncodeFault::NotANumber) {
            encoder.rows[0] = f32::NAN;
        }
        encoder.config.log.count(2);
        Ok(Some(&encoder.rows))
    }
}

fn element(seed: u64, at: usize) -> f32 {
    super::unit(mix(mix(5, seed), at as u64)) - 0.5
}
