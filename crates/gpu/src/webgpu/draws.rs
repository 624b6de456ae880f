//! Draws of tokens on the device, after a batch.

use super::device::Device;
use super::launch::BATCH_WORDS;
use super::memory::{Memory, PrepareError};
use super::sources::Kernel;
use crate::draw_record::DrawRecord;
use crate::operation::Program;

/// Columns of a workgroup that adjusts logits, as the kernel has it.
const ADJUST_COLS: u32 = 1024;

/// The kernels of draws, compiled and bound.
pub(crate) struct DrawKernels {
    adjust: Bound,
    choose: Bound,
    cols: u32,
    row: u32,
    /// Floats of the logits before the adjusted rows.
    adjusted: u32,
}

struct Bound {
    pipeline: wgpu::ComputePipeline,
    buffers: wgpu::BindGroup,
}

impl DrawKernels {
    /// Compiles and binds; `None` where nothing is drawn.
    pub(crate) fn new(
        device: &Device,
        program: &Program,
        memory: &Memory,
    ) -> Result<Option<Self>, PrepareError> {
        let Some(shape) = program.draws else {
            return Ok(None);
        };
        device.compile_all(&[Kernel::Adjust, Kernel::Choose])?;
        let index = shape.logits.0 as usize;
        let [draws, results, tokens] = &memory.draws;
        let logits = &memory.buffers[index];
        let bound = |kernel: Kernel, buffers: &[&wgpu::Buffer]| -> Result<Bound, PrepareError> {
            Ok(Bound {
                pipeline: device.kernel(kernel)?,
                buffers: device.bind(kernel, buffers)?,
            })
        };
        Ok(Some(Self {
            adjust: bound(Kernel::Adjust, &[draws, logits])?,
            choose: bound(Kernel::Choose, &[draws, logits, results, tokens])?,
            cols: program.buffers[index].cols,
            row: program.buffers[index].stride(),
            adjusted: program.buffers[index].rows * program.buffers[index].stride(),
        }))
    }

    /// Adds the dispatches of a round to a pass; returns their number.
    pub(crate) fn encode(&self, pass: &mut wgpu::ComputePass<'_>, record: &DrawRecord) -> u64 {
        let draws = record.len() as u32;
        let blocks = self.cols.div_ceil(ADJUST_COLS);
        let dispatches = [
            (record.has_adjusted(), &self.adjust, [blocks, draws]),
            (true, &self.choose, [draws, 1]),
        ];
        let heads = record.heads_words() as u32;
        // The batch of the prelude: one row.
        let mut constants = [0; BATCH_WORDS + 6];
        constants[0] = 1;
        let draws_at = &mut constants[BATCH_WORDS..];
        let nan = f32::NAN.to_bits();
        draws_at.copy_from_slice(&[0, heads, self.cols, self.row, nan, self.adjusted]);
        let mut count = 0;
        for (_, bound, [x, y]) in dispatches.into_iter().filter(|(is_needed, ..)| *is_needed) {
            pass.set_pipeline(&bound.pipeline);
            pass.set_bind_group(0, &bound.buffers, &[]);
            pass.set_immediates(0, bytemuck::cast_slice(&constants));
            pass.dispatch_workgroups(x, y, 1);
            count += 1;
        }
        count
    }
}
