//! Everything that a program has on the device, allocated at load.

use super::device::{Device, DeviceError};
use super::encode::order_words;
use super::pipelines::KernelError;
use super::sources::PART;
use crate::draw_record::draw_bytes;
use crate::layout::quants::{PLANES, RowLayout};
use crate::operation::{MatrixShape, Operation, Program};
use wgpu::BufferUsages;

/// Rows of a batch whose parts of attention may be computed apart.
const SPLIT_ROWS_MAX: u64 = 16;

/// Bytes of the results of parts of attention, at most.
const PARTS_BYTES_MAX: u64 = 64 << 20;

/// The smallest buffer, of which all are multiples.
const LEAST_BYTES: u64 = 16;

/// Bytes of packed rows of which two sets are on their way to the device at once, at most; a single row may be longer.
const UPLOAD_BYTES_MAX: usize = 16 << 20;

/// Why a program is not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// The device failed, or has no memory left.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A kernel is not compiled.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The driver has no memory for a buffer.
    #[error(
        "the driver has no memory for {bytes} bytes of {what}: {held} bytes{} are allocated here",
        of_device(.memory)
    )]
    OutOfMemory {
        /// The buffer that is refused.
        what: String,
        /// Size in bytes.
        bytes: u64,
        /// Bytes that the driver had given before.
        held: u64,
        /// Bytes of the device's memory, where its driver reports them.
        memory: Option<u64>,
    },
    /// Something that must be one buffer is larger than the device's buffers.
    #[error("{what} take {bytes} bytes, the device has buffers of at most {most}")]
    TooLarge {
        /// The buffer that is too large.
        what: String,
        /// Size in bytes.
        bytes: u64,
        /// The device's bound.
        most: u64,
    },
    /// The largest batch would start a kernel with more workgroups than the device allows.
    #[error(
        "kernel `{kernel}` takes {workgroups} workgroups for the largest batch, the device starts at most {most}"
    )]
    Workgroups {
        /// The kernel.
        kernel: String,
        /// Workgroups in the largest dimension.
        workgroups: u32,
        /// The device's bound.
        most: u32,
    },
}

fn of_device(memory: &Option<u64>) -> String {
    memory.map_or_else(String::new, |memory| format!(" of the device's {memory}"))
}

/// Rows of a matrix that are in one buffer for each plane.
pub(crate) struct MatrixPart {
    /// The first row.
    pub(crate) first: u32,
    /// Number of rows.
    pub(crate) rows: u32,
    /// The planes; `None` where the format has none.
    pub(crate) planes: [Option<wgpu::Buffer>; PLANES],
}

/// A matrix on the device.
pub(crate) struct DeviceMatrix {
    pub(crate) layout: RowLayout,
    /// Parts by rows, ascending.
    pub(crate) parts: Vec<MatrixPart>,
}

/// Buffers of a program.
pub(crate) struct Memory {
    pub(crate) buffers: Vec<wgpu::Buffer>,
    pub(crate) vectors: wgpu::Buffer,
    pub(crate) matrices: Vec<DeviceMatrix>,
    /// Keys and values of each layer of each cache.
    pub(crate) caches: Vec<Vec<[wgpu::Buffer; 2]>>,
    /// The two parts of the states of each recurrent layer.
    pub(crate) states: Vec<[wgpu::Buffer; 2]>,
    pub(crate) record: wgpu::Buffer,
    /// Results of parts of attention.
    pub(crate) parts: wgpu::Buffer,
    /// Choices of experts, sorted, in batches of many rows.
    pub(crate) order: wgpu::Buffer,
    /// Stand in where a kernel has no buffer: the first is only read.
    pub(crate) nothing: [wgpu::Buffer; 2],
    /// The record of draws, results, and drawn tokens.
    pub(crate) draws: [wgpu::Buffer; 3],
    /// Results that the host reads after a batch.
    pub(crate) staging: wgpu::Buffer,
    /// Guesses of an MTP head that the host reads, perhaps while results are on their way.
    pub(crate) guesses: wgpu::Buffer,
    /// A page that the host reads, perhaps while results are on their way.
    pub(crate) exported: wgpu::Buffer,
    /// A page on its way to another one.
    pub(crate) page: wgpu::Buffer,
    /// Packed rows on their way to the device, by plane.
    uploads: [Vec<u32>; PLANES],
}

