//! A model for tests: no weights, but a real KV cache.
//!
//! The next token is a function of the content of the sequence's pages, which depends on adapters, so that a page
//! given to the wrong sequence, freed too early or not copied gives wrong tokens. Two spans that
//! write the same slot in one batch, and rows beyond the page table, are reported as bad batches.
//!
//! In a [`FakeModel::recurrent`], a token depends on a state as well, as in a model with recurrent layers ([`states`]). A
//! [`FakeModel::predicting`] has an MTP head that guesses the token of habit. A [`FakeModel::late`] runs ahead. A
//! [`FakeModel::encoding`] takes rows that are vectors ([`encoder`]), which may see each other ([`blocks`]).

mod blocks;
mod encoder;
mod fault;
mod gate;
mod late;
mod states;

pub use encoder::{EncodeFault, EncoderLog, FakeEncoderConfig, FakeInput};
pub use fault::{Fault, FaultAt, FaultKind};
pub use gate::Gate;
pub use late::LateLog;

use blocks::FakeBlock;
use encoder::FakeEncoder;
use late::Late;
use model::{
    AdvanceBlock, Ahead, Batch, Capabilities, DeviceFault, Dims, Encode, ExportPages, Forward,
    ForwardError, PageId, Predict, Span, SpanView, VECTOR, Want,
};
use states::{FakeStates, SLOT_BYTES};
use std::ops::Range;
use std::sync::Arc;

/// The fake model.
#[derive(Default)]
pub struct FakeModel {
    config: FakeConfig,
    gate: Option<Arc<Gate>>,
    /// A hash below 2^63 of each slot's token and all tokens before, as keys and values of a real model depend
    /// on them; `(pages, page_tokens)`.
    slots: Vec<u64>,
    /// Token of each slot; 0 for a vector.
    tokens: Vec<u32>,
    /// Value of the row of each slot.
    inputs: Vec<u32>,
    /// Whether the row of each slot was in a block.
    blocked: Vec<bool>,
    /// Value of each row of the batch.
    rows: Vec<u32>,
    encoder: Option<FakeEncoder>,
    /// The block under way.
    block: Option<FakeBlock>,
    /// The call that wrote each slot last, to detect two writes in one call.
    written: Vec<u64>,
    states: FakeStates,
    logits: Vec<f32>,
    hidden: Vec<f32>,
    calls: u64,
    predicts: bool,
    /// Calls of the MTP head.
    guesses: u64,
    /// Batches in flight, if the model runs ahead.
    late: Option<Box<Late>>,
    /// Whether the device has failed and was not opened again.
    is_lost: bool,
    /// Times that the device can be opened again.
    recoveries: usize,
}

/// Adapters of the fake model: each changes the content of the slots.
pub const ADAPTERS: usize = 3;

/// Entries of a hidden state.
pub const HIDDEN_DIM: usize = 8;

/// Message of a simulated error.
const SIMULATED_ERROR: &str = "a simulated error";

/// Content of a slot that was never written, or whose pass failed.
const NOTHING: u64 = u64::MAX;

/// Content of a slot at or after a simulated NaN.
const NOT_A_NUMBER: u64 = u64::MAX - 1;

impl FakeModel {
    /// A fake model.
    pub fn new(config: FakeConfig) -> Self {
        let slots = config.dims.pages * config.dims.page_tokens;
        Self {
            slots: vec![NOTHING; slots],
            tokens: vec![0; slots],
            inputs: vec![0; slots],
            blocked: vec![false; slots],
            written: vec![0; slots],
            logits: Vec::with_capacity(config.dims.logit_rows_max * config.dims.vocab),
            recoveries: usize::MAX,
            config,
            ..Self::default()
        }
    }

    /// A fake model with this many states, as if some of its layers were recurrent.
    pub fn recurrent(config: FakeConfig, states: usize) -> Self {
        Self {
            states: FakeStates::new(states),
            ..Self::new(config)
        }
    }

    /// This model with an MTP head.
    pub fn predicting(self) -> Self {
        Self {
            predicts: true,
            ..self
        }
    }

    /// This model with a device that can be opened again so many times.
    pub fn with_recoveries(self, recoveries: usize) -> Self {
        Self { recoveries, ..self }
    }

    /// A fake model whose forward passes wait at a gate.
    pub fn gated(config: FakeConfig, gate: Arc<Gate>) -> Self {
        Self {
            gate: Some(gate),
            ..Self::new(config)
        }
    }

