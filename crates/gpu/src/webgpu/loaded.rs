//! A program on an open device.

pub(crate) mod flight;

use super::answers::Reading;
use super::device::{Device, DeviceError};
use super::draws::DrawKernels;
use super::encode::Planner;
use super::launch::{Launch, submit_launches, time_launches};
use super::memory::{Memory, PrepareError, page_bytes, part_floats};
use crate::operation::{BufferId, MatrixId, Program};
use crate::record::Record;
use std::sync::Arc;

/// Copies of pages that wait for the next batch, at most; then they are submitted on their own.
const COPIES_MAX: usize = 64;

/// A program that is ready to run: everything on the device is allocated, compiled and bound.
pub struct Loaded {
    device: Arc<Device>,
    program: Program,
    memory: Memory,
    /// Launches of a batch, and of a guess.
    launches: [Vec<Launch>; 2],
    draws: Option<DrawKernels>,
    /// Pages that are copied before the next batch: from, to.
    copies: Vec<(u32, u32)>,
    /// Results of draws on their way to the host.
    reading: Option<Reading>,
}

/// Rows that the host reads after a batch.
pub struct Output<'a> {
    /// One of [`Program::outputs`].
    pub buffer: BufferId,
    /// The first rows of the buffer, `(rows, cols)`.
    pub rows: &'a mut [f32],
}