impl Memory {
    pub(crate) fn new(device: &Device, program: &Program) -> Result<Self, PrepareError> {
        let storage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
        let all = storage | BufferUsages::COPY_SRC;
        let one = |what: &str, bytes: u64, usage| buffer(device, what, bytes, usage);
        let activations = 0..program.buffers.len();
        let matrices = program.matrices.iter();
        let caches = program.caches.iter();
        let pages = caches.clone().map(|cache| cache.page_bytes()).max();
        let read = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let [draws, _, results, tokens] = draw_bytes(program);
        let memory = Self {
            buffers: activations
                .map(|index| one("activations", activation_bytes(program, index), all))
                .collect::<Result<_, _>>()?,
            vectors: one("vectors", program.vectors.len() as u64 * 4, storage)?,
            matrices: matrices
                .map(|shape| matrix(device, shape))
                .collect::<Result<_, _>>()?,
            caches: caches
                .map(|cache| {
                    let part = || one("the pages of a layer", cache.layer_bytes(), all);
                    let layers = 0..cache.layers;
                    layers.map(|_| Ok([part()?, part()?])).collect()
                })
                .collect::<Result<_, PrepareError>>()?,
            states: states(device, program)?,
            record: one(
                "the record",
                u64::from(program.record_words_max) * 4,
                storage,
            )?,
            parts: one("parts of attention", parts_bytes(program), storage)?,
            order: one("choices of experts", order_words(program) * 4, storage)?,
            nothing: [one("nothing", 16, storage)?, one("nothing", 16, storage)?],
            draws: [
                one("the record of draws", draws, storage)?,
                one("results of draws", results, all)?,
                one("drawn tokens", tokens, storage)?,
            ],
            staging: one("outputs", staged_bytes(program), read)?,
            guesses: one("guesses", guess_bytes(program), read)?,
            exported: one("an exported page", page_bytes(program), read)?,
            page: one(
                "a page",
                pages.unwrap_or(0),
                BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
            )?,
            uploads: Default::default(),
        };
        let vectors = bytemuck::cast_slice(&program.vectors);
        device.queue().write_buffer(&memory.vectors, 0, vectors);
        device.check()?;
        Ok(memory)
    }

    /// Bytes of all buffers.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        let matrices = self.matrices.iter().flat_map(|matrix| &matrix.parts);
        let planes = matrices.flat_map(|part| part.planes.iter().flatten());
        let caches = self.caches.iter().flatten().flatten();
        let others = [
            &self.vectors,
            &self.record,
            &self.parts,
            &self.order,
            &self.staging,
            &self.guesses,
            &self.exported,
            &self.page,
        ];
        let states = self.states.iter().flatten();
        let all = planes.chain(caches).chain(states).chain(&self.buffers);
        let all = all.chain(others).chain(&self.nothing).chain(&self.draws);
        all.map(wgpu::Buffer::size).sum()
    }

    /// Writes whole rows of the file, `raw`, to rows of a matrix from `first` on.
    ///
    /// # Errors
    /// The device fails.
    ///
    /// # Panics
    /// If the matrix does not have these rows, or the bytes are no whole number of rows.
    pub(crate) fn upload(
        &mut self,
        device: &Device,
        matrix: usize,
        first: u32,
        raw: &[u8],
    ) -> Result<(), DeviceError> {
        let layout = self.matrices[matrix].layout;
        assert!(raw.len().is_multiple_of(layout.file_bytes()), "whole rows");
        let per_upload = (UPLOAD_BYTES_MAX / (4 * layout.row_words())).max(1);
        let mut row = first;
        let mut before = None;
        for chunk in raw.chunks(per_upload * layout.file_bytes()) {
            layout.write_rows(chunk, &mut self.uploads);
            let rows = (chunk.len() / layout.file_bytes()) as u32;
            self.write(device, matrix, row, rows);
            // The next rows are packed while these are on their way.
            let after = before.replace(device.submit(None));
            after.map_or(Ok(()), |submission| device.wait(submission))?;
            row += rows;
        }
        before.map_or(Ok(()), |submission| device.wait(submission))
    }

    /// Writes the packed rows to the parts that have them.
    fn write(&self, device: &Device, matrix: usize, first: u32, rows: u32) {
        let matrix = &self.matrices[matrix];
        let end = first + rows;
        let covered = matrix.parts.last().map_or(0, |part| part.first + part.rows);
        assert!(end <= covered, "row {end} of {covered}");
        for part in &matrix.parts {
            let from = first.max(part.first);
            let to = end.min(part.first + part.rows);
            if from >= to {
                continue;
            }
            let planes = part.planes.iter().zip(&self.uploads);
            for ((plane, packed), words) in planes.zip(matrix.layout.words) {
                let Some(plane) = plane else { continue };
                let packed =
                    &packed[(from - first) as usize * words..][..(to - from) as usize * words];
                let at = u64::from(from - part.first) * words as u64 * 4;
                let bytes = bytemuck::cast_slice(packed);
                device.queue().write_buffer(plane, at, bytes);
            }
        }
    }
}

