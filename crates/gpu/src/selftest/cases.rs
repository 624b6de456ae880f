//! Small programs of one kind of operation each, on odd shapes.

mod attention;
mod experts;
mod recurrent;
mod rows;

use attention::{HeadShape, heads};
pub(super) use attention::{attend, attend_tiles};
#[cfg(test)]
pub(super) use recurrent::scan;

use super::twin::pages::rounded;
use crate::operation::{
    At, CacheId, CacheShape, MatrixId, MatrixShape, Norm, Operation, Program, RowSet, ScanHeads,
    VectorId,
};
use crate::record::{Record, Row};
use crate::webgpu::sources::PROMPT_HEAD_MAX;
use kernels::{Format, KvKind, QuantBlock, QuantFormat, dequantize};
use model::VECTOR;

/// The largest error of a result, relative to the length of the twin's result.
pub(super) const ERROR_MAX: f64 = 1e-5;

/// The same for products on matrix units, whose factors have 11 bits.
const MATRIX_ERROR_MAX: f64 = 2e-3;

/// Rows of the numbers that choose other variants of a product: few, and tiles.
const FEW_ROWS: [u32; 4] = [1, 2, 3, 11];
const TILED_ROWS: [u32; 2] = [20, 70];

/// Rows of the numbers that choose other variants of a product on matrix units.
const MATRIX_ROWS: [u32; 3] = [20, 61, 150];

/// Rows of batches with experts: few, and tiles.
const EXPERT_ROWS: u32 = 5;
const EXPERT_TILED_ROWS: u32 = 52;

/// Formats whose kernels are checked in all variants by the test of a device; those of a program always are.
const USUAL: [Format; 8] = [
    Format::F32,
    Format::F16,
    Format::BF16,
    Format::Q4_0,
    Format::Q8_0,
    Format::Q4_K,
    Format::Q6_K,
    Format::MXFP4,
];

/// Heads of scans: key heads, value heads, elements of keys and of values, order of the keys, rule.
pub(super) const SCANS: [ScanHeads; 3] = [
    scan_heads([2, 4, 128, 128], true, true),
    scan_heads([2, 6, 20, 16], false, true),
    scan_heads([1, 3, 64, 32], true, false),
];

const fn scan_heads(sizes: [u32; 4], grouped: bool, delta: bool) -> ScanHeads {
    let [key_heads, value_heads, key_dim, value_dim] = sizes;
    ScanHeads {
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        grouped,
        delta,
    }
}

/// A program with all that it needs.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) name: String,
    /// The largest error of a buffer.
    pub(super) error_max: f64,
    pub(super) program: Program,
    /// The rows of a batch before, whose states are read.
    pub(super) earlier: Option<Record>,
    pub(super) record: Record,
    /// `(rows, cols)` of each buffer.
    pub(super) buffers: Vec<Vec<f32>>,
    /// Bytes of each matrix, as in a file.
    pub(super) matrices: Vec<Vec<u8>>,
    /// Keys and values of each layer.
    pub(super) caches: Vec<Vec<[Vec<f32>; 2]>>,
}

impl Case {
    /// The matrices' weights.
    pub(super) fn weights(&self) -> Vec<Vec<f32>> {
        let matrices = self.program.matrices.iter().zip(&self.matrices);
        let weights = matrices.map(|(shape, raw)| {
            let mut weights = vec![0.0; (shape.rows * shape.cols) as usize];
            dequantize(shape.format, raw, &mut weights);
            weights
        });
        weights.collect()
    }
}

/// All cases.
pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for format in Format::ALL {
        cases.push(embed(format));
        // The variants of a kernel read weights by the same function: two of them show it for the other formats.
        if USUAL.contains(&format) {
            for check in [
                Check::Matmul(format),
                Check::MatmulTiles(format),
                Check::Experts(format),
                Check::ExpertTiles(format),
            ] {
                cases.extend(check.cases());
            }
        } else {
            cases.extend([exact(matmul(format, 1)), matmul(format, 70)]);
            cases.extend(Check::Experts(format).cases());
        }
    }
    cases.extend([rows::norms(), rows::add(), rows::activate(), rows::finish()]);
    cases.extend([rows::vectors(), rows::adapters(), rows::gather()]);
    cases.push(experts::copy_parts());
    cases.push(recurrent::convolution());
    cases.extend(SCANS.map(recurrent::scan));
    let [f16, q8, q4] = KvKind::ALL;
    for shape in [
        (64, 2, 4, 32, f16),
        (80, 1, 3, 16, f16),
        (128, 2, 16, 32, f16),
        (5, 3, 3, 7, f16),
        (80, 2, 3, 16, q8),
        (128, 1, 4, 32, q8),
        (80, 2, 3, 16, q4),
        (128, 1, 4, 32, q4),
    ] {
        cases.push(heads(shape));
        cases.extend([false, true].map(|long| attend(shape, long)));
        cases.push(attend_tiles(shape));
    }
    cases.push(heads((256, 1, 4, 32, f16)));
    cases.push(attend((256, 1, 4, 32, f16), true));
    cases.push(attend_tiles((256, 1, 2, 32, f16)));
    cases.push(attend((512, 1, 2, 32, f16), true));
    cases.push(attend((576, 1, 4, 32, f16), true));
    cases
}

