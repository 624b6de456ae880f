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
use model::adapters::SEQUENCE_ADAPTERS_MAX;

/// Workgroups in the x dimension before z counts on, as the kernels have it.
const BLOCKS_X: u32 = 32768;

/// Words of the constants of one dispatch.
pub(super) const CONSTANT_WORDS: usize = IMMEDIATE_BYTES as usize / 4;

/// Words that depend on the batch, at the beginning.
pub(super) const BATCH_WORDS: usize = 11;

/// How many workgroups a dispatch has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Grid {
    /// As many for each row.
    Rows(u32),
    /// For outputs of a matrix.
    Matmul { outputs: u32 },
    /// As many for each row and part of attention; rows of long spans have nothing to do if `tiled`.
    Attend { blocks: u32, tiled: bool },
    /// For outputs of the experts that a row chose.
    Choices { outputs: u32, used: u32 },
    /// As many for each span, and for each state that it writes if `writes`.
    Spans { blocks: u32, writes: bool },
    /// For outputs of the experts, and tiles of sorted choices.
    Tiles { outputs: u32, count: u32, used: u32 },
    /// As many for each row, and for each of its adapters if `each`, if any row has one.
    Adapters { blocks: u32, each: bool },
    /// One for each row, if any row is a vector.
    Vectors,
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

/// A part of a dispatch: its first workgroup in x and y, and the numbers of workgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    first: [u32; 2],
    workgroups: [u32; 3],
}

impl Piece {
    /// The parts of a dispatch with their work, none of which has more than `most`, or one workgroup in x and y.
    fn of_dispatch([x, y, z]: [u32; 3], work: u64, most: u64) -> impl Iterator<Item = (Self, u64)> {
        let blocks = u128::from(x) * u128::from(y);
        let of_piece = move |[x, y, _]: [u32; 3]| {
            let some = u128::from(x) * u128::from(y) * u128::from(work);
            (some / blocks.max(1)) as u64
        };
        let each = blocks * u128::from(most) / u128::from(work.max(1));
        let each = u32::try_from(each).unwrap_or(u32::MAX).max(1);
        let (wide, tall) = if work <= most {
            (x, y)
        } else {
            (each.min(x), (each / x.max(1)).max(1))
        };
        let rows = (0..y).step_by(tall.max(1) as usize);
        rows.flat_map(move |at_y| {
            let columns = (0..x).step_by(wide.max(1) as usize);
            columns.map(move |at_x| {
                let workgroups = [wide.min(x - at_x), tall.min(y - at_y), z];
                let first = [at_x, at_y];
                (Self { first, workgroups }, of_piece(workgroups))
            })
        })
    }
}

impl Launch {
    /// The dispatch of a batch, if there is anything to do.
    fn dispatch(&self, record: &Record, parts: u32) -> Option<(&wgpu::ComputePipeline, [u32; 3])> {
        let spans = match self.grid {
            Grid::Prompts { .. } => record.tiles(),
            Grid::Vectors => record.vectors(),
            Grid::Adapters { .. } => record.place(self.rows).adapters_at,
            _ => record.span_place()[1],
        };
        self.workgroups(record.rows(self.rows), parts, spans)
    }

    /// The work in a batch.
    fn work_of(&self, record: &Record) -> u64 {
        let rows = match self.grid {
            Grid::Prompts { .. } => record.tiled_rows(),
            Grid::Attend { tiled: true, .. } => record.rows(self.rows) - record.tiled_rows(),
            _ => record.rows(self.rows),
        };
        self.work.of(rows, record.longest())
    }

