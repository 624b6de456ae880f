//! Tensors of files, found by name, checked, and described.
//!
//! Checks are those of [`super::packed_tensors`], in the same order, so that both loads report the same error.

use super::described::{Described, DescribedMatrix, RowChange, RowRun, TensorRows};
use super::file_tensors::FileTensors;
use super::tensors::Tensors;
use crate::config::LatentConfig;
use crate::{LoadError, ModelFiles};
use kernels::{Format, Pool};

/// The tensors of a model being described.
pub(super) struct DescribedTensors<'a> {
    tensors: FileTensors<'a>,
    pool: &'a mut Pool,
}

impl<'a> DescribedTensors<'a> {
    pub(super) fn new(files: &'a ModelFiles, pool: &'a mut Pool) -> Self {
        Self {
            tensors: FileTensors::new(files),
            pool,
        }
    }

    /// Checks a tensor of this shape, `dims[0]` the length of a row. Returns the format.
    fn checked(&mut self, name: &str, dims: &[usize]) -> Result<Format, LoadError> {
        let tensor = self.tensors.find(name)?;
        let wide: Vec<u64> = dims.iter().map(|&dim| dim as u64).collect();
        self.tensors.check_shape(&tensor, &wide)?;
        let format = self.tensors.packable(&tensor)?;
        self.tensors.row_bytes(name, format, dims[0])?;
        self.tensors.take(name);
        Ok(format)
    }
}

/// Rows of one tensor as matrices.
fn of_one(
    name: &str,
    format: Format,
    (count, rows, cols): (usize, usize, usize),
    runs: Vec<RowRun>,
) -> DescribedMatrix {
    DescribedMatrix {
        format,
        count,
        rows,
        cols,
        sources: vec![TensorRows {
            tensor: name.to_owned(),
            runs,
        }],
        change: RowChange::None,
    }
}

impl Tensors for DescribedTensors<'_> {
    type Packing = Described;

    fn has(&self, name: &str) -> bool {
        self.tensors.has(name)
    }

    fn rows_of(&self, name: &str) -> Result<usize, LoadError> {
        Ok(self.tensors.find(name)?.rows())
    }

    fn split<const N: usize>(
        &mut self,
        name: &str,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[DescribedMatrix; N], LoadError> {
        let format = self.checked(name, &[cols, rows.iter().sum()])?;
        let mut first = 0;
        Ok(rows.map(|rows| {
            let run = RowRun::range(first, rows);
            first += rows;
            of_one(name, format, (1, rows, cols), vec![run])
        }))
    }

    fn interleaved<const N: usize>(
        &mut self,
        name: &str,
        groups: usize,
        matrices: [&[usize]; N],
        cols: usize,
    ) -> Result<[DescribedMatrix; N], LoadError> {
        let all: usize = matrices.iter().copied().flatten().sum();
        let format = self.checked(name, &[cols, all])?;
        let mut first = 0;
        Ok(matrices.map(|parts| {
            let run = |part: &usize| {
                let run = RowRun {
                    first,
                    rows: part / groups,
                    every: all / groups,
                    count: groups,
                };
                first += run.rows;
                run
            };
            let runs = parts.iter().map(run).collect();
            of_one(name, format, (1, parts.iter().sum(), cols), runs)
        }))
    }

    fn float_matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<DescribedMatrix, LoadError> {
        self.table(name, rows, cols)?;
        let whole = vec![RowRun::whole(rows)];
        Ok(DescribedMatrix {
            change: RowChange::Floats,
            ..of_one(name, Format::F32, (1, rows, cols), whole)
        })
    }

    fn stacks<const N: usize>(
        &mut self,
        name: &str,
        count: usize,
        rows: [usize; N],
        cols: usize,
    ) -> Result<[DescribedMatrix; N], LoadError> {
        let every = rows.iter().sum();
        let format = self.checked(name, &[cols, every, count])?;
        let mut first = 0;
        Ok(rows.map(|rows| {
            let run = RowRun {
                first,
                rows,
                every,
                count,
            };
            first += rows;
            of_one(name, format, (count, rows, cols), vec![run])
        }))
    }

    fn stack_of(
        &mut self,
        name_of: impl Fn(usize) -> String,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<DescribedMatrix, LoadError> {
        let first = name_of(0);
        let format = self.tensors.packable(&self.tensors.find(&first)?)?;
        self.tensors.row_bytes(&first, format, cols)?;
        let mut stack = of_one(&first, format, (count, rows, cols), Vec::new());
        stack.sources.clear();
        for matrix in 0..count {
            let tensor = name_of(matrix);
            let found = self.tensors.find(&tensor)?;
            self.tensors
                .check_shape(&found, &[cols as u64, rows as u64])?;
            if self.tensors.packable(&found)? != format {
                return Err(self.tensors.unlike_first(&found));
            }
            self.tensors.take(&tensor);
            let runs = vec![RowRun::whole(rows)];
            stack.sources.push(TensorRows { tensor, runs });
        }
        Ok(stack)
    }

    fn joined_heads(
        &mut self,
        name: &str,
        heads: usize,
        sizes: &LatentConfig,
    ) -> Result<(DescribedMatrix, DescribedMatrix), LoadError> {
        let LatentConfig {
            rank, plain, value, ..
        } = *sizes;
        let every = plain + value;
        let format = self.checked(name, &[rank, heads * every])?;
        let run = |first, rows| RowRun {
            first,
            rows,
            every,
            count: heads,
        };
        let keys = DescribedMatrix {
            change: RowChange::Columns,
            ..of_one(name, Format::F32, (heads, rank, plain), vec![run(0, plain)])
        };
        let values = vec![run(plain, value)];
        Ok((keys, of_one(name, format, (heads, value, rank), values)))
    }

    fn row_table(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<DescribedMatrix, LoadError> {
        self.matrix(name, rows, cols)
    }

    fn numbers(&mut self, name: &str, dims: &[u64]) -> Result<Vec<f32>, LoadError> {
        let (tensor, numbers) = self.tensors.numbers(name, dims, self.pool)?;
        self.tensors.take(tensor.name);
        Ok(numbers)
    }

    fn per_head(&mut self, name: &str, heads: usize) -> Result<Vec<f32>, LoadError> {
        match self.tensors.find(name)?.dims.len() {
            1 => self.vector(name, heads),
            _ => self.table(name, heads, 1),
        }
    }

    fn ignore(&mut self, name: &str) {
        self.tensors.take(name);
    }

    fn ignore_prefix(&mut self, prefix: &str) {
        self.tensors.take_prefix(prefix);
    }

    fn finish_all(&mut self) -> Result<(), LoadError> {
        self.tensors.check_unused()
    }
}