    fn check(&self, batch: &Batch) -> Result<(), ForwardError> {
        let dims = &self.config.dims;
        let bad = |why| Err(ForwardError::BadBatch(why));
        if batch.tokens().len() > dims.rows_max || batch.logit_rows() > dims.logit_rows_max {
            return bad("too many rows");
        }
        self.check_rows(batch)?;
        if batch
            .tokens()
            .iter()
            .any(|&token| token as usize >= dims.vocab && token != VECTOR)
        {
            return bad("no such token");
        }
        for span in batch.spans() {
            let end = span.position + span.tokens.len();
            if end > dims.context_max || end > span.pages.len() * dims.page_tokens {
                return bad("a position without a page");
            }
            if span.pages.iter().any(|&page| page as usize >= dims.pages) {
                return bad("no such page");
            }
        }
        Ok(())
    }

    /// Writes the slots of a span, whose rows count as `span.tokens`; `tokens` are those of the batch.
    fn write(
        &mut self,
        span: &SpanView<'_>,
        tokens: &[u32],
        scribble: bool,
    ) -> Result<(), ForwardError> {
        let adapted = of_adapters(span);
        for (i, (&input, &token)) in span.tokens.iter().zip(tokens).enumerate() {
            let position = span.position + i;
            let slot = self.slot(span, position);
            if std::mem::replace(&mut self.written[slot], self.calls) == self.calls {
                return Err(ForwardError::BadBatch("two rows write one slot"));
            }
            self.tokens[slot] = if token == VECTOR { 0 } else { token };
            (self.inputs[slot], self.blocked[slot]) = (input, false);
            let before = match position {
                0 => 0,
                _ => self.slots[self.slot(span, position - 1)],
            };
            self.slots[slot] = match before {
                _ if scribble => NOTHING,
                NOT_A_NUMBER => NOT_A_NUMBER,
                _ if self.makes_nan(token) => NOT_A_NUMBER,
                _ => mix(before, adapted ^ u64::from(input)) >> 1,
            };
        }
        Ok(())
    }

    fn makes_nan(&self, token: u32) -> bool {
        let fault = Fault {
            at: FaultAt::Token(token),
            kind: FaultKind::NotANumber,
        };
        self.config.faults.contains(&fault)
    }

    fn fault(&self, batch: &Batch) -> Option<(usize, FaultKind)> {
        let hit = |fault: &Fault| match fault.at {
            FaultAt::Call(call) => (call + 1 == self.calls).then_some((0, fault.kind)),
            FaultAt::Token(token) => {
                let at = batch.spans().position(|span| span.tokens.contains(&token));
                // A simulated NaN is written to the slot instead.
                at.filter(|_| fault.kind != FaultKind::NotANumber)
                    .map(|span| (span, fault.kind))
            }
            FaultAt::Guess(_) => None,
        };
        self.config.faults.iter().find_map(hit)
    }

    /// Fails a batch: the slots of the batch get undefined content.
    fn spoil(&mut self, batch: &Batch, span: usize, kind: FaultKind) -> ForwardError {
        for span in batch.spans() {
            let _ = self.write(&span, span.tokens, true);
        }
        self.states.spoil(batch);
        if kind == FaultKind::Abort {
            std::process::abort();
        }
        if let FaultKind::Device(fault) = kind {
            return self.lose_device(fault);
        }
        assert!(
            kind != FaultKind::Panic,
            "a simulated panic in the fake model"
        );
        let rows = |s: &SpanView<'_>| s.want.logit_rows(s.tokens.len());
        match batch.spans().nth(span).filter(|s| rows(s) > 0) {
            Some(_) if kind == FaultKind::NotFinite => ForwardError::NotFinite {
                row: batch.spans().take(span).map(|s| rows(&s)).sum(),
            },
            _ => ForwardError::BadBatch(SIMULATED_ERROR),
        }
    }

    /// Runs the batch: logits and hidden states are in their buffers after.
    fn compute(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        self.calls += 1;
        if self.is_lost {
            return Err(ForwardError::Device(DeviceFault::Lost));
        }
        self.check(batch)?;
        let fault = self.fault(batch);
        if let Some((span, kind)) = fault
            && !matches!(kind, FaultKind::NotANumber | FaultKind::LateDevice(_))
        {
            return Err(self.spoil(batch, span, kind));
        }
        let mut rows = std::mem::take(&mut self.rows);
        Self::read_rows(batch, &mut rows);
        let computed = self.compute_rows(batch, &rows, fault);
        self.rows = rows;
        computed
    }