    /// Adds a part of the dispatch to a pass.
    fn encode(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        pipeline: &wgpu::ComputePipeline,
        record: &Record,
        (parts, piece): (u32, Piece),
    ) {
        let place = record.place(self.rows);
        let mut constants = [0; CONSTANT_WORDS];
        let [a, b] = place.angles_at;
        let [spans_at, spans] = record.span_place();
        let batch: [u32; BATCH_WORDS] = [
            place.rows,
            place.rows_at,
            a,
            b,
            record.tables_at(),
            parts,
            spans_at,
            spans,
            piece.first[0],
            piece.first[1],
            place.adapters_at,
        ];
        constants[..BATCH_WORDS].copy_from_slice(&batch);
        let end = BATCH_WORDS + self.constants.len();
        constants[BATCH_WORDS..end].copy_from_slice(&self.constants);
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &self.buffers, &[]);
        pass.set_immediates(0, bytemuck::cast_slice(&constants[..end]));
        let [x, y, z] = piece.workgroups;
        pass.dispatch_workgroups(x, y, z);
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
            Self::Adapters { blocks, each } if spans > 0 => {
                let adapters = if each {
                    SEQUENCE_ADAPTERS_MAX as u32
                } else {
                    1
                };
                [blocks, rows, adapters]
            }
            Self::Adapters { .. } => return None,
            Self::Vectors if spans > 0 => [1, rows, 1],
            Self::Vectors => return None,
            Self::One => [1; 3],
            Self::Attend { blocks, .. } => [blocks, rows, parts.max(1)],
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
/// the dispatch with which its work would exceed the device's bound, and a dispatch that exceeds it alone is cut, so that no
/// driver takes a long batch for a hang.
/// `split_floats` are the floats that parts of attention may take, and those of one part of one row.
pub(crate) fn submit_launches(
    device: &Device,
    launches: &[Launch],
    record: &Record,
    (available, of_part): (u64, u64),
    mut encoder: wgpu::CommandEncoder,
) -> wgpu::CommandEncoder {
    let parts = parts(record, (available, of_part));
    let most = device.submit_work_max();
    let (mut dispatches, mut done) = (0, 0_u64);
    device.count_work(work_of(launches, record));
    let begin = |encoder: &mut wgpu::CommandEncoder| {
        let pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.forget_lifetime()
    };
    let mut pass = begin(&mut encoder);
    for launch in launches {
        let Some((pipeline, workgroups)) = launch.dispatch(record, parts) else {
            continue;
        };
        for (piece, work) in Piece::of_dispatch(workgroups, launch.work_of(record), most) {
            if done > 0 && done.saturating_add(work) > most {
                drop(pass);
                device.submit(Some(encoder.finish()));
                encoder = device.encoder();
                pass = begin(&mut encoder);
                done = 0;
            }
            done = done.saturating_add(work);
            launch.encode(&mut pass, pipeline, record, (parts, piece));
            dispatches += 1;
        }
    }
    drop(pass);
    device.count_dispatches(dispatches);
    encoder
}

/// The work of all dispatches in a batch.
fn work_of(launches: &[Launch], record: &Record) -> u64 {
    let works = launches.iter().map(|launch| launch.work_of(record));
    works.fold(0, u64::saturating_add)
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
    let most = device.submit_work_max();
    device.count_work(work_of(launches, record));
    let (mut names, mut done) = (Vec::new(), 0_u64);
    for launch in launches {
        let Some((pipeline, workgroups)) = launch.dispatch(record, parts) else {
            continue;
        };
        for (piece, work) in Piece::of_dispatch(workgroups, launch.work_of(record), most) {
            if done > 0 && done.saturating_add(work) > most {
                device.submit(Some(encoder.finish()));
                encoder = device.encoder();
                done = 0;
            }
            done = done.saturating_add(work);
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: None,
                timestamp_writes: times.of_pass(names.len()),
            });
            launch.encode(&mut pass, pipeline, record, (parts, piece));
            names.push(device.kernel_name(pipeline));
        }
    }
    device.count_dispatches(names.len() as u64);
    let seconds = times.read(device, encoder, names.len())?;
    Ok(Some(names.into_iter().zip(seconds).collect()))
}

impl Device {
    pub(super) fn encoder(&self) -> wgpu::CommandEncoder {
        let descriptor = wgpu::CommandEncoderDescriptor::default();
        self.raw().create_command_encoder(&descriptor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_dispatch_cover_it_and_keep_the_bound() {
        for (workgroups, work, most) in [
            ([7, 5, 2], 700, 1000),
            ([7, 5, 2], 700, 150),
            ([7, 5, 2], 700, 60),
            ([7, 5, 2], 700, 0),
            ([1, 1, 1], u64::MAX, 10),
            ([32_768, 65_535, 3], u64::MAX, u64::MAX / 9),
        ] {
            let [x, y, z] = workgroups;
            let of_one = work / u64::from(x) / u64::from(y);
            let (mut covered, mut all) = (0, 0);
            for (piece, work) in Piece::of_dispatch(workgroups, work, most) {
                let [wide, tall, deep] = piece.workgroups;
                assert!(deep == z && wide > 0 && tall > 0);
                let [at_x, at_y] = piece.first;
                assert!(at_x + wide <= x && at_y + tall <= y, "{piece:?}");
                assert!(work <= most.max(of_one), "{piece:?}: {work}");
                covered += u64::from(wide) * u64::from(tall);
                all += work;
            }
            assert_eq!(covered, u64::from(x) * u64::from(y));
            assert!(all <= work);
        }
    }
}