/// Bytes of a program on the device, but for matrices, caches and states.
pub(crate) fn scratch_bytes(program: &Program) -> u64 {
    let size = |bytes: u64| bytes.max(LEAST_BYTES).next_multiple_of(LEAST_BYTES);
    let buffers = 0..program.buffers.len();
    let buffers = buffers.map(|index| size(activation_bytes(program, index)));
    let page = program.caches.iter().map(|cache| cache.page_bytes()).max();
    let others = [
        program.vectors.len() as u64 * 4,
        u64::from(program.record_words_max) * 4,
        parts_bytes(program),
        order_words(program) * 4,
        staged_bytes(program),
        guess_bytes(program),
        page_bytes(program),
        page.unwrap_or(0),
        LEAST_BYTES,
        LEAST_BYTES,
    ];
    let [draws, _, results, tokens] = draw_bytes(program);
    let draws = [draws, results, tokens].map(size);
    buffers.chain(others.map(size)).chain(draws).sum()
}

/// Bytes of a buffer; adjusted logits are behind the logits that are drawn from.
fn activation_bytes(program: &Program, index: usize) -> u64 {
    let [_, adjusted, ..] = draw_bytes(program);
    let logits = program.draws.map(|draws| draws.logits.0 as usize);
    let behind = if logits == Some(index) { adjusted } else { 0 };
    program.buffers[index].bytes() + behind
}

/// Bytes of the keys and values of a page in all layers of all caches.
pub(crate) fn page_bytes(program: &Program) -> u64 {
    let bytes = program.caches.iter();
    bytes
        .map(|cache| 2 * u64::from(cache.layers) * cache.page_bytes())
        .sum()
}

/// Floats of the parts of attention of one row, in the widest attention.
pub(crate) fn part_floats(program: &Program) -> u64 {
    let widths = program.all_steps().map(|step| match step.operation {
        Operation::Attend { heads, cache, .. } => {
            let stride = program.caches[cache.0 as usize].stride();
            u64::from(heads) * u64::from(stride + 4)
        }
        _ => 0,
    });
    widths.max().unwrap_or(0)
}

fn parts_bytes(program: &Program) -> u64 {
    let parts = u64::from(program.context_max.div_ceil(PART));
    let rows = SPLIT_ROWS_MAX.min(u64::from(program.rows_max));
    (part_floats(program) * parts * rows * 4).min(PARTS_BYTES_MAX)
}

/// Bytes of the logits of all guesses.
fn guess_bytes(program: &Program) -> u64 {
    let logits = program.draws.filter(|_| !program.guesses.is_empty());
    logits.map_or(0, |draws| program.buffers[draws.logits.0 as usize].bytes())
}

/// Bytes of all outputs, and of the results of draws.
fn staged_bytes(program: &Program) -> u64 {
    let [_, _, results, _] = draw_bytes(program);
    let outputs = program.outputs.iter();
    let outputs = outputs.map(|output| program.buffers[output.0 as usize].bytes());
    results + outputs.sum::<u64>()
}

/// A buffer, zeroed.
pub(crate) fn buffer(
    device: &Device,
    what: &str,
    bytes: u64,
    usage: BufferUsages,
) -> Result<wgpu::Buffer, PrepareError> {
    let facts = device.facts();
    let most = if usage.contains(BufferUsages::STORAGE) {
        facts.binding_bytes_max.min(facts.buffer_bytes_max)
    } else {
        facts.buffer_bytes_max
    };
    if bytes > most {
        let what = what.to_owned();
        return Err(PrepareError::TooLarge { what, bytes, most });
    }
    device.count_buffer();
    let made = device.checked(|device| {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes.max(LEAST_BYTES).next_multiple_of(LEAST_BYTES),
            usage,
            mapped_at_creation: false,
        })
    });
    made.map_err(|error| match error {
        DeviceError::OutOfMemory => PrepareError::OutOfMemory {
            what: what.to_owned(),
            bytes,
            held: device.held_bytes(),
            memory: facts.memory_bytes,
        },
        error => error.into(),
    })
}

