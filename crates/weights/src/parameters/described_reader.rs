//! The bytes of described matrices.

use super::described::{DescribedMatrix, RowChange, RowRun};
use super::file_tensors::FileTensors;
use crate::{LoadError, ModelFiles};
use kernels::{Format, PackError, Pool, dequantize};
use std::borrow::Cow;

/// Reads described matrices from the files that they were described from. The tensor that was read last is kept until another
/// one is asked for, so parts of one tensor are read one after the other at the cost of one.
pub struct DescribedReader<'a> {
    files: &'a ModelFiles,
    pool: &'a mut Pool,
    /// Name and bytes of the tensor that was read last.
    open: Option<(String, Cow<'a, [u8]>)>,
}

impl<'a> DescribedReader<'a> {
    /// A reader of these files. `pool` converts tensors of safetensors.
    pub fn new(files: &'a ModelFiles, pool: &'a mut Pool) -> Self {
        Self {
            files,
            pool,
            open: None,
        }
    }

    /// Gives the bytes of a matrix, a stack or a table in order, as pieces of whole rows: [`Stored::bytes`](super::Stored) in
    /// all. Pieces of a GGUF are in the mapped file.
    ///
    /// # Errors
    /// That of `take`; or a tensor is not what was described, or has weights that are not finite.
    pub fn read<E: From<LoadError>>(
        &mut self,
        matrix: &DescribedMatrix,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(bytes) = &matrix.at_hand {
            return take(bytes);
        }
        for source in &matrix.sources {
            let name = &source.tensor;
            self.open(name)?;
            let (format, bytes) = self.opened(name)?;
            let stored_cols = match matrix.change {
                RowChange::Columns => matrix.rows,
                RowChange::None | RowChange::Floats => matrix.cols,
            };
            let row_bytes = stored_cols / format.block_weights() * format.block_bytes();
            for run in &source.runs {
                for place in run.places() {
                    let at = place.start * row_bytes..place.end * row_bytes;
                    let wanted = at.end;
                    let rows = bytes.get(at).ok_or_else(|| LoadError::Pack {
                        tensor: self.files.label(name),
                        error: PackError::Size {
                            wanted,
                            given: bytes.len(),
                        },
                    })?;
                    match matrix.change {
                        RowChange::None => take(rows)?,
                        RowChange::Floats => take(&self.floats(name, rows)?)?,
                        RowChange::Columns => take(&columns(format, rows, stored_cols))?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads a tensor, and releases the one before.
    fn open(&mut self, name: &str) -> Result<(), LoadError> {
        if self.open.as_ref().is_some_and(|(open, _)| open == name) {
            return Ok(());
        }
        self.close();
        let bytes = self.files.read(name, self.pool)?;
        self.open = Some((name.to_owned(), bytes));
        Ok(())
    }

    /// Format and bytes of the tensor that was read last.
    fn opened(&self, name: &str) -> Result<(Format, &[u8]), LoadError> {
        let tensors = FileTensors::new(self.files);
        let format = tensors.packable(&tensors.find(name)?)?;
        let bytes = self.open.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        Ok((format, bytes))
    }

    fn floats(&self, name: &str, rows: &[u8]) -> Result<Vec<u8>, LoadError> {
        let tensors = FileTensors::new(self.files);
        let numbers = tensors.finite(&tensors.find(name)?, rows)?;
        Ok(numbers.into_iter().flat_map(f32::to_le_bytes).collect())
    }

    fn close(&mut self) {
        if let Some((name, bytes)) = self.open.take() {
            drop(bytes);
            self.files.release(&name);
        }
    }
}

impl Drop for DescribedReader<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

impl RowRun {
    /// Ranges of consecutive rows.
    fn places(self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let starts = (0..self.count).map(move |index| self.first + index * self.every);
        starts.map(move |start| start..start + self.rows)
    }
}

/// Rows of `cols` weights as columns, in f32.
pub(super) fn columns(format: Format, rows: &[u8], cols: usize) -> Vec<u8> {
    let row_bytes = cols / format.block_weights() * format.block_bytes();
    let count = rows.len() / row_bytes.max(1);
    let mut turned = vec![0; count * cols * size_of::<f32>()];
    let mut numbers = vec![0.0; cols];
    for (index, row) in rows.chunks_exact(row_bytes.max(1)).enumerate() {
        dequantize(format, row, &mut numbers);
        let places = turned.chunks_exact_mut(count * size_of::<f32>());
        for (place, number) in places.zip(&numbers) {
            let at = index * size_of::<f32>();
            place[at..at + size_of::<f32>()].copy_from_slice(&number.to_le_bytes());
        }
    }
    turned
}
