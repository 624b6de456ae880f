//! Tensor infos of a file, and the tensors' byte ranges.

use super::cursor::Cursor;
use super::limits::{DIMS_MAX, TENSOR_NAME_BYTES_MAX};
use super::{GgufError, TensorKind};
use kernels::Format;
use std::ops::Range;

/// A tensor, borrowed from the file.
#[derive(Clone, Copy)]
pub struct TensorInfo<'a> {
    /// Name of the tensor.
    pub name: &'a str,
    /// Shape in ggml's order: `dims[0]` is the length of a row (the inputs of a matrix), `dims[1]` the number
    /// of rows. 1 to 4 dimensions, none zero.
    pub dims: &'a [u64],
    /// Storage format.
    pub kind: TensorKind,
    /// Bytes of the tensor, row after row of blocks. For a kind of unknown size, everything up to the next
    /// tensor or the end of the file.
    pub bytes: &'a [u8],
    /// Part of a split file, from 0.
    pub part: usize,
    /// Offset of `bytes` in the part.
    pub offset: u64,
}

impl<'a> TensorInfo<'a> {
    /// Length of a row.
    pub fn cols(&self) -> usize {
        self.dims[0] as usize
    }

    /// Number of rows, over all further dimensions.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product::<u64>() as usize
    }

    /// Number of weights.
    pub fn elements(&self) -> usize {
        self.dims.iter().product::<u64>() as usize
    }

    /// The kernels' format.
    ///
    /// # Errors
    /// [`GgufError::UnsupportedKind`] for a kind without a kernel format.
    pub fn format(&self) -> Result<Format, GgufError> {
        self.kind
            .format()
            .ok_or_else(|| GgufError::UnsupportedKind {
                tensor: self.name.to_owned(),
                kind: self.kind,
            })
    }
}

impl std::fmt::Debug for TensorInfo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {:?} {} ({} bytes)",
            self.name,
            self.dims,
            self.kind,
            self.bytes.len()
        )
    }
}

/// Positions of a tensor's name and bytes in its part.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) name: Range<usize>,
    dims: [u64; DIMS_MAX as usize],
    dims_len: u8,
    pub(super) kind: TensorKind,
    /// Number of bytes by shape and kind; `None` for a kind of unknown size.
    size: Option<u64>,
    /// Offset from the beginning of the data section; [`Record::place`] computes `data`.
    relative: u64,
    /// Range of the part's bytes.
    pub(super) data: Range<usize>,
    /// Offset of the tensor info, for errors.
    pub(super) info_at: u64,
}

impl Record {
    /// Reads a tensor info and checks everything that does not depend on other tensors.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, GgufError> {
        let info_at = cursor.offset();
        let name = cursor.string("tensor name", TENSOR_NAME_BYTES_MAX)?;
        let name_end = cursor.offset() as usize;
        let invalid = |field, offset, why: String| GgufError::Invalid { field, offset, why };
        if name.is_empty() {
            return Err(invalid("tensor name", info_at, "is empty".into()));
        }
        let Ok(text) = std::str::from_utf8(name) else {
            return Err(invalid("tensor name", info_at, "is not UTF-8".into()));
        };
        let at = cursor.offset();
        let dims_len = cursor.u32("dimension count")?;
        if !(1..=DIMS_MAX).contains(&dims_len) {
            let why = format!("{dims_len} is not within 1 to {DIMS_MAX}");
            return Err(invalid("dimension count", at, why));
        }
        let mut dims = [1; DIMS_MAX as usize];
        for dim in &mut dims[..dims_len as usize] {
            *dim = cursor.u64("dimension")?;
        }
        let kind = TensorKind::from_id(cursor.u32("tensor kind")?);
        let relative = cursor.u64("tensor offset")?;
        let size = size_of(&dims, kind).map_err(|why| GgufError::Tensor {
            name: text.to_owned(),
            offset: info_at,
            why,
        })?;
        Ok(Self {
            name: name_end - name.len()..name_end,
            dims,
            dims_len: dims_len as u8,
            kind,
            size,
            relative,
            data: 0..0,
            info_at,
        })
    }

    /// Computes the byte range in a part whose data section begins at `data_at` and which has `len` bytes.
    /// The range of a kind of unknown size extends to the end of the file until the next tensor is known.
    pub(super) fn place(&mut self, data_at: u64, alignment: u64, len: u64) -> Result<(), String> {
        let relative = self.relative;
        if !relative.is_multiple_of(alignment) {
            return Err(format!(
                "offset {relative} is not a multiple of the alignment {alignment}"
            ));
        }
        let start = data_at
            .checked_add(relative)
            .filter(|&start| start <= len)
            .ok_or_else(|| format!("offset {relative} lies beyond the end of the file"))?;
        let left = len - start;
        let size = self.size.unwrap_or(left);
        if size > left {
            return Err(format!(
                "needs {size} bytes from byte {start} on, the file has {left} there"
            ));
        }
        self.data = start as usize..(start + size) as usize; // inside a slice
        Ok(())
    }

    /// Whether the number of bytes follows only from the neighboring tensors.
    pub(super) fn is_open_ended(&self) -> bool {
        self.size.is_none()
    }

    pub(super) fn info<'a>(&'a self, bytes: &'a [u8], part: usize) -> Option<TensorInfo<'a>> {
        Some(TensorInfo {
            name: std::str::from_utf8(&bytes[self.name.clone()]).ok()?,
            dims: &self.dims[..self.dims_len as usize],
            kind: self.kind,
            bytes: &bytes[self.data.clone()],
            part,
            offset: self.data.start as u64,
        })
    }
}

/// Number of bytes of a tensor; `None` for a kind of unknown size. The numbers of weights and of bytes are
/// below 2^63, so that later products cannot overflow.
fn size_of(dims: &[u64], kind: TensorKind) -> Result<Option<u64>, String> {
    if dims.contains(&0) {
        return Err(format!("shape {dims:?} has no weights"));
    }
    let too_large = || format!("shape {dims:?} has more than 2^63 weights");
    let weights = dims
        .iter()
        .try_fold(1_u64, |product, &dim| product.checked_mul(dim))
        .filter(|&product| i64::try_from(product).is_ok())
        .ok_or_else(too_large)?;
    let Some((block_weights, block_bytes)) = kind.block() else {
        return Ok(None);
    };
    if !dims[0].is_multiple_of(block_weights) {
        return Err(format!(
            "rows of {} weights are no whole number of {kind} blocks of {block_weights}",
            dims[0]
        ));
    }
    let bytes = (weights / block_weights)
        .checked_mul(block_bytes)
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or_else(too_large)?;
    Ok(Some(bytes))
}
