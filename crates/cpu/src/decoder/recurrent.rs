//! Recurrent layers, in place of attention: their states and their workspace.

use super::scratch::Buffer;
use kernels::{Convolution, Isa, Pool, ScanPlan, ScanRule, ScanShape, StateStore, causal_conv};
use model::{Batch, ForwardError, SpanStates, SpanView};
use weights::config::{RecurrentConfig, RecurrentPart};

/// States and workspace of the recurrent layers, allocated once.
pub(super) struct RecurrentScratch {
    pub(super) common: CommonScratch,
    scan: Option<ScanScratch>,
    /// Gates and input of a gated convolution (3 * dim), in a model that has it.
    pub(super) projected: Buffer,
}

/// States and workspace of all kinds of recurrent layers.
pub(super) struct CommonScratch {
    /// Of each layer of the model: its number among the recurrent ones.
    pub(super) numbers: Vec<usize>,
    pub(super) plan: ScanPlan,
    pub(super) store: StateStore,
    /// Input of the convolution, and what it gives (conv_cols).
    pub(super) input: Buffer,
    pub(super) mixed: Buffer,
}

impl CommonScratch {
    /// Convolves `input` to `mixed`, in layer `index` of the model, and writes the convolution's part of the states.
    pub(super) fn convolve(
        &mut self,
        isa: Isa,
        pool: &mut Pool,
        (index, rows): (usize, usize),
        convolution: Convolution<'_>,
    ) {
        let store = (&mut self.store, self.numbers[index]);
        let (input, mixed) = (self.input.head(rows), self.mixed.head_mut(rows));
        causal_conv(isa, pool, &self.plan, store, convolution, input, mixed);
    }
}

/// Workspace of layers with a scan.
pub(super) struct ScanScratch {
    pub(super) heads: ScanShape,
    /// (value_cols).
    pub(super) gate: Buffer,
    pub(super) out: Buffer,
    /// (value_heads).
    pub(super) step: Buffer,
    /// (value_heads), for the delta rule.
    pub(super) rate: Buffer,
    /// Factor and share of each head (2 * value_heads).
    pub(super) gates: Buffer,
}

impl ScanScratch {
    fn new(heads: ScanShape, rows: usize) -> Self {
        let rate_rows = if heads.rule == ScanRule::Delta {
            rows
        } else {
            0
        };
        Self {
            heads,
            gate: Buffer::new(rows, heads.value_cols()),
            out: Buffer::new(rows, heads.value_cols()),
            step: Buffer::new(rows, heads.value_heads),
            rate: Buffer::new(rate_rows, heads.value_heads),
            gates: Buffer::new(rows, 2 * heads.value_heads),
        }
    }

    fn bytes(&self) -> usize {
        let buffers = [&self.gate, &self.out, &self.step, &self.rate, &self.gates];
        buffers.map(Buffer::bytes).iter().sum()
    }
}

impl RecurrentScratch {
    pub(super) fn new(config: &RecurrentConfig, states: usize, rows: usize) -> Self {
        let number = |layer: usize| config.layers[..layer].iter().filter(|l| **l).count();
        let common = CommonScratch {
            numbers: (0..config.layers.len()).map(number).collect(),
            plan: ScanPlan::new(states, rows),
            store: StateStore::new(config.state_shape(), states),
            input: Buffer::new(rows, config.conv_cols()),
            mixed: Buffer::new(rows, config.conv_cols()),
        };
        let (scan, projected) = match config.part {
            RecurrentPart::Scan(heads) => (Some(ScanScratch::new(heads, rows)), 0),
            RecurrentPart::Nothing(cols) => (None, 3 * cols),
        };
        Self {
            common,
            scan,
            projected: Buffer::new(rows, projected),
        }
    }

    /// The workspace of layers with a scan.
    pub(super) fn scan(&mut self) -> Option<(&mut CommonScratch, &mut ScanScratch)> {
        Some((&mut self.common, self.scan.as_mut()?))
    }

    /// Number of states.
    pub(super) fn states(&self) -> usize {
        self.common.store.states()
    }

    /// Bytes of the states when all are used, and resident bytes of the workspace.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let common = &self.common;
        let buffers = [&common.input, &common.mixed, &self.projected];
        let buffers: usize = buffers.map(Buffer::bytes).iter().sum();
        let scan = self.scan.as_ref().map_or(0, ScanScratch::bytes);
        (common.store.bytes(), buffers + scan)
    }

    /// Reads which states a batch uses; rejects a batch that violates a rule before changing any state.
    pub(super) fn read(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        self.common.plan.clear();
        for span in batch.spans() {
            let states = span.states.ok_or("a span has no states");
            let pushed = states.and_then(|states| self.push(&span, &states));
            pushed.map_err(ForwardError::BadBatch)?;
        }
        Ok(())
    }

    fn push(&mut self, span: &SpanView<'_>, states: &SpanStates) -> Result<(), &'static str> {
        if states.before.is_some() != (span.position > 0) {
            return Err("a state precedes all tokens but the first");
        }
        let rows = span.tokens.len();
        let written = states.written(rows).map(|kept| (kept.tokens, kept.state));
        self.common.plan.push(rows, states.before, written)
    }
}

/// `ln(1 + e^x)`, which is `x` where the one does not count.
pub(super) fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}
