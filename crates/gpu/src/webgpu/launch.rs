//! Dispatches: kernels, bound buffers and constants are made at load; per batch only the numbers of rows and the places in the
//! record are new.

use super::adapters::IMMEDIATE_BYTES;
use super::device::Device;
use super::memory::PrepareError;
use super::pipelines::KernelError;
use super::sources::{Kernel, PART};
use super::timestamps::Timestamps;
use super::work::Work;
use crate::operation::RowSet;
use crate::record::{Record, WRITES_MAX};

/// Workgroups in the x dimension before z counts on, as the kernels have it.
const BLOCKS_X: u32 = 32768;

/// Words of the constants of one dispatch.
pub(super) const CONSTANT_WORDS: usize = IMMEDIATE_BYTES as usize / 4;

/// Words that depend on the batch, at the beginning.
pub(super) const BATCH_WORDS: usize = 8;

/// How many workgroups a dispatch has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Grid {
    /// As many for each row.
    Rows(u32),
    /// For outputs of a matrix.
    Matmul { outputs: u32 },
    /// As many for each row and part of attention.
    Attend { blocks: u32 },
    /// For outputs of the experts that a row chose.
    Choices { outputs: u32, used: u32 },
    /// As many for each span, and for each state that it writes if `writes`.
    Spans { blocks: u32, writes: bool },
    /// For outputs of the experts, and tiles of sorted choices.
    Tiles { outputs: u32, count: u32, used: u32 },
    /// A single one.
    One,
    /// As many for each head and tile of the record's long spans.
    Prompts { heads: u32, shared: u32 },
    /// One for each head and row, if there are parts of attention.
    Merge { heads: u32 },
}

/// One dispatch; the kernels are named, or compiled.
pub(crate) struct Launch<K = wgpu::ComputePipeline> {
    pub(super) rows: RowSet,
    /// Batches of fewer rows leave the dispatch out.
    pub(super) rows_min: u32,
    /// By rising numbers of rows.
    pub(super) variants: Vec<Variant<K>>,
    pub(super) buffers: wgpu::BindGroup,
    pub(super) constants: Vec<u32>,
    pub(super) grid: Grid,
    /// The whole work of an operation at its first dispatch.
    pub(super) work: Work,
}

/// A kernel of an operation, for batches of up to so many rows.
pub(super) struct Variant<K> {
    pub(super) rows_max: u32,
    pub(super) kernel: K,
    /// Outputs and rows of a workgroup of a product.
    pub(super) block: [u32; 2],
}

/// Compiles the kernels of all dispatches.
pub(super) fn compile(
    device: &Device,
    launches: Vec<Launch<Kernel>>,
) -> Result<Vec<Launch>, KernelError> {
    let mut kernels = Vec::new();
    for variant in launches.iter().flat_map(|launch| &launch.variants) {
        if !kernels.contains(&variant.kernel) {
            kernels.push(variant.kernel);
        }
    }
    device.compile_all(&kernels)?;
    let launches = launches.into_iter();
    launches.map(|launch| launch.compiled(device)).collect()
}

impl Launch<Kernel> {
    fn compiled(self, device: &Device) -> Result<Launch, KernelError> {
        let compiled = |variant: Variant<Kernel>| {
            Ok(Variant {
                rows_max: variant.rows_max,
                kernel: device.kernel(variant.kernel)?,
                block: variant.block,
            })
        };
        let variants: Result<_, KernelError> = self.variants.into_iter().map(compiled).collect();
        Ok(Launch {
            rows: self.rows,
            rows_min: self.rows_min,
            variants: variants?,
            buffers: self.buffers,
            constants: self.constants,
            grid: self.grid,
            work: self.work,
        })
    }
}

impl Launch {
    /// Adds the dispatch to a pass; returns whether there is anything to do.
    fn encode(&self, pass: &mut wgpu::ComputePass<'_>, record: &Record, parts: u32) -> bool {
        let Some((pipeline, [x, y, z])) = self.dispatch(record, parts) else {
            return false;
        };
        let place = record.place(self.rows);
        let mut constants = [0; CONSTANT_WORDS];
        let [a, b] = place.angles_at;
        let [spans_at, spans] = record.span_place();
        let tables_at = record.tables_at();
        let batch = [
            place.rows,
            place.rows_at,
            a,
            b,
            tables_at,
            parts,
            spans_at,
            spans,
        ];
        constants[..batch.len()].copy_from_slice(&batch);
        let end = BATCH_WORDS + self.constants.len();
        constants[BATCH_WORDS..end].copy_from_slice(&self.constants);
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &self.buffers, &[]);
        pass.set_immediates(0, bytemuck::cast_slice(&constants[..end]));
        pass.dispatch_workgroups(x, y, z);
        true
    }

    /// The pipeline and the workgroups for a batch, if there are any.
    fn dispatch(&self, record: &Record, parts: u32) -> Option<(&wgpu::ComputePipeline, [u32; 3])> {
        let spans = match self.grid {
            Grid::Prompts { .. } => record.tiles(),
            _ => record.span_place()[1],
        };
        self.workgroups(record.place(self.rows).rows, parts, spans)
    }

    /// The pipeline and the workgroups for so many rows, if there are any.
    fn workgroups(
        &self,
        rows: u32,
        parts: u32,
        spans: u32,
    ) -> Option<(&wgpu::ComputePipeline, [u32; 3])> {
        if rows < self.rows_min {
            return None;
        }
        let mut variants = self.variants.iter();
        let variant = variants.find(|variant| rows <= variant.rows_max)?;
        let workgroups = self.grid.workgroups(variant.block, rows, parts, spans)?;
        Some((&variant.kernel, workgroups))
    }
}