/// Cases that check the kernels of an operation, whatever its sizes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Check {
    Embed(Format),
    Matmul(Format),
    MatmulTiles(Format),
    OnMatrixUnits(Format),
    Experts(Format),
    ExpertTiles(Format),
    Norms,
    Add,
    Vectors,
    Adapters,
    Activate,
    Finish,
    Gather,
    CopyParts,
    Convolution,
    Scan(ScanHeads),
    /// Of so many elements, to pages of a format.
    Heads(u32, KvKind),
    Attend(HeadShape),
    AttendTiles(HeadShape),
    /// Of tokens: has cases of its own.
    Draws,
}

impl Check {
    /// The checks of a program's kernels, each once; `has_units`: where most products run on matrix units.
    pub(super) fn of_program(program: &Program, has_units: bool) -> Vec<Self> {
        let mut checks = Vec::new();
        for step in program.all_steps() {
            let few = Self::of(program, &step.operation);
            let tiles = few.and_then(|few| few.of_many_rows(program, has_units));
            for check in few.into_iter().chain(tiles) {
                if !checks.contains(&check) {
                    checks.push(check);
                }
            }
        }
        checks
    }

    /// The check of the kernels that take the place of those of this one in batches of many rows, if the program has some.
    fn of_many_rows(self, program: &Program, has_units: bool) -> Option<Self> {
        if program.exact {
            return None;
        }
        let on_units = |format| has_units && program.on_matrix_units && format != Format::F32;
        match self {
            Self::Matmul(format) if !on_units(format) => Some(Self::MatmulTiles(format)),
            Self::Experts(format) => Some(Self::ExpertTiles(format)),
            Self::Attend(shape) if shape.0 <= PROMPT_HEAD_MAX => Some(Self::AttendTiles(shape)),
            _ => None,
        }
    }

    /// Whether the kernels are for batches of many rows alone, which those of few compute as well.
    pub(super) fn is_of_many_rows(self) -> bool {
        matches!(
            self,
            Self::MatmulTiles(_)
                | Self::OnMatrixUnits(_)
                | Self::ExpertTiles(_)
                | Self::AttendTiles(_)
        )
    }

    fn of(program: &Program, operation: &Operation) -> Option<Self> {
        let format = |matrix: MatrixId| program.matrices[matrix.0 as usize].format;
        Some(match *operation {
            Operation::Embed { table, .. } => Self::Embed(format(table)),
            Operation::Matmul { matrix, .. } => Self::Matmul(format(matrix)),
            Operation::Norm { .. } | Operation::NormParts { .. } => Self::Norms,
            Operation::Add { .. } => Self::Add,
            Operation::Vectors { .. } => Self::Vectors,
            Operation::AdaptDown { .. } | Operation::AdaptUp { .. } => Self::Adapters,
            Operation::Heads { head_dim, .. } => {
                let cache = program.caches.first();
                Self::Heads(head_dim, cache.map_or(KvKind::F16, |cache| cache.kind))
            }
            Operation::Attend { heads, cache, .. } => {
                let shape = program.caches[cache.0 as usize];
                let group = (heads / shape.kv_heads.max(1)).max(1);
                let (tokens, kind) = (shape.page_tokens, shape.kind);
                Self::Attend((shape.head_dim, 1, group, tokens, kind))
            }
            Operation::Activate { .. } => Self::Activate,
            Operation::Finish { .. } => Self::Finish,
            Operation::Gather { .. } => Self::Gather,
            Operation::Convolve { .. } | Operation::Share { .. } | Operation::AddParts { .. } => {
                Self::Convolution
            }
            Operation::Scan { .. } => Self::Scan(ScanHeads {
                key_heads: 1,
                value_heads: 2,
                ..program.states?.scan?
            }),
            Operation::ExpertMatmul { stack, .. } => Self::Experts(format(stack)),
            Operation::CopyParts { .. } => Self::CopyParts,
            // With the scan, and with the products of experts.
            Operation::ScanGates { .. } | Operation::Route { .. } | Operation::Combine { .. } => {
                return None;
            }
        })
    }

