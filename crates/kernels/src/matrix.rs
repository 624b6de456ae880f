//! Packed weight matrices.

#[cfg(test)]
mod tests;

use crate::matmul::amx_gemm::allocate_workspaces;
use crate::memory::{AlignedBytes, LINE};
use crate::packing::{BLOCK, LANES, PackedBytes, read_float};
use crate::pool::DisjointSlice;
use crate::quant::{QuantBlock, QuantFormat, with_constant_format};
use crate::{Format, Isa, Pool, quantize_with_search};
use std::array;

/// Weights could not be packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PackError {
    /// `raw` does not have `rows * cols` weights of this format.
    Size {
        /// Bytes needed (`usize::MAX` if the product overflows).
        wanted: usize,
        /// Bytes given.
        given: usize,
    },
    /// `cols` is not a multiple of the format's block.
    Cols(usize),
}

impl std::fmt::Display for PackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Size { wanted, given } => write!(f, "needs {wanted} bytes, has {given}"),
            Self::Cols(cols) => write!(f, "{cols} columns are no whole number of blocks"),
        }
    }
}

impl std::error::Error for PackError {}

/// A weight matrix, `(rows, cols)` = (outputs, inputs), in the layout of the kernels: a [`MatrixStack`] of one.
///
/// Weights keep their values exactly: the packed copy has the same quants and scales in another order, and
/// almost the same size (rows are padded to a multiple of 16).
pub struct Matrix(MatrixStack);

impl Matrix {
    /// Packs GGUF bytes (row after row of blocks) for matmuls on `isa`. `raw` is not kept.
    pub fn pack(
        isa: Isa,
        pool: &mut Pool,
        format: Format,
        rows: usize,
        cols: usize,
        raw: &[u8],
    ) -> Result<Self, PackError> {
        check_size(format, rows, cols, raw)?;
        if isa.has_tiles() {
            allocate_workspaces(pool);
        }
        let mut stack = MatrixStack::zeroed(isa, format, 1, (rows, cols));
        stack.pack(pool, 0, raw)?;
        Ok(Self(stack))
    }

    /// A matrix of bytes that [`Matrix::pack`] packed before. All levels of [`Isa`] have one layout ([`Isa::packed_layout`]).
    ///
    /// # Errors
    /// As [`Matrix::pack`]: the bytes are not as many as a packed matrix of this shape has. Their content is not checked.
    pub fn from_packed(
        isa: Isa,
        pool: &mut Pool,
        format: Format,
        rows: usize,
        cols: usize,
        bytes: PackedBytes,
    ) -> Result<Self, PackError> {
        check_packed(format, 1, (rows, cols), &bytes)?;
        if isa.has_tiles() {
            allocate_workspaces(pool);
        }
        let stack = MatrixStack::with_bytes(isa, format, 1, (rows, cols), bytes);
        Ok(Self(stack))
    }

    /// Writes row `row` as f32, with the bits of [`crate::dequantize`] (embedding look-up from the packed
    /// copy).
    ///
    /// # Panics
    /// If `row` is out of range or `out` is not `cols` long.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        assert_eq!(
            out.len(),
            self.cols,
            "a row is as long as there are columns"
        );
        let (panel, lane) = (self.panels_view().panel(row / LANES), row % LANES);
        let Some(quant) = QuantFormat::of(self.format) else {
            return read_float_row(self.format, panel, lane, out);
        };
        for (block, out) in out.chunks_exact_mut(BLOCK).enumerate() {
            let tile = &panel[block / quant.tile_blocks() * quant.tile_bytes()..];
            dequantize_block_row(&quant, tile, block % quant.tile_blocks(), lane, out);
        }
    }

    /// The tensor format of the packed weights.
    pub fn format(&self) -> Format {
        self.0.format
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes.len()
    }

    /// The panels.
    pub(crate) fn panels_view(&self) -> Panels<'_> {
        self.0.panels_view(0)
    }
}

impl std::ops::Deref for Matrix {
    type Target = MatrixStack;

    fn deref(&self) -> &MatrixStack {
        &self.0
    }
}

