//! Small programs of one kind of operation each, on odd shapes.

mod experts;
mod recurrent;

use super::is_alike;
use crate::operation::{
    Activation, At, CacheId, CacheShape, HeadsTo, MatrixId, MatrixShape, Norm, Operation, Program,
    RowSet, ScanHeads, Turn, VectorId,
};
use crate::record::{Record, Row};
use half::f16;
use kernels::{Format, QuantBlock, QuantFormat, dequantize};

/// Rows of the numbers that choose other variants of a product.
const ROWS: [u32; 5] = [1, 2, 3, 11, 37];

/// Heads of scans: key heads, value heads, elements of keys and of values, order of the keys, rule.
const SCANS: [ScanHeads; 3] = [
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
        cases.extend(ROWS.map(|rows| matmul(format, rows)));
        cases.push(experts::experts(format));
    }
    cases.extend([norms(), add(), activate(), finish(), gather()]);
    cases.push(recurrent::convolution());
    cases.extend(SCANS.map(recurrent::scan));
    for shape in [
        (64, 2, 4, 32),
        (80, 1, 3, 16),
        (128, 2, 16, 32),
        (5, 3, 3, 7),
    ] {
        cases.push(heads(shape));
        cases.extend([false, true].map(|long| attend(shape, long)));
    }
    cases.push(heads((256, 1, 4, 32)));
    cases.push(attend((256, 1, 4, 32), true));
    cases.push(attend((512, 1, 2, 32), true));
    cases
}

/// Cases for each kernel of a program.
pub(super) fn of_program(program: &Program) -> Vec<Case> {
    let mut found: Vec<&Operation> = Vec::new();
    let mut cases = Vec::new();
    for step in &program.steps {
        let operation = &step.operation;
        if found
            .iter()
            .any(|known| is_alike(program, known, operation))
        {
            continue;
        }
        found.push(operation);
        match *operation {
            Operation::Embed { table, .. } => {
                cases.push(embed(program.matrices[table.0 as usize].format));
            }
            Operation::Matmul { matrix, .. } => {
                let format = program.matrices[matrix.0 as usize].format;
                cases.extend(ROWS.map(|rows| matmul(format, rows)));
            }
            Operation::Norm { .. } | Operation::NormParts { .. } => cases.push(norms()),
            Operation::Add { .. } => cases.push(add()),
            Operation::Heads { head_dim, .. } => cases.push(heads((head_dim, 2, 4, 16))),
            Operation::Attend { heads, cache, .. } => {
                let shape = program.caches[cache.0 as usize];
                let group = (heads / shape.kv_heads.max(1)).max(1);
                let shape = (shape.head_dim, 1, group, shape.page_tokens);
                cases.push(attend(shape, true));
            }
            Operation::Activate { .. } => cases.push(activate()),
            Operation::Finish { .. } => cases.push(finish()),
            Operation::Gather { .. } => cases.push(gather()),
            Operation::ExpertMatmul { stack, .. } => {
                let format = program.matrices[stack.0 as usize].format;
                cases.push(experts::experts(format));
            }
            Operation::Convolve { .. } | Operation::Share { .. } => {
                cases.push(recurrent::convolution());
            }
            Operation::Scan { .. } => {
                let scan = program.states.and_then(|states| states.scan);
                cases.extend(scan.map(|heads| {
                    recurrent::scan(ScanHeads {
                        key_heads: 1,
                        value_heads: 2,
                        ..heads
                    })
                }));
            }
            // With a scan.
            Operation::ScanGates { .. } => {}
            // With the products of experts.
            Operation::Route { .. } | Operation::Combine { .. } => {}
        }
    }
    cases
}

/// What decides which kernels an operation is run by: equal for operations that one case checks.
pub(super) fn key(program: &Program, operation: &Operation) -> (&'static str, u32, u32, u32) {
    let format = |matrix: MatrixId| program.matrices[matrix.0 as usize].format as u32;
    match *operation {
        Operation::Embed { table, .. } => ("embed", format(table), 0, 0),
        Operation::Matmul { matrix, .. } => ("matmul", format(matrix), 0, 0),
        Operation::Norm { .. } | Operation::NormParts { .. } => ("norm", 0, 0, 0),
        Operation::Add { .. } => ("add", 0, 0, 0),
        Operation::Heads { head_dim, .. } => ("heads", head_dim, 0, 0),
        Operation::Attend { heads, cache, .. } => {
            let shape = program.caches[cache.0 as usize];
            let group = heads / shape.kv_heads.max(1);
            ("attend", shape.head_dim, group, shape.page_tokens)
        }
        Operation::Activate { .. } => ("activate", 0, 0, 0),
        Operation::Finish { .. } => ("finish", 0, 0, 0),
        Operation::Gather { .. } => ("gather", 0, 0, 0),
        Operation::ExpertMatmul { stack, .. } => ("experts", format(stack), 0, 0),
        Operation::Convolve { .. } | Operation::Share { .. } => ("convolve", 0, 0, 0),
        Operation::ScanGates { .. } => ("gates", 0, 0, 0),
        // All scans of a program are alike.
        Operation::Scan { .. } => ("scan", 0, 0, 0),
        Operation::Route { .. } => ("route", 0, 0, 0),
        Operation::Combine { .. } => ("combine", 0, 0, 0),
    }
}

