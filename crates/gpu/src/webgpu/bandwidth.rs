//! How fast a device reads its memory.

use super::device::Device;
use super::launch::BATCH_WORDS;
use super::memory::{PrepareError, buffer};
use super::sources::Kernel;
use std::time::Duration;
use wgpu::BufferUsages;

/// Bytes of the buffer that is read, at most.
const BYTES_MAX: u64 = 256 << 20;

/// Times that the buffer is read in a submit, and submits; the fastest counts.
const READS: u32 = 4;
const SUBMITS: usize = 3;

/// Workgroups that read.
const BLOCKS: u32 = 4096;

impl Device {
    /// Bytes that a kernel reads in a second. `now` is the clock, from any moment on.
    ///
    /// # Errors
    /// The device fails, or has no memory for the buffer.
    pub fn read_bandwidth(&self, now: impl Fn() -> Duration) -> Result<f64, PrepareError> {
        let facts = self.facts();
        let most = facts.binding_bytes_max.min(facts.buffer_bytes_max);
        let bytes = BYTES_MAX.min(most) / 16 * 16;
        let storage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let input = buffer(self, "what is read", bytes, storage)?;
        let out = buffer(self, "a word", 16, storage)?;
        let group = self.bind(Kernel::Read, &[&input, &out])?;
        let kernel = self.kernel(Kernel::Read)?;
        let mut constants = [0; BATCH_WORDS + 1];
        constants[BATCH_WORDS] = (bytes / 16) as u32;
        let mut fastest = f64::INFINITY;
        for _ in 0..SUBMITS {
            let descriptor = wgpu::CommandEncoderDescriptor::default();
            let mut encoder = self.raw().create_command_encoder(&descriptor);
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&kernel);
            pass.set_bind_group(0, &group, &[]);
            pass.set_immediates(0, bytemuck::cast_slice(&constants));
            for _ in 0..READS {
                pass.dispatch_workgroups(BLOCKS, 1, 1);
            }
            drop(pass);
            let commands = encoder.finish();
            let begin = now();
            let submission = self.submit(Some(commands));
            self.wait(submission)?;
            fastest = fastest.min((now() - begin).as_secs_f64());
        }
        Ok(bytes as f64 * f64::from(READS) / fastest)
    }
}
