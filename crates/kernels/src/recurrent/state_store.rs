//! The states of all sequences: memory of a fixed size.

use crate::ZeroedBuffer;

/// Floats in a cache line: parts of states begin at one.
const LINE_FLOATS: usize = 16;

/// Sizes of a sequence's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateShape {
    /// Recurrent layers.
    pub layers: usize,
    /// Inputs of the convolution that are kept: one less than its taps.
    pub conv_rows: usize,
    /// Columns of the convolution.
    pub conv_cols: usize,
    /// Entries of the recurrent part, all heads together.
    pub scan_len: usize,
}

impl StateShape {
    /// Floats of one layer's state.
    pub(super) fn layer_len(&self) -> usize {
        self.scan_start() + self.scan_len.next_multiple_of(LINE_FLOATS)
    }

    /// Where the recurrent part begins.
    pub(super) fn scan_start(&self) -> usize {
        (self.conv_rows * self.conv_cols).next_multiple_of(LINE_FLOATS)
    }

    /// Where the part of a layer begins in a state.
    pub(super) fn start(&self, state: u32, layer: usize) -> usize {
        (state as usize * self.layers + layer) * self.layer_len()
    }

    /// Bytes of one state, all layers; `None` if they overflow.
    pub fn bytes(&self) -> Option<usize> {
        let conv = self.conv_rows.checked_mul(self.conv_cols)?;
        let conv = conv.checked_next_multiple_of(LINE_FLOATS)?;
        let scan = self.scan_len.checked_next_multiple_of(LINE_FLOATS)?;
        let layer = conv.checked_add(scan)?.checked_mul(size_of::<f32>())?;
        layer.checked_mul(self.layers)
    }
}

/// The states of all sequences, shape `(states, layers, ...)`. Touched only as used.
pub struct StateStore {
    shape: StateShape,
    states: usize,
    pub(super) floats: ZeroedBuffer<f32>,
}

impl StateStore {
    /// Memory for `states` states.
    ///
    /// # Panics
    /// If the size in bytes overflows.
    pub fn new(shape: StateShape, states: usize) -> Self {
        let len = shape.bytes().and_then(|bytes| bytes.checked_mul(states));
        let len = len.expect("states in bytes") / size_of::<f32>();
        Self {
            shape,
            states,
            floats: ZeroedBuffer::new(len),
        }
    }

    /// The shape of a state.
    pub fn shape(&self) -> &StateShape {
        &self.shape
    }

    /// Number of states.
    pub fn states(&self) -> usize {
        self.states
    }

    /// Bytes with every state used.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.floats[..])
    }
}
