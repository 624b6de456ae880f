//! Draws of tokens on the device, after a batch.

use super::device::Device;
use super::launch::BATCH_WORDS;
use super::memory::{Memory, PrepareError};
use super::sources::Kernel;
use crate::draw_record::{DrawBounds, DrawRecord, RESULT_WORDS};
use crate::operation::{BufferId, Program};

/// Columns of a workgroup that adjusts logits, as the kernel has it.
const ADJUST_COLS: u32 = 1024;

/// Bytes of adjusted rows, at most; a batch with more such draws is drawn in several rounds.
const ADJUSTED_BYTES_MAX: u64 = 64 << 20;

/// Logits that tokens are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawShape {
    /// `(logit rows, vocab)`.
    pub logits: BufferId,
    /// Draws of a batch, at most.
    pub draws_max: u32,
}

/// Bounds of the draws of a program; zeros where nothing is drawn.
pub(crate) fn draw_bounds(program: &Program) -> DrawBounds {
    let Some(shape) = program.draws else {
        return DrawBounds::default();
    };
    let logits = program.buffers[shape.logits.0 as usize];
    let row_bytes = u64::from(logits.stride()) * 4;
    let rows = (ADJUSTED_BYTES_MAX / row_bytes.max(1)).max(1);
    DrawBounds {
        vocab: logits.cols as usize,
        draws: shape.draws_max as usize,
        adjusted_rows: rows.min(u64::from(shape.draws_max)).max(1) as usize,
    }
}

/// Bytes of the record of draws, of adjusted logits, of results and of drawn tokens.
pub(crate) fn draw_bytes(program: &Program) -> [u64; 4] {
    let (bounds, Some(shape)) = (draw_bounds(program), program.draws) else {
        return [0; 4];
    };
    let logits = program.buffers[shape.logits.0 as usize];
    let draws = bounds.draws as u64;
    [
        bounds.words() as u64 * 4,
        bounds.adjusted_rows as u64 * u64::from(logits.stride()) * 4,
        result_bytes(bounds.draws),
        draws * 4,
    ]
}

/// Bytes of the results of so many draws.
pub(crate) fn result_bytes(draws: usize) -> u64 {
    (draws * RESULT_WORDS * 4) as u64
}

/// The kernels of draws, compiled and bound.
pub(crate) struct DrawKernels {
    adjust: Bound,
    choose: Bound,
    top: Bound,
    cols: u32,
    row: u32,
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
        device.compile_all(&[Kernel::Adjust, Kernel::Choose, Kernel::Top])?;
        let index = shape.logits.0 as usize;
        let [draws, adjusted, results, tokens] = &memory.draws;
        let logits = &memory.buffers[index];
        let bound = |kernel: Kernel, buffers: &[&wgpu::Buffer]| -> Result<Bound, PrepareError> {
            Ok(Bound {
                pipeline: device.kernel(kernel)?,
                buffers: device.bind(kernel, buffers)?,
            })
        };
        Ok(Some(Self {
            adjust: bound(Kernel::Adjust, &[draws, logits, adjusted])?,
            choose: bound(Kernel::Choose, &[draws, logits, adjusted, results, tokens])?,
            top: bound(Kernel::Top, &[draws, logits, adjusted, results, tokens])?,
            cols: program.buffers[index].cols,
            row: program.buffers[index].stride(),
        }))
    }

    /// Adds the dispatches of a round to a pass; returns their number.
    pub(crate) fn encode(&self, pass: &mut wgpu::ComputePass<'_>, record: &DrawRecord) -> u64 {
        let draws = record.len() as u32;
        let blocks = self.cols.div_ceil(ADJUST_COLS);
        let dispatches = [
            (record.has_adjusted(), &self.adjust, [blocks, draws]),
            (true, &self.choose, [draws, 1]),
            (record.has_alternatives(), &self.top, [draws, 1]),
        ];
        let heads = record.heads_words() as u32;
        // The batch of the prelude: one row.
        let mut constants = [0; BATCH_WORDS + 5];
        constants[0] = 1;
        let draws_at = &mut constants[BATCH_WORDS..];
        draws_at.copy_from_slice(&[0, heads, self.cols, self.row, f32::NAN.to_bits()]);
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
