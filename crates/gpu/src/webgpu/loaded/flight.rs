//! Batches that are started, and draws whose results come later.

use super::Loaded;
use crate::draw_record::{DrawRecord, result_bytes};
use crate::operation::BufferId;
use crate::record::Record;
use crate::webgpu::device::DeviceError;
use model::Draws;
use std::ops::Range;

/// Rows of a buffer that the host reads with the results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadRows {
    /// One of [`Program::outputs`](crate::operation::Program::outputs).
    pub(crate) buffer: BufferId,
    /// The rows.
    pub(crate) rows: Range<usize>,
}

impl Loaded {
    /// Starts a batch: one upload, one submit. Results are for [`Self::queue_draws`].
    ///
    /// # Errors
    /// The device has failed: what pages hold is then unknown.
    ///
    /// # Panics
    /// If the record has more words than the program's bound.
    pub(crate) fn start(&mut self, record: &Record) -> Result<(), DeviceError> {
        let encoder = self.encode_batch(record, false);
        self.device.submit(Some(encoder.finish()));
        self.device.check()
    }

    /// Starts draws from the logits of the last batch, which were checked, and the way of their results to the host, followed by
    /// these rows: one submit, more where the device has no room for all draws at once.
    ///
    /// # Errors
    /// The device has failed.
    pub(crate) fn queue_draws(
        &mut self,
        record: &mut DrawRecord,
        draws: &Draws,
        rows: &[ReadRows],
    ) -> Result<(), DeviceError> {
        record.clear();
        for (number, draw) in draws.iter().enumerate() {
            let Some(rule) = draw.rule else { continue };
            if !record.push(number, &draw, &rule) {
                self.draw(record)?;
                record.clear();
                record.push(number, &draw, &rule);
            }
        }
        self.begin_results(record, draws.len(), rows)
    }

    /// Starts a round of draws that is not the last.
    fn draw(&mut self, record: &mut DrawRecord) -> Result<(), DeviceError> {
        let encoder = self.encode_draws(record);
        self.device.submit(Some(encoder.finish()));
        self.device.check()
    }

    /// Starts the last round of draws, and the way of the results to the host.
    fn begin_results(
        &mut self,
        record: &mut DrawRecord,
        draws: usize,
        rows: &[ReadRows],
    ) -> Result<(), DeviceError> {
        let mut encoder = self.encode_draws(record);
        let [_, results, _] = &self.memory.draws;
        let mut at = result_bytes(draws);
        if draws > 0 {
            encoder.copy_buffer_to_buffer(results, 0, &self.memory.staging, 0, at);
        }
        for read in rows.iter().filter(|read| !read.rows.is_empty()) {
            let index = read.buffer.0 as usize;
            let stride = u64::from(self.program.buffers[index].stride()) * 4;
            let (from, size) = (read.rows.start as u64, read.rows.len() as u64);
            let (from, size) = (from * stride, size * stride);
            let buffer = &self.memory.buffers[index];
            encoder.copy_buffer_to_buffer(buffer, from, &self.memory.staging, at, size);
            at += size;
        }
        let commands = encoder.finish();
        let staging = &self.memory.staging;
        self.reading = Some(self.device.begin_read(commands, staging, at));
        self.device.check()
    }

    /// Waits for the results that are on their way, not for a batch that was started after, and reads them as words.
    ///
    /// # Errors
    /// The device failed, or nothing is on its way.
    pub(crate) fn finish_results(&mut self, read: impl FnOnce(&[u32])) -> Result<(), DeviceError> {
        let Some(reading) = self.reading.take() else {
            return Err(DeviceError::Failed("no results are on their way".into()));
        };
        let staging = &self.memory.staging;
        let read = |bytes: &[u8]| read(bytemuck::cast_slice(bytes));
        self.device.finish_read(reading, staging, read)
    }

    /// An encoder with the dispatches of a round of draws.
    fn encode_draws(&mut self, record: &mut DrawRecord) -> wgpu::CommandEncoder {
        let mut encoder = self.device.encoder();
        let Some(kernels) = self.draws.as_ref().filter(|_| record.len() > 0) else {
            return encoder;
        };
        let [words, ..] = &self.memory.draws;
        let queue = self.device.queue();
        queue.write_buffer(words, 0, bytemuck::cast_slice(record.words()));
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        let dispatches = kernels.encode(&mut pass, record);
        drop(pass);
        self.device.count_dispatches(dispatches);
        encoder
    }
}