impl Loaded {
    /// Allocates, compiles and binds. Matrices are zero until their rows are [uploaded](Self::upload).
    ///
    /// # Errors
    /// The device has no memory left, or does not compile a kernel.
    pub fn new(device: Arc<Device>, program: Program) -> Result<Self, PrepareError> {
        let memory = Memory::new(&device, &program)?;
        let plan = |steps: &[_]| Planner::plan(&device, (&program, steps), &memory);
        let launches = [plan(&program.steps)?, plan(&program.guesses)?];
        let draws = DrawKernels::new(&device, &program, &memory)?;
        Ok(Self {
            device,
            program,
            memory,
            launches,
            draws,
            reading: None,
            copies: Vec::with_capacity(COPIES_MAX),
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Writes the first rows of a buffer, `(rows, cols)`: one upload.
    pub(crate) fn write_buffer(&self, buffer: BufferId, rows: &[f32]) {
        let shape = self.program.buffers[buffer.0 as usize];
        let (cols, stride) = (shape.cols as usize, shape.stride() as usize);
        if cols == stride {
            let buffer = &self.memory.buffers[buffer.0 as usize];
            let queue = self.device.queue();
            return queue.write_buffer(buffer, 0, bytemuck::cast_slice(rows));
        }
        let mut padded = vec![0.0; rows.len() / cols * stride];
        for (to, from) in padded.chunks_exact_mut(stride).zip(rows.chunks_exact(cols)) {
            to[..cols].copy_from_slice(from);
        }
        let buffer = &self.memory.buffers[buffer.0 as usize];
        let queue = self.device.queue();
        queue.write_buffer(buffer, 0, bytemuck::cast_slice(&padded));
    }

    /// Writes the vectors of the next batch, if it has any.
    pub(crate) fn write_vectors(&self, rows: &[f32]) {
        let Some(buffer) = self.program.vector_rows.filter(|_| !rows.is_empty()) else {
            return;
        };
        if let Some(factor) = self.program.vector_factor {
            let scaled: Vec<f32> = rows.iter().map(|x| x * factor).collect();
            self.write_buffer(buffer, &scaled);
        } else {
            self.write_buffer(buffer, rows);
        }
    }

    /// Writes rows of a matrix, from row `first` on. `raw` are the bytes of whole rows, as in the file.
    ///
    /// # Errors
    /// The device fails.
    ///
    /// # Panics
    /// If the matrix does not have these rows.
    pub fn upload(&mut self, matrix: MatrixId, first: u32, raw: &[u8]) -> Result<(), DeviceError> {
        let matrix = matrix.0 as usize;
        self.memory.upload(&self.device, matrix, first, raw)
    }

    /// Runs a batch: one upload, one wait, one submit or several if the batch is long; one mapping if there are outputs.
    ///
    /// # Errors
    /// The device fails: what pages hold is then unknown.
    ///
    /// # Panics
    /// If the record has more words than the program's bound, or an output more rows than its buffer.
    pub fn run(&mut self, record: &Record, outputs: &mut [Output<'_>]) -> Result<(), DeviceError> {
        self.run_steps(record, outputs, false)
    }

    /// As [`Self::run`], a guess of the MTP head, also while results of draws are on their way.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn guess(
        &mut self,
        record: &Record,
        outputs: &mut [Output<'_>],
    ) -> Result<(), DeviceError> {
        self.run_steps(record, outputs, true)
    }

    fn run_steps(
        &mut self,
        record: &Record,
        outputs: &mut [Output<'_>],
        is_guess: bool,
    ) -> Result<(), DeviceError> {
        let mut encoder = self.encode_batch(record, is_guess);
        let staging = if is_guess {
            &self.memory.guesses
        } else {
            &self.memory.staging
        };
        let bytes = self.encode_outputs(&mut encoder, outputs, staging);
        let commands = encoder.finish();
        let shapes = &self.program.buffers;
        self.device.read(commands, staging, bytes, |bytes| {
            let mut rest: &[f32] = bytemuck::cast_slice(bytes);
            for output in outputs {
                let shape = shapes[output.buffer.0 as usize];
                let (cols, stride) = (shape.cols as usize, shape.stride() as usize);
                for row in output.rows.chunks_exact_mut(cols.max(1)) {
                    let (from, after) = rest.split_at(stride);
                    row.copy_from_slice(&from[..cols]);
                    rest = after;
                }
            }
        })
    }

    /// Runs a batch whose outputs are not read, each dispatch apart; returns names of kernels with the seconds that each
    /// dispatch took, in order. `None` where the device has no clock.
    ///
    /// # Errors
    /// The device fails: what pages hold is then unknown.
    ///
    /// # Panics
    /// If the record has more words than the program's bound.
    pub(crate) fn run_timed(
        &mut self,
        record: &Record,
    ) -> Result<Option<Vec<(String, f64)>>, PrepareError> {
        let encoder = self.begin_batch(record);
        let split = (self.memory.parts.size() / 4, part_floats(&self.program));
        let [of_batch, _] = &self.launches;
        time_launches(&self.device, of_batch, record, split, encoder)
    }

    /// Uploads the record of a batch; returns an encoder with the copies that wait.
    fn begin_batch(&mut self, record: &Record) -> wgpu::CommandEncoder {
        let words = bytemuck::cast_slice(record.words());
        let queue = self.device.queue();
        queue.write_buffer(&self.memory.record, 0, words);
        let mut encoder = self.device.encoder();
        self.encode_copies(&mut encoder);
        self.copies.clear();
        encoder
    }

    /// Uploads the record of a batch; returns an encoder with the copies that wait and the dispatches of the batch, but for
    /// those that were submitted.
    fn encode_batch(&mut self, record: &Record, is_guess: bool) -> wgpu::CommandEncoder {
        let encoder = self.begin_batch(record);
        let split = (self.memory.parts.size() / 4, part_floats(&self.program));
        let [of_batch, of_guess] = &self.launches;
        let launches = if is_guess { of_guess } else { of_batch };
        submit_launches(&self.device, launches, record, split, encoder)
    }

    /// Copies the keys and values of a page, before the next batch.
    ///
    /// # Errors
    /// The device fails.
    pub fn copy_page(&mut self, from: u32, to: u32) -> Result<(), DeviceError> {
        self.copies.push((from, to));
        match self.copies.len() {
            COPIES_MAX => self.flush(),
            _ => Ok(()),
        }
    }

    /// Bytes of a page's keys and values in all layers.
    pub fn page_bytes(&self) -> u64 {
        page_bytes(&self.program)
    }

    /// Copies a page's keys and values in all layers to `bytes`, [`Self::page_bytes`] long.
    ///
    /// # Errors
    /// The device fails.
    pub fn export_page(&mut self, page: u32, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.flush()?;
        let mut encoder = self.device.encoder();
        let mut at = 0;
        for (cache, layers) in self.program.caches.iter().zip(&self.memory.caches) {
            let size = cache.page_bytes();
            for buffer in layers.iter().flatten() {
                let from = u64::from(page) * size;
                encoder.copy_buffer_to_buffer(buffer, from, &self.memory.exported, at, size);
                at += size;
            }
        }
        let commands = encoder.finish();
        let out = &mut *bytes;
        self.device
            .read(commands, &self.memory.exported, at, |bytes| {
                out.copy_from_slice(bytes);
            })
    }

    /// Writes a page's keys and values, as [`Self::export_page`] gave them.
    ///
    /// # Errors
    /// The device fails.
    pub fn import_page(&mut self, page: u32, bytes: &[u8]) -> Result<(), DeviceError> {
        self.flush()?;
        let mut rest = bytes;
        for (cache, layers) in self.program.caches.iter().zip(&self.memory.caches) {
            let size = cache.page_bytes();
            for buffer in layers.iter().flatten() {
                let (part, after) = rest.split_at(size as usize);
                let queue = self.device.queue();
                queue.write_buffer(buffer, u64::from(page) * size, part);
                rest = after;
            }
        }
        self.device.check()
    }

    /// Bytes that the program takes on the device.
    #[cfg(test)]
    pub fn device_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Submits the copies that wait.
    fn flush(&mut self) -> Result<(), DeviceError> {
        if self.copies.is_empty() {
            return self.device.check();
        }
        let mut encoder = self.device.encoder();
        self.encode_copies(&mut encoder);
        self.copies.clear();
        self.device.submit(Some(encoder.finish()));
        self.device.check()
    }

    /// Copies pages by way of a buffer: a copy within a buffer is not allowed.
    fn encode_copies(&self, encoder: &mut wgpu::CommandEncoder) {
        let way = &self.memory.page;
        for &(from, to) in &self.copies {
            for (cache, layers) in self.program.caches.iter().zip(&self.memory.caches) {
                let size = cache.page_bytes();
                for buffer in layers.iter().flatten() {
                    let place = |page: u32| u64::from(page) * size;
                    encoder.copy_buffer_to_buffer(buffer, place(from), way, 0, size);
                    encoder.copy_buffer_to_buffer(way, 0, buffer, place(to), size);
                }
            }
        }
    }

    /// Copies outputs to where the host reads them; returns their bytes.
    fn encode_outputs(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        outputs: &[Output<'_>],
        staging: &wgpu::Buffer,
    ) -> u64 {
        let mut at = 0;
        for output in outputs {
            let index = output.buffer.0 as usize;
            let shape = self.program.buffers[index];
            let rows = output.rows.len() / (shape.cols as usize).max(1);
            let size = rows as u64 * u64::from(shape.stride()) * 4;
            if size > 0 {
                let buffer = &self.memory.buffers[index];
                encoder.copy_buffer_to_buffer(buffer, 0, staging, at, size);
            }
            at += size;
        }
        at
    }
}