    /// Computes a batch whose rows count as `rows`.
    fn compute_rows(
        &mut self,
        batch: &Batch,
        rows: &[u32],
        fault: Option<(usize, FaultKind)>,
    ) -> Result<(), ForwardError> {
        for (range, span) in batch.ranges().iter().zip(counted_spans(batch, rows)) {
            self.write(&span, &batch.tokens()[range.tokens.clone()], false)?;
        }
        self.states.advance(batch, rows)?;
        self.logits.clear();
        self.hidden.clear();
        for (at, span) in counted_spans(batch, rows).enumerate() {
            let end = span.position + span.tokens.len();
            let first = match span.want {
                Want::Last => end - 1,
                Want::All => span.position,
                Want::None | Want::LastHidden | Want::AllHidden | Want::FirstHidden => end,
            };
            let hidden = span.want.hidden_rows(span.tokens.len());
            let hidden = match span.want {
                Want::FirstHidden => span.position..span.position + hidden,
                _ => end - hidden..end,
            };
            hidden.for_each(|position| self.push_hidden(&span, position));
            let from = self.logits.len();
            (first..end).for_each(|position| self.push_row(&span, position));
            if fault == Some((at, FaultKind::NotANumber)) {
                self.logits[from..].fill(f32::NAN);
            }
        }
        Ok(())
    }

    /// Loses the content of all pages and states.
    fn lose_device(&mut self, fault: DeviceFault) -> ForwardError {
        self.is_lost = true;
        self.slots.fill(NOTHING);
        self.states.clear();
        if let Some(encoder) = &mut self.encoder {
            encoder.lose();
        }
        self.block = None;
        ForwardError::Device(fault)
    }

    fn push_row(&mut self, span: &SpanView<'_>, position: usize) {
        let mut hash = self.states.hash_at(span, position);
        for p in 0..=position {
            let slot = self.slots[self.slot(span, p)];
            if slot == NOT_A_NUMBER {
                let row = self.logits.len() + self.config.dims.vocab;
                return self.logits.resize(row, f32::NAN);
            }
            hash = mix(hash, slot);
        }
        let config = &self.config;
        let ends = unit(mix(hash, 1)) < config.eos_probability;
        let follows = self.habit_after(self.tokens[self.slot(span, position)]);
        let usual = (unit(mix(hash, u64::MAX)) < config.habit).then_some(follows);
        self.logits
            .extend((0..config.dims.vocab as u32).map(|id| match id {
                _ if id == config.eos => {
                    if ends {
                        50.0
                    } else {
                        -50.0
                    }
                }
                _ if config.tokens.contains(&id) => {
                    let habit = if usual == Some(id) { 10.0 } else { 0.0 };
                    habit + 8.0 * unit(mix(hash, u64::from(id) + 2))
                }
                _ => -30.0,
            }));
    }

    /// The token that usually follows.
    fn habit_after(&self, token: u32) -> u32 {
        let tokens = &self.config.tokens;
        ((token + 1).max(tokens.start) % tokens.end).max(tokens.start)
    }

    /// The kind of failure of this call of the MTP head.
    fn guess_fault(&self) -> Option<FaultKind> {
        let at = FaultAt::Guess(self.guesses);
        let mut faults = self.config.faults.iter();
        faults.find(|fault| fault.at == at).map(|fault| fault.kind)
    }

    /// Appends a hidden state: a function of the pages' content up to the position.
    fn push_hidden(&mut self, span: &SpanView<'_>, position: usize) {
        let slots = || (0..=position).map(|p| self.slots[self.slot(span, p)]);
        let before = self.states.hash_at(span, position);
        let (hash, broken) = (
            slots().fold(before, mix),
            slots().any(|s| s == NOT_A_NUMBER),
        );
        let entry = |at: usize| unit(mix(hash, at as u64)) - 0.5;
        self.hidden
            .extend((0..HIDDEN_DIM).map(|at| if broken { f32::NAN } else { entry(at) }));
    }

    fn slot(&self, span: &SpanView<'_>, position: usize) -> usize {
        let page_tokens = self.config.dims.page_tokens;
        span.pages[position / page_tokens] as usize * page_tokens + position % page_tokens
    }
}

impl Forward for FakeModel {
    fn dims(&self) -> Dims {
        self.config.dims
    }

    fn forward(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        if let Some(late) = &self.late {
            late.check_idle();
        }
        self.compute(batch)?;
        Ok(&mut self.logits)
    }

    fn ahead(&mut self) -> Option<&mut dyn Ahead> {
        if self.late.is_some() {
            Some(self)
        } else {
            None
        }
    }

    fn recover(&mut self) -> Result<(), ForwardError> {
        let left = self.recoveries.checked_sub(1);
        self.recoveries = left.ok_or(ForwardError::Device(DeviceFault::Lost))?;
        self.is_lost = false;
        if let Some(late) = &mut self.late {
            late.lose();
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            is_causal: true,
            states: self.states.len(),
            adapters: ADAPTERS,
            hidden_dim: HIDDEN_DIM,
            axes: self.encoder.as_ref().is_some_and(|e| e.taken().axes),
        }
    }