/// A table of numbers that look random.
struct Noise(u32);

impl Noise {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    /// Between -1 and 1.
    fn float(&mut self) -> f32 {
        self.next() as f32 / (1 << 23) as f32 - 1.0
    }

    fn floats(&mut self, len: usize) -> Vec<f32> {
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
            rows_max: 16,
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
        let len = shape.layer_bytes() as usize / 2;
        let mut part = || {
            let mut values = self.noise.floats(len);
            for (index, value) in values.iter_mut().enumerate() {
                let is_padding = index as u32 % shape.stride() >= shape.head_dim;
                *value = if is_padding {
                    0.0
                } else {
                    f16::from_f32(*value).to_f32()
                };
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
    builder.rows(RowSet::All, &[row(8), row(0), row(5)], [&[]; 2]);
    builder.case
}

fn norms() -> Case {
    let mut builder = Builder::new("norm".into());
    for cols in [37, 700] {
        for whole in [false, true] {
            let norm = builder.norm(cols, whole);
            let [input, out] = [0, 1].map(|_| builder.buffer(3, cols));
            builder.push(Operation::Norm {
                input,
                cols,
                norm,
                out,
            });
        }
    }
    for (own_weights, whole) in [(false, false), (false, true), (true, true)] {
        let (parts, len) = (3, 70);
        let weights = if own_weights { parts * len } else { len };
        let norm = builder.norm(weights, whole);
        let x = builder.buffer(3, parts * len);
        builder.push(Operation::NormParts {
            x,
            parts,
            len,
            norm,
            own_weights,
        });
    }
    builder.plain_rows(3);
    builder.case
}

fn add() -> Case {
    let mut builder = Builder::new("add".into());
    let cols = 333;
    for (post, next) in [
        (None, None),
        (None, Some(false)),
        (Some(true), Some(true)),
        (Some(false), None),
    ] {
        let [update, stream, normed] = [0, 1, 2].map(|_| builder.buffer(3, cols));
        let post = post.map(|whole| builder.norm(cols, whole));
        let next = next.map(|whole| (builder.norm(cols, whole), normed));
        builder.push(Operation::Add {
            update,
            post,
            factor: 0.7,
            stream,
            stream_factor: 1.3,
            next,
            cols,
        });
    }
    builder.plain_rows(3);
    builder.case
}

fn activate() -> Case {
    let mut builder = Builder::new("activate".into());
    let cols = 300;
    for activation in [
        Activation::Silu,
        Activation::Gelu,
        Activation::SquaredRelu,
        Activation::ClampedSwiglu,
        Activation::Sigmoid,
        Activation::Identity,
    ] {
        let [gate, up, apart] = [0, 1, 2].map(|_| builder.buffer(2, cols));
        for buffer in [gate, up] {
            let values = &mut builder.case.buffers[buffer.buffer.0 as usize];
            values.iter_mut().for_each(|x| *x *= 12.0);
        }
        let second = builder.buffer(2, cols);
        for (up, out) in [
            (Some(up), apart),
            (None, second),
            (Some(up), gate),
            (Some(gate), up),
        ] {
            builder.push(Operation::Activate {
                activation,
                gate,
                up,
                cols,
                out,
            });
        }
    }
    builder.plain_rows(2);
    builder.case
}

fn finish() -> Case {
    let mut builder = Builder::new("finish".into());
    let cols = 300;
    for (factor, cap) in [(1.0, None), (3.0, Some(2.0))] {
        let logits = builder.buffer(2, cols);
        let values = &mut builder.case.buffers[logits.buffer.0 as usize];
        values[5] = f32::NAN;
        values[300] = f32::INFINITY;
        values[7] = 1e6;
        let bias = cap.map(|_| builder.vector(cols));
        builder.push(Operation::Finish {
            logits,
            cols,
            bias,
            factor,
            cap,
        });
    }
    builder.plain_rows(2);
    builder.case
}

fn gather() -> Case {
    let mut builder = Builder::new("gather".into());
    let [input, out] = [7, 3].map(|rows| builder.buffer(rows, 41));
    let row = |source| Row {
        source,
        ..Row::default()
    };
    builder.plain_rows(7);
    builder.rows(RowSet::Wanted, &[row(1), row(2), row(6)], [&[]; 2]);
    let gather = Operation::Gather {
        input,
        cols: 41,
        out,
    };
    builder.case.program.push(RowSet::Wanted, gather);
    builder.case
}

/// Elements, key heads, query heads of each key head, and positions of a page.
type HeadShape = (u32, u32, u32, u32);

fn heads((head_dim, kv_heads, group, page_tokens): HeadShape) -> Case {
    let mut builder = Builder::new(format!("heads of {head_dim}"));
    let cache = builder.cache(CacheShape {
        layers: 2,
        pages: 3,
        page_tokens,
        kv_heads,
        head_dim,
    });
    let dims = [head_dim / 2 * 2, (head_dim / 4 * 2).max(2)];
    let query_heads = kv_heads * group;
    let kinds = [
        (false, false, false, None, false),
        (true, true, false, Some((0, false)), true),
        (true, false, true, Some((1, true)), false),
    ];
    for (index, (has_norm, own_weights, norm_is_last, turn, tempered)) in (0..).zip(kinds) {
        for kind in 0..3 {
            let heads = if kind == 0 { query_heads } else { kv_heads };
            let input = builder.buffer(3, heads * head_dim);
            let to = match kind {
                0 => HeadsTo::Rows(builder.buffer(3, heads * head_dim)),
                1 => HeadsTo::Keys(cache, index % 2),
                _ => HeadsTo::Values(cache, index % 2),
            };
            let weights = if own_weights {
                heads * head_dim
            } else {
                head_dim
            };
            let norm = has_norm.then(|| builder.norm(weights, !norm_is_last));
            builder.push(Operation::Heads {
                input,
                heads,
                head_dim,
                norm,
                own_weights,
                norm_is_last,
                turn: turn.map(|(table, adjacent)| Turn {
                    table,
                    dims: dims[table as usize],
                    adjacent,
                }),
                tempered,
                to,
            });
        }
    }
    let row = |page, slot| Row {
        page,
        slot: slot % page_tokens,
        temperature: 1.25,
        ..Row::default()
    };
    let angles = dims.map(|dims| builder.noise.floats(3 * dims as usize));
    let rows = [row(2, 1), row(0, page_tokens - 1), row(1, 0)];
    builder.rows(RowSet::All, &rows, [&angles[0], &angles[1]]);
    builder.case
}

/// Attention of three rows; with contexts of several parts if `long`.
pub(super) fn attend((head_dim, kv_heads, group, page_tokens): HeadShape, long: bool) -> Case {
    let kind = if long { "long" } else { "short" };
    let mut builder = Builder::new(format!("attend, {group} heads of {head_dim}, {kind}"));
    let positions: [u32; 3] = if long { [0, 300, 777] } else { [0, 5, 40] };
    let table_len = (positions[2] + 1).div_ceil(page_tokens);
    let cache = builder.cache(CacheShape {
        layers: 1,
        pages: table_len + 2,
        page_tokens,
        kv_heads,
        head_dim,
    });
    let heads = kv_heads * group;
    let query = builder.buffer(3, heads * head_dim);
    let values = &mut builder.case.buffers[query.buffer.0 as usize];
    values.iter_mut().for_each(|x| *x *= 3.0);
    for (cap, window, sinks) in [
        (None, None, false),
        (Some(2.0), Some(30), true),
        (None, Some(400), true),
    ] {
        let out = builder.buffer(3, heads * head_dim);
        let sinks = sinks.then(|| builder.vector(heads));
        builder.push(Operation::Attend {
            query,
            heads,
            cache,
            layer: 0,
            scale: 0.3,
            cap,
            window,
            sinks,
            out,
        });
    }
    // Two tables: rows 0 and 2 read the first.
    let row = |position: u32, table| Row {
        position,
        table,
        ..Row::default()
    };
    let [a, b, c] = positions;
    let rows = [row(a, 0), row(b, table_len), row(c, 0)];
    builder.rows(RowSet::All, &rows, [&[]; 2]);
    let first = (0..table_len).map(|entry| (entry * 5 + 2) % (table_len + 2));
    let second = (0..table_len).map(|entry| (entry * 3 + 1) % (table_len + 2));
    let tables: Vec<u32> = first.chain(second).collect();
    builder.case.record.tables(&tables);
    builder.case
}