    /// The cases.
    pub(super) fn cases(self) -> Vec<Case> {
        match self {
            Self::Embed(format) => vec![embed(format)],
            Self::Matmul(format) => FEW_ROWS.map(|rows| exact(matmul(format, rows))).to_vec(),
            Self::MatmulTiles(format) => TILED_ROWS.map(|rows| matmul(format, rows)).to_vec(),
            Self::OnMatrixUnits(format) => MATRIX_ROWS
                .map(|rows| on_matrix_units(format, rows))
                .to_vec(),
            Self::Experts(format) => vec![exact(experts::experts(format, EXPERT_ROWS))],
            Self::ExpertTiles(format) => vec![experts::experts(format, EXPERT_TILED_ROWS)],
            Self::Norms => vec![rows::norms()],
            Self::Add => vec![rows::add()],
            Self::Vectors => vec![rows::vectors()],
            Self::Adapters => vec![rows::adapters()],
            Self::Activate => vec![rows::activate()],
            Self::Finish => vec![rows::finish()],
            Self::Gather => vec![rows::gather()],
            Self::CopyParts => vec![experts::copy_parts()],
            Self::Convolution => vec![recurrent::convolution()],
            Self::Scan(heads) => vec![recurrent::scan(heads)],
            Self::Heads(head_dim, kind) => vec![heads((head_dim, 2, 4, 16, kind))],
            Self::Attend(shape) => vec![exact(attend(shape, true))],
            Self::AttendTiles(shape) => vec![attend_tiles(shape)],
            Self::Draws => Vec::new(),
        }
    }
}

/// A case without kernels for many rows, which are not compiled then.
pub(super) fn exact(mut case: Case) -> Case {
    case.program.exact = true;
    case
}

/// A table of numbers that look random.
pub(super) struct Noise(pub(super) u32);

impl Noise {
    pub(super) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    /// Between -1 and 1.
    pub(super) fn float(&mut self) -> f32 {
        self.next() as f32 / (1 << 23) as f32 - 1.0
    }

    pub(super) fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.float()).collect()
    }

    /// Blocks of any bits whose scales are of moderate size.
    fn blocks(&mut self, format: Format, weights: usize) -> Vec<u8> {
        let Some(quant) = QuantFormat::of(format) else {
            return kernels::quantize(format, &self.floats(weights));
        };
        let mut raw = Vec::new();
        let mut block = QuantBlock::default();
        for _ in 0..weights / format.block_weights() {
            loop {
                let bytes: Vec<u8> = (0..format.block_bytes())
                    .map(|_| self.next() as u8)
                    .collect();
                block.decode(format, &bytes);
                let subs = 0..quant.weights / quant.sub_block_weights();
                let mut scales = subs.map(|sub| block.scale_and_shift(&quant, sub));
                let is_moderate = |x: f32| x.abs() < 8.0;
                let moderate = scales
                    .all(|(scale, shift)| is_moderate(scale) && shift.is_none_or(is_moderate));
                if moderate
                    && (quant.weights > 32 || block.scale_and_shift(&quant, 0).0.abs() > 1e-3)
                {
                    raw.extend(bytes);
                    break;
                }
            }
        }
        raw
    }
}

/// Puts a program together.
struct Builder {
    noise: Noise,
    case: Case,
}

impl Builder {
    fn new(name: String) -> Self {
        let program = Program {
            rows_max: 52,
            context_max: 1024,
            ..Program::default()
        };
        let mut record = Record::default();
        record.clear();
        Self {
            noise: Noise(name.bytes().fold(7, |seed, byte| {
                u32::from(byte).wrapping_add(seed).wrapping_mul(31)
            })),
            case: Case {
                name,
                error_max: ERROR_MAX,
                program,
                earlier: None,
                record,
                buffers: Vec::new(),
                matrices: Vec::new(),
                caches: Vec::new(),
            },
        }
    }

    /// A buffer with contents.
    fn buffer(&mut self, rows: u32, cols: u32) -> At {
        let contents = self.noise.floats((rows * cols) as usize);
        self.case.buffers.push(contents);
        At::start(self.case.program.buffer(rows, cols))
    }