    fn hidden(&self) -> &[f32] {
        &self.hidden
    }

    fn copy_page(&mut self, from: PageId, to: PageId) {
        let tokens = self.config.dims.page_tokens;
        let from = from as usize * tokens;
        let to = to as usize * tokens;
        self.slots.copy_within(from..from + tokens, to);
        self.tokens.copy_within(from..from + tokens, to);
        self.inputs.copy_within(from..from + tokens, to);
        self.blocked.copy_within(from..from + tokens, to);
    }

    fn encoder(&mut self) -> Option<&mut dyn Encode> {
        if self.encoder.is_some() {
            Some(self)
        } else {
            None
        }
    }

    fn blocks(&mut self) -> Option<&mut dyn AdvanceBlock> {
        if self.block_units() > 0 {
            Some(self)
        } else {
            None
        }
    }

    fn mtp_head(&mut self) -> Option<&mut dyn Predict> {
        if self.predicts { Some(self) } else { None }
    }

    fn page_export(&mut self) -> Option<&mut dyn ExportPages> {
        Some(self)
    }
}

impl Predict for FakeModel {
    fn predict(&mut self, batch: &Batch) -> Result<&mut [f32], ForwardError> {
        let fault = self.guess_fault();
        self.guesses += 1;
        assert!(
            fault != Some(FaultKind::Panic),
            "a simulated panic in a guess"
        );
        self.check(batch)?;
        self.states.check(batch)?;
        if fault.is_some() || batch.spans().any(|span| span.tokens.len() != 1) {
            return Err(ForwardError::BadBatch("no guess"));
        }
        self.logits.clear();
        for span in batch.spans() {
            let guess = self.habit_after(span.tokens[0]);
            let logit = |id| if id == guess { 10.0 } else { 0.0 };
            self.logits
                .extend((0..self.config.dims.vocab as u32).map(logit));
        }
        Ok(&mut self.logits)
    }
}

impl ExportPages for FakeModel {
    fn page_bytes(&self) -> usize {
        self.config.dims.page_tokens * SLOT_BYTES
    }

    fn export_page(&self, page: PageId, bytes: &mut [u8]) -> Result<(), ForwardError> {
        self.write_slots(page, bytes);
        Ok(())
    }

    fn import_page(&mut self, page: PageId, bytes: &[u8]) {
        self.read_slots(page, bytes);
    }
}

/// The spans of a batch whose rows count as `rows`.
fn counted_spans<'a>(batch: &'a Batch, rows: &'a [u32]) -> impl Iterator<Item = SpanView<'a>> {
    let counted = |(range, span): (&Span, SpanView<'a>)| SpanView {
        tokens: &rows[range.tokens.clone()],
        ..span
    };
    batch.ranges().iter().zip(batch.spans()).map(counted)
}

/// A hash of the adapters of a span.
fn of_adapters(span: &SpanView<'_>) -> u64 {
    span.adapters.iter().fold(0, |hash, (adapter, scale)| {
        mix(
            hash,
            (adapter as u64 + 1) << 32 | u64::from(scale.to_bits()),
        )
    })
}

fn mix(hash: u64, value: u64) -> u64 {
    let x = (hash ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ (x >> 32)
}

/// The upper bits as a number in `[0, 1)`.
fn unit(hash: u64) -> f32 {
    (hash >> 40) as f32 / (1u32 << 24) as f32
}

/// Properties of the fake model.
#[derive(Clone, Debug)]
pub struct FakeConfig {
    /// Sizes.
    pub dims: Dims,
    /// The end-of-sequence token.
    pub eos: u32,
    /// Probability that `eos` is by far the most likely token; 0 to 1.
    pub eos_probability: f32,
    /// Tokens to generate, in addition to `eos`; within the vocabulary.
    pub tokens: Range<u32>,
    /// Probability that the successor of the last token in `tokens` (cyclic) is
    /// much likelier than the others; 0 to 1. Makes answers repeat themselves.
    pub habit: f32,
    /// Failures to simulate.
    pub faults: Vec<Fault>,
}

impl Default for FakeConfig {
    fn default() -> Self {
        Self {
            dims: Dims {
                vocab: 256,
                context_max: 1024,
                page_tokens: 16,
                pages: 256,
                rows_max: 512,
                logit_rows_max: 256,
            },
            eos: 0,
            eos_probability: 0.0,
            tokens: 1..256,
            habit: 0.0,
            faults: Vec::new(),
        }
    }
}