impl Grid {
    /// The workgroups of a kernel whose blocks are of so many outputs and rows, if there are any.
    pub(super) fn workgroups(
        self,
        [of_outputs, of_rows]: [u32; 2],
        rows: u32,
        parts: u32,
        spans: u32,
    ) -> Option<[u32; 3]> {
        Some(match self {
            Self::Rows(blocks) => [blocks, rows, 1],
            Self::Choices { outputs, used } => [outputs.div_ceil(of_outputs), rows, used],
            Self::Tiles {
                outputs,
                count,
                used,
            } => {
                let tiles = count.min(rows * used) + rows * used / of_rows;
                [outputs.div_ceil(of_outputs), tiles, 1]
            }
            Self::One => [1; 3],
            Self::Attend { blocks } => [blocks, rows, parts.max(1)],
            Self::Spans { blocks, writes } if spans > 0 => {
                [blocks, spans, if writes { WRITES_MAX as u32 } else { 1 }]
            }
            Self::Spans { .. } => return None,
            Self::Prompts { heads, shared } if spans > 0 => [heads, spans, shared],
            Self::Prompts { .. } => return None,
            Self::Merge { heads } if parts > 0 => [heads, rows, 1],
            Self::Merge { .. } => return None,
            Self::Matmul { outputs } => {
                let blocks = outputs.div_ceil(of_outputs);
                let (x, z) = (blocks.min(BLOCKS_X), blocks.div_ceil(BLOCKS_X));
                [x, rows.div_ceil(of_rows), z]
            }
        })
    }
}

/// Submits the dispatches of a batch but for the last ones, which are left in the encoder that is returned: a submit ends before
/// the dispatch with which its work would exceed the device's bound, so that no driver takes a long batch for a hang.
/// `split_floats` are the floats that parts of attention may take, and those of one part of one row.
pub(crate) fn submit_launches(
    device: &Device,
    launches: &[Launch],
    record: &Record,
    (available, of_part): (u64, u64),
    mut encoder: wgpu::CommandEncoder,
) -> wgpu::CommandEncoder {
    let parts = parts(record, (available, of_part));
    let (mut dispatches, mut at) = (0, 0);
    while at < launches.len() {
        let end = at + device.first_submit(&launches[at..], record);
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for launch in &launches[at..end] {
            dispatches += u64::from(launch.encode(&mut pass, record, parts));
        }
        drop(pass);
        at = end;
        if at < launches.len() {
            device.submit(Some(encoder.finish()));
            encoder = device.encoder();
        }
    }
    device.count_dispatches(dispatches);
    encoder
}

/// Parts of attention of the batch's rows; 0: they are not apart.
fn parts(record: &Record, (available, of_part): (u64, u64)) -> u32 {
    let parts = record.longest().div_ceil(PART);
    let rows = u64::from(record.rows(RowSet::All));
    let fits = rows * u64::from(parts) * of_part <= available;
    if parts > 1 && fits { parts } else { 0 }
}

/// Runs the dispatches of a batch as [`submit_launches`] does, each in a pass of its own; returns the names of the kernels and the
/// seconds that each took. `None` where the device has no clock.
pub(crate) fn time_launches(
    device: &Device,
    launches: &[Launch],
    record: &Record,
    split: (u64, u64),
    mut encoder: wgpu::CommandEncoder,
) -> Result<Option<Vec<(String, f64)>>, PrepareError> {
    let Some(times) = Timestamps::new(device, launches.len())? else {
        return Ok(None);
    };
    let parts = parts(record, split);
    let (mut names, mut at) = (Vec::new(), 0);
    while at < launches.len() {
        let end = at + device.first_submit(&launches[at..], record);
        for launch in &launches[at..end] {
            let Some((pipeline, _)) = launch.dispatch(record, parts) else {
                continue;
            };
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: times.of_pass(names.len()),
            });
            launch.encode(&mut pass, record, parts);
            names.push(device.kernel_name(pipeline));
        }
        at = end;
        if at < launches.len() {
            device.submit(Some(encoder.finish()));
            encoder = device.encoder();
        }
    }
    device.count_dispatches(names.len() as u64);
    let seconds = times.read(device, encoder, names.len())?;
    Ok(Some(names.into_iter().zip(seconds).collect()))
}

impl Device {
    /// How many of the dispatches, at least one, are submitted together.
    fn first_submit(&self, launches: &[Launch], record: &Record) -> usize {
        let mut work = 0_u64;
        let exceeds = |launch: &Launch| {
            let rows = record.rows(launch.rows);
            work = work.saturating_add(launch.work.of(rows, record.longest()));
            work > self.submit_work_max()
        };
        let first = launches.iter().position(exceeds);
        first.unwrap_or(launches.len()).max(1)
    }

    pub(super) fn encoder(&self) -> wgpu::CommandEncoder {
        let descriptor = wgpu::CommandEncoderDescriptor::default();
        self.raw().create_command_encoder(&descriptor)
    }
}
