//! Shapes of what a program has on the device.

use kernels::{Format, KvKind};

/// Shape of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferShape {
    /// Rows, the most of any batch.
    pub rows: u32,
    /// Elements of a row that mean something.
    pub cols: u32,
}

impl BufferShape {
    /// Floats between the beginnings of two rows: `cols`, rounded up to [`UNIT`].
    pub const fn stride(self) -> u32 {
        self.cols.next_multiple_of(UNIT)
    }

    /// Bytes on the device.
    pub const fn bytes(self) -> u64 {
        self.rows as u64 * self.stride() as u64 * size_of::<f32>() as u64
    }
}

/// Weights that a lane of a kernel multiplies at once; rows of buffers and of matrices are whole numbers of them.
pub const UNIT: u32 = 16;

/// Shape of a matrix, or of a stack of equal matrices one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixShape {
    /// Format of the weights, in the file and on the device.
    pub format: Format,
    /// Outputs, of all matrices of a stack together.
    pub rows: u32,
    /// Inputs. A whole number of the format's blocks.
    pub cols: u32,
    /// Rows that are never cut apart when the matrix is larger than a binding: those of one matrix of a stack, 1 otherwise.
    pub unit_rows: u32,
}

/// Keys and values of layers whose heads have one shape. Each layer has two buffers of shape `(pages, kv_heads, block)`. A block
/// has the elements of all positions, `(page_tokens, stride)`, then their scales, f16 of shape
/// `(page_tokens, 2 * scale_words)`, one for each 32 elements; f16 elements have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Layers that store.
    pub layers: u32,
    /// Pages, of all sequences.
    pub pages: u32,
    /// Positions of a page.
    pub page_tokens: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Storage format of elements.
    pub kind: KvKind,
}

/// Elements of keys and values that share a scale.
pub const SCALE_GROUP: u32 = 32;

/// Elements of the largest part of a head that is transformed as one.
const TRANSFORMED_MAX: u32 = 256;

impl CacheShape {
    /// Elements of a head's row, with padding.
    pub const fn stride(self) -> u32 {
        match self.kind {
            KvKind::F16 => self.head_dim.next_multiple_of(8),
            KvKind::Q8_0 | KvKind::Q4_0 => self.head_dim.next_multiple_of(SCALE_GROUP),
        }
    }

    /// Words of the elements of a head's row.
    pub const fn row_words(self) -> u32 {
        match self.kind {
            KvKind::F16 => self.stride() / 2,
            KvKind::Q8_0 => self.stride() / 4,
            KvKind::Q4_0 => self.stride() / 8,
        }
    }

    /// Words of the scales of a head's row.
    pub const fn scale_words(self) -> u32 {
        match self.kind {
            KvKind::F16 => 0,
            KvKind::Q8_0 | KvKind::Q4_0 => (self.stride() / SCALE_GROUP).div_ceil(2),
        }
    }

    /// Elements that a Walsh-Hadamard transform takes together, before keys and values are stored in 4 bits; 1: none. As on
    /// the processor, the largest power of two that divides a head, up to 256.
    pub const fn transformed(self) -> u32 {
        let whole = 1 << self.head_dim.trailing_zeros();
        match self.kind {
            KvKind::F16 | KvKind::Q8_0 => 1,
            KvKind::Q4_0 if whole > TRANSFORMED_MAX => TRANSFORMED_MAX,
            KvKind::Q4_0 => whole,
        }
    }

    /// Bytes of the keys, or of the values, of one page of one layer.
    pub const fn page_bytes(self) -> u64 {
        let words = self.row_words() + self.scale_words();
        self.kv_heads as u64 * self.page_tokens as u64 * words as u64 * 4
    }

    /// Bytes of the keys, or of the values, of one layer: the size of one buffer on the device.
    pub const fn layer_bytes(self) -> u64 {
        self.pages as u64 * self.page_bytes()
    }

    /// Bytes of all layers.
    pub const fn bytes(self) -> u64 {
        2 * self.layers as u64 * self.layer_bytes()
    }
}

/// What sequences keep of earlier rows in recurrent layers. Each layer has two buffers of f32: the last inputs of the
/// convolution, `(states, conv_rows, conv_cols)`, and the heads' states, `(states, value_heads, key_dim, value_dim)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatesShape {
    /// Recurrent layers.
    pub layers: u32,
    /// States of sequences.
    pub states: u32,
    /// Earlier inputs that the convolution reads.
    pub conv_rows: u32,
    /// Columns of the convolution.
    pub conv_cols: u32,
    /// The heads; `None`: the layers are convolutions only.
    pub scan: Option<ScanHeads>,
    /// Columns of the hidden state that is kept for an MTP head, as by a convolution with one earlier input, which has the number
    /// after those of the layers; 0: none.
    pub hidden: u32,
}

/// Heads of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanHeads {
    /// Heads of queries and keys.
    pub key_heads: u32,
    /// Heads of values, a multiple of the heads of keys.
    pub value_heads: u32,
    /// Elements of a query and of a key.
    pub key_dim: u32,
    /// Elements of a value, a multiple of 16.
    pub value_dim: u32,
    /// Whether consecutive heads of values have the same key; else each `key_heads`-th.
    pub grouped: bool,
    /// The gated delta rule, and rows of queries, keys, values; else the rule of Mamba-2, and values, keys, queries.
    pub delta: bool,
}

impl StatesShape {
    /// Bytes of the convolution's part, and of the heads', of one layer: the sizes of its buffers on the device.
    pub const fn layer_bytes(self) -> [u64; 2] {
        let conv = self.conv_rows as u64 * self.conv_cols as u64;
        let scan = match self.scan {
            Some(heads) => heads.value_heads as u64 * heads.key_dim as u64 * heads.value_dim as u64,
            None => 0,
        };
        [self.states as u64 * conv * 4, self.states as u64 * scan * 4]
    }

    /// Earlier inputs and columns of a layer's convolution.
    pub const fn convolution(self, layer: u32) -> [u32; 2] {
        if layer < self.layers {
            [self.conv_rows, self.conv_cols]
        } else {
            [1, self.hidden]
        }
    }

    /// Bytes of the hidden states.
    pub const fn hidden_bytes(self) -> u64 {
        self.states as u64 * self.hidden as u64 * 4
    }

    /// Bytes of all layers.
    pub const fn bytes(self) -> u64 {
        let [conv, scan] = self.layer_bytes();
        self.layers as u64 * (conv + scan) + self.hidden_bytes()
    }
}