/// Weight matrices of one shape, `(rows, cols)` each, for products of different rows with different matrices
/// ([`crate::matmul_groups`]).
///
/// They share one allocation. Products do not use AMX tiles: a group of rows is often shorter than a tile, and a
/// row's result must not depend on the size of its group.
pub struct MatrixStack {
    isa: Isa,
    format: Format,
    count: usize,
    rows: usize,
    cols: usize,
    panel_bytes: usize,
    bytes: PackedBytes,
}

impl MatrixStack {
    /// A stack of `count` matrices of zeros, to be packed one by one.
    ///
    /// # Errors
    /// [`PackError::Cols`] if `cols` is not a multiple of the format's block.
    pub fn new(
        isa: Isa,
        format: Format,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Self, PackError> {
        if !cols.is_multiple_of(format.block_weights()) {
            return Err(PackError::Cols(cols));
        }
        let isa = isa.without_amx();
        Ok(Self::zeroed(isa, format, count, (rows, cols)))
    }

    fn zeroed(isa: Isa, format: Format, count: usize, shape: (usize, usize)) -> Self {
        let matrix_bytes = shape
            .0
            .div_ceil(LANES)
            .saturating_mul(panel_bytes(format, shape.1));
        let bytes = AlignedBytes::zeroed(matrix_bytes.saturating_mul(count));
        Self::with_bytes(isa, format, count, shape, PackedBytes::own(bytes))
    }

    fn with_bytes(
        isa: Isa,
        format: Format,
        count: usize,
        (rows, cols): (usize, usize),
        bytes: PackedBytes,
    ) -> Self {
        Self {
            isa,
            format,
            count,
            rows,
            cols,
            panel_bytes: panel_bytes(format, cols),
            bytes,
        }
    }

    /// Packs matrix `index` from GGUF bytes (row after row of blocks). `raw` is not kept.
    ///
    /// # Errors
    /// [`PackError::Size`] if `raw` is not a matrix of this shape.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn pack(&mut self, pool: &mut Pool, index: usize, raw: &[u8]) -> Result<(), PackError> {
        check_size(self.format, self.rows, self.cols, raw)?;
        let at = self.range(index);
        let shape = (self.rows, self.cols);
        pack_panels(pool, self.format, shape, raw, &mut self.bytes.to_mut()[at]);
        Ok(())
    }

    /// A stack of the bytes of a stack of this shape, packed before.
    ///
    /// # Errors
    /// As [`Matrix::from_packed`].
    pub fn from_packed(
        isa: Isa,
        format: Format,
        count: usize,
        shape: (usize, usize),
        bytes: PackedBytes,
    ) -> Result<Self, PackError> {
        check_packed(format, count, shape, &bytes)?;
        let isa = isa.without_amx();
        Ok(Self::with_bytes(isa, format, count, shape, bytes))
    }

    /// A handle of the packed bytes.
    pub fn packed(&self) -> PackedBytes {
        self.bytes.clone()
    }

    /// Number of matrices.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Outputs of each matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of each matrix.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The tensor format of the packed weights.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Resident bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The instruction set of the matmuls.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// Panels of a matrix.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// The panels of matrix `index`.
    pub(crate) fn panels_view(&self, index: usize) -> Panels<'_> {
        Panels {
            bytes: &self.bytes[self.range(index)],
            panel_bytes: self.panel_bytes,
            rows: self.rows,
        }
    }

    /// Bytes of matrix `index`.
    fn range(&self, index: usize) -> std::ops::Range<usize> {
        assert!(index < self.count, "matrix {index} of {}", self.count);
        let bytes = self.panels() * self.panel_bytes;
        index * bytes..(index + 1) * bytes
    }
}

/// The panels of a packed matrix.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a> {
    bytes: &'a [u8],
    panel_bytes: usize,
    rows: usize,
}

impl<'a> Panels<'a> {
    /// Rows of the matrix.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of a panel.
    pub(crate) fn panel_bytes(&self) -> usize {
        self.panel_bytes
    }

    /// The bytes of consecutive panels.
    pub(crate) fn some(&self, panels: std::ops::Range<usize>) -> &'a [u8] {
        &self.bytes[panels.start * self.panel_bytes..panels.end * self.panel_bytes]
    }

    /// One panel's bytes.
    pub(crate) fn panel(&self, panel: usize) -> &'a [u8] {
        &self.bytes[panel * self.panel_bytes..][..self.panel_bytes]
    }
}