    fn matrix(&mut self, format: Format, rows: u32, cols: u32) -> MatrixId {
        let raw = self.noise.blocks(format, (rows * cols) as usize);
        self.case.matrices.push(raw);
        self.case.program.matrix(MatrixShape {
            format,
            rows,
            cols,
            unit_rows: 1,
        })
    }

    /// Matrices of one shape.
    fn stack(&mut self, format: Format, count: u32, rows: u32, cols: u32) -> MatrixId {
        let stack = self.matrix(format, count * rows, cols);
        self.case.program.matrices[stack.0 as usize].unit_rows = rows;
        stack
    }

    fn vector(&mut self, len: u32) -> VectorId {
        let vector = self.noise.floats(len as usize);
        self.case.program.vector(&vector)
    }

    /// A norm with all its parts, or with none.
    fn norm(&mut self, len: u32, whole: bool) -> Norm {
        Norm {
            weight: whole.then(|| self.vector(len)),
            bias: whole.then(|| self.vector(len)),
            centered: whole,
            eps: 1e-5,
        }
    }

    fn rows(&mut self, set: RowSet, rows: &[Row], angles: [&[f32]; 2]) {
        self.case.record.set(set, rows, angles);
    }

    /// Rows about which nothing but their number matters.
    fn plain_rows(&mut self, count: u32) {
        self.rows(RowSet::All, &vec![Row::default(); count as usize], [&[]; 2]);
    }

    fn push(&mut self, operation: Operation) {
        self.case.program.push(RowSet::All, operation);
    }

    fn cache(&mut self, shape: CacheShape) -> CacheId {
        let rows = shape.pages * shape.kv_heads * shape.page_tokens;
        let mut part = || {
            let mut values = Vec::new();
            for _ in 0..rows {
                let first = values.len();
                let head = self.noise.floats(shape.head_dim as usize);
                values.extend(rounded(shape.kind, &head));
                values.resize(first + shape.stride() as usize, 0.0);
            }
            values
        };
        let layers = (0..shape.layers).map(|_| [part(), part()]);
        let layers: Vec<_> = layers.collect();
        self.case.caches.push(layers);
        self.case.program.cache(shape)
    }
}

/// Columns of an odd number of blocks.
fn odd_cols(format: Format) -> u32 {
    match format.block_weights() {
        1 => 37,
        32 => 37 * 32,
        _ => 5 * 256,
    }
}

pub(super) fn matmul(format: Format, rows: u32) -> Case {
    let mut builder = Builder::new(format!("matmul {format:?}, {rows} rows"));
    let cols = odd_cols(format);
    let matrix = builder.matrix(format, 71, cols);
    let input = builder.buffer(rows, cols);
    let [plain, added] = [78, 71].map(|cols| builder.buffer(rows, cols));
    let bias = builder.vector(71);
    let at_column = At { column: 4, ..plain };
    for (bias, add, out) in [(Some(bias), false, at_column), (None, true, added)] {
        builder.push(Operation::Matmul {
            matrix,
            input,
            bias,
            add,
            out,
        });
    }
    builder.plain_rows(rows);
    builder.case
}

/// A product on matrix units, with inputs larger than f16 can be.
pub(super) fn on_matrix_units(format: Format, rows: u32) -> Case {
    let mut case = matmul(format, rows);
    case.name = format!("matmul {format:?} on matrix units, {rows} rows");
    case.error_max = MATRIX_ERROR_MAX;
    case.program.on_matrix_units = true;
    let factor = if rows == MATRIX_ROWS[0] { 1e6 } else { 1.0 };
    case.buffers[0].iter_mut().for_each(|x| *x *= factor);
    case
}

/// A product with many outputs.
#[cfg(test)]
pub(super) fn wide_matmul(outputs: u32, rows: u32) -> Case {
    let mut builder = Builder::new("wide matmul".into());
    let matrix = builder.matrix(Format::Q8_0, outputs, 32);
    let [input, out] = [32, outputs].map(|cols| builder.buffer(rows, cols));
    builder.push(Operation::Matmul {
        matrix,
        input,
        bias: None,
        add: false,
        out,
    });
    builder.plain_rows(rows);
    builder.case
}

pub(super) fn embed(format: Format) -> Case {
    let mut builder = Builder::new(format!("embed {format:?}"));
    let cols = odd_cols(format);
    let table = builder.matrix(format, 9, cols);
    let out = builder.buffer(3, cols);
    builder.push(Operation::Embed {
        table,
        factor: 1.5,
        out,
    });
    let row = |token| Row {
        token,
        ..Row::default()
    };
    builder.rows(RowSet::All, &[row(8), row(VECTOR), row(5)], [&[]; 2]);
    builder.case
}