/// The two parts of the states of each recurrent layer.
fn states(device: &Device, program: &Program) -> Result<Vec<[wgpu::Buffer; 2]>, PrepareError> {
    let Some(shape) = program.states else {
        return Ok(Vec::new());
    };
    let storage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
    let part = |bytes| buffer(device, "the states of a layer", bytes, storage);
    let [conv, scan] = shape.layer_bytes();
    let layers = (0..shape.layers).map(|_| [conv, scan]);
    let hidden = (shape.hidden > 0).then(|| [shape.hidden_bytes(), 0]);
    let sizes = layers.chain(hidden);
    sizes
        .map(|[conv, scan]| Ok([part(conv)?, part(scan)?]))
        .collect()
}

fn matrix(device: &Device, shape: &MatrixShape) -> Result<DeviceMatrix, PrepareError> {
    let layout = RowLayout::of(shape.format, shape.cols as usize);
    let facts = device.facts();
    let most = facts.binding_bytes_max.min(facts.buffer_bytes_max);
    let ranges = part_ranges(shape, &layout, most)?;
    let storage = BufferUsages::STORAGE | BufferUsages::COPY_DST;
    let part = |(first, rows): (u32, u32)| {
        let mut planes = [None, None, None];
        for (plane, words) in planes.iter_mut().zip(layout.words) {
            if words > 0 {
                let bytes = u64::from(rows) * words as u64 * 4;
                *plane = Some(buffer(device, "weights", bytes, storage)?);
            }
        }
        Ok(MatrixPart {
            first,
            rows,
            planes,
        })
    };
    let parts: Result<_, PrepareError> = ranges.into_iter().map(part).collect();
    Ok(DeviceMatrix {
        layout,
        parts: parts?,
    })
}

/// First row and number of rows of the parts of a matrix, none of which has a plane of more than `most` bytes.
fn part_ranges(
    shape: &MatrixShape,
    layout: &RowLayout,
    most: u64,
) -> Result<Vec<(u32, u32)>, PrepareError> {
    let longest = layout.words.iter().max().copied().unwrap_or(0).max(1) as u64 * 4;
    let unit = shape.unit_rows.max(1);
    let per_part = (most / longest).min(u64::from(u32::MAX)) as u32 / unit * unit;
    if per_part == 0 {
        return Err(PrepareError::TooLarge {
            what: "rows of a matrix that stay together".into(),
            bytes: longest * u64::from(unit),
            most,
        });
    }
    let starts = (0..shape.rows).step_by(per_part as usize);
    Ok(starts
        .map(|first| (first, per_part.min(shape.rows - first)))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::Format;

    #[test]
    fn parts_cover_all_rows_and_keep_units_together() {
        for (rows, unit, most) in [(10, 1, 4096), (12, 3, 4096), (7, 1, 1024), (1, 1, 1 << 30)] {
            let shape = MatrixShape {
                format: Format::F32,
                rows,
                cols: 256,
                unit_rows: unit,
            };
            let layout = RowLayout::of(shape.format, 256);
            let ranges = part_ranges(&shape, &layout, most).expect("rows that fit");
            let mut next = 0;
            for (first, rows) in ranges {
                assert_eq!(first, next);
                assert!(first % unit == 0 && u64::from(rows) * 1024 <= most);
                next = first + rows;
            }
            assert_eq!(next, rows);
        }
    }

    #[test]
    fn row_larger_than_a_binding_is_refused() {
        let shape = MatrixShape {
            format: Format::F32,
            rows: 4,
            cols: 256,
            unit_rows: 2,
        };
        let layout = RowLayout::of(shape.format, 256);
        let refused = part_ranges(&shape, &layout, 2047);
        assert!(matches!(
            refused,
            Err(PrepareError::TooLarge { bytes: 2048, .. })
        ));
    }
}