/// Compares the length of `raw` with the shape.
fn check_size(format: Format, rows: usize, cols: usize, raw: &[u8]) -> Result<(), PackError> {
    if !cols.is_multiple_of(format.block_weights()) {
        return Err(PackError::Cols(cols));
    }
    let wanted = rows.saturating_mul(row_bytes(format, cols));
    if raw.len() != wanted {
        return Err(PackError::Size {
            wanted,
            given: raw.len(),
        });
    }
    Ok(())
}

/// Compares the length of packed bytes with that of `count` packed matrices.
fn check_packed(
    format: Format,
    count: usize,
    (rows, cols): (usize, usize),
    bytes: &[u8],
) -> Result<(), PackError> {
    if !cols.is_multiple_of(format.block_weights()) {
        return Err(PackError::Cols(cols));
    }
    let matrix = rows.div_ceil(LANES).checked_mul(panel_bytes(format, cols));
    let all = matrix.and_then(|matrix| matrix.checked_mul(count)?.checked_next_multiple_of(LINE));
    let wanted = all.unwrap_or(usize::MAX);
    if bytes.len() == wanted {
        Ok(())
    } else {
        Err(PackError::Size {
            wanted,
            given: bytes.len(),
        })
    }
}

/// Bytes of a row in the file.
fn row_bytes(format: Format, cols: usize) -> usize {
    (cols / format.block_weights()).saturating_mul(format.block_bytes())
}

fn panel_bytes(format: Format, cols: usize) -> usize {
    match QuantFormat::of(format) {
        Some(quant) => cols.div_ceil(quant.tile_cols()) * quant.tile_bytes(),
        None => float_cols(cols) * LANES * format.block_bytes(),
    }
}

/// Columns of a float panel: even, since the kernels take two columns at a time.
fn float_cols(cols: usize) -> usize {
    cols.next_multiple_of(2)
}

fn read_float_row(format: Format, panel: &[u8], lane: usize, out: &mut [f32]) {
    let width = format.block_bytes();
    for (column, out) in panel.chunks_exact(LANES * width).zip(out) {
        *out = read_float(format, &column[lane * width..]);
    }
}

fn dequantize_block_row(
    quant: &QuantFormat,
    tile: &[u8],
    block: usize,
    lane: usize,
    out: &mut [f32],
) {
    let quants = quant.read_quants(tile, block, lane).map(u32::to_le_bytes);
    let quants = quants
        .as_flattened()
        .chunks_exact(quant.sub_block_weights());
    let subs = out.chunks_exact_mut(quant.sub_block_weights()).zip(quants);
    for (sub, (out, quants)) in subs.enumerate() {
        let (scale, shift) = quant.scale_and_shift(tile, block, sub, lane);
        for (out, &quant_value) in out.iter_mut().zip(quants) {
            let value = scale * (i32::from(quant_value) - quant.zero()) as f32;
            *out = if quant.has_shift() {
                value + shift
            } else {
                value
            };
        }
    }
}

/// Columns of floats that are packed at a time.
const FLOAT_COLS: usize = 64;

/// Packs a matrix whose size was checked; `out` is zero at first.
fn pack_panels(
    pool: &mut Pool,
    format: Format,
    (rows, cols): (usize, usize),
    raw: &[u8],
    out: &mut [u8],
) {
    let (row_bytes, panel_bytes) = (row_bytes(format, cols), panel_bytes(format, cols));
    let panels = rows.div_ceil(LANES);
    let out = DisjointSlice::new(&mut out[..panels * panel_bytes]);
    pool.ranges(panels, 1, |range| {
        for panel in range {
            #[expect(unsafe_code, reason = "the borrow checker cannot see disjoint panels")]
            // SAFETY: each panel is in one worker's range.
            let out = unsafe { out.part(panel * panel_bytes..(panel + 1) * panel_bytes) };
            let last = rows.min((panel + 1) * LANES);
            let raw = &raw[panel * LANES * row_bytes..last * row_bytes];
            pack_panel(format, raw, row_bytes, out);
        }
    });
}

/// Packs up to sixteen rows; `out` is zero at first.
fn pack_panel(format: Format, raw: &[u8], row_bytes: usize, out: &mut [u8]) {
    with_constant_format!(format, |FORMAT| match QuantFormat::of(FORMAT) {
        Some(quant) => pack_quants(FORMAT, &quant, (raw, row_bytes), out),
        None if format == Format::F32 => pack_floats::<4>(raw, row_bytes, out),
        None => pack_floats::<2>(raw, row_bytes, out),
    });
}

/// Packs blocks of up to sixteen rows. Compiled for each format, so that positions of bits are constants: loading a model
/// is as fast as this.
#[inline(always)]
fn pack_quants(
    format: Format,
    quant: &QuantFormat,
    (raw, row_bytes): (&[u8], usize),
    out: &mut [u8],
) {
    let mut blocks: [QuantBlock; LANES] = array::from_fn(|_| QuantBlock::default());
    for index in 0..row_bytes / format.block_bytes() {
        for (block, raw) in blocks.iter_mut().zip(raw.chunks_exact(row_bytes)) {
            block.decode_constant(format, &raw[index * format.block_bytes()..]);
        }
        quant.write_blocks(out, index, &blocks);
    }
}

/// Packs floats of `WIDTH` bytes unchanged: column after column, sixteen rows each. A few columns at a time stay in the first
/// cache while the rows are written.
fn pack_floats<const WIDTH: usize>(raw: &[u8], row_bytes: usize, out: &mut [u8]) {
    for first in (0..row_bytes).step_by(FLOAT_COLS * WIDTH) {
        let bytes = first..row_bytes.min(first + FLOAT_COLS * WIDTH);
        let out = &mut out[bytes.start * LANES..bytes.end * LANES];
        for (lane, row) in raw.chunks_exact(row_bytes).enumerate() {
            let columns = out.chunks_exact_mut(LANES * WIDTH);
            for (column, weight) in columns.zip(row[bytes.clone()].chunks_exact(WIDTH)) {
                column[lane * WIDTH..][..WIDTH].copy_from_slice(weight);
            }
        }
    }
}

/// Columns of the packed matrices: two super-blocks.
const COLS: usize = 512;
/// Rows of the packed matrices: a panel, and one that is not full.
const ROWS: usize = LANES + 3;
/// Formats that weights are quantized to at load.
const QUANTIZED: [Format; 3] = [Format::Q8_0, Format::Q4_K, Format::Q6_K];

/// A hash of packed matrices of every [`Format`], and of quantized weights, from fixed numbers: two programs with one hash
/// pack alike, and a change of a layout changes the hash. Takes about a millisecond.
pub fn packing_fingerprint() -> u64 {
    let mut hash = Fnv::new();
    let mut random = XorShift(0x9E37_79B9_7F4A_7C15);
    for format in Format::ALL {
        let row_bytes = row_bytes(format, COLS);
        let raw: Vec<u8> = (0..ROWS * row_bytes).map(|_| random.next_byte()).collect();
        for rows in raw.chunks(LANES * row_bytes) {
            let mut panel = vec![0; panel_bytes(format, COLS)];
            pack_panel(format, rows, row_bytes, &mut panel);
            hash.add(&panel);
        }
    }
    let weights: Vec<f32> = (0..COLS)
        .map(|_| f32::from(i16::from(random.next_byte()) - 128) / 64.0)
        .collect();
    for format in QUANTIZED {
        hash.add(&quantize_with_search(format, &weights));
    }
    hash.0
}

/// FNV-1a of 64 bits.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

struct XorShift(u64);

impl XorShift {
    fn next_byte(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u8
    }
}

#[cfg(test)]
mod fingerprint_tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn fingerprint_is_one_number() {
        assert_eq!(packing_fingerprint(), packing_fingerprint());
    }

    #[test]
    fn one_changed_byte_changes_the_hash() {
        let hash = |bytes: &[u8]| {
            let mut hash = Fnv::new();
            hash.add(bytes);
            hash.0
        };
        let mut hashes = HashSet::from([hash(&[0; 64])]);
        for at in 0..64 {
            let mut bytes = [0; 64];
            bytes[at] = 1;
            assert!(hashes.insert(hash(&bytes)), "byte {at}");
        }
        // The value of the reference implementation for the text `a`.
        assert_eq!(hash(b"a"), 0xAF63_DC4C_8601_EC8C);
    }
}
