//! Bytes that the operations of a step read, counted from the kernels that are chosen and the workgroups that they start.
//!
//! Weights, pages and states are counted for each workgroup that reads them. Rows of activations and vectors, a few KiB that stay
//! in a device's caches, are counted once for each operation.
//!
//! Promise (Arithmetic): a step of one to eight sequences on a device reads at most 1.05 times its weights as they are stored
//! there, its pages and its states, in every variant of the kernels and up to 8000 positions: Llama 1B and 8B, gpt-oss 20B, Qwen 3
//! 30B, Qwen 3.5 9B, and Qwen 3.5 35B up to 1000 positions; models of less than a billion weights up to five sequences. Products of
//! 9 to 15 rows read weights twice, those of tiles once. Below 16 rows, an expert is read for each row that chose it.

use super::blocks::Blocks;
use super::launch::Grid;
use super::matrix_units::MatrixUnits;
use super::sources::{Kernel, PART, TILE_ROWS_MIN, heads_at_once, matmul_kernels};
use crate::Options;
use crate::layout::matrix_bytes;
use crate::operation::{MatrixId, MatrixShape, Norm, Operation, Program, RowSet};
use crate::program::Plan;
use kernels::{Format, KvKind, Pool};
use std::io::{self, Write};
use std::ops::AddAssign;
use synth::{Mix, RopeScaling, RopeSynth, SynthSpec};
use testing::folder::Folder;
use weights::ModelFiles;
use weights::gguf::Gguf;
use weights::parameters::Weights;

/// The most bytes that a step reads, for each byte that it needs.
const READ_MAX: f64 = 1.05;

/// Bytes of a file without weights: more than any model here has. Nothing of them is on the disk.
const FILE_BYTES: u64 = 32 << 30;

/// A device, by the facts that decide which kernels compute a product.
#[derive(Clone, Copy, Debug)]
struct Card {
    exact: bool,
    reorders_sums: bool,
    units: Option<MatrixUnits>,
    blocks: Blocks,
}

/// A card as most are, one whose compiler changes the order of sums, a processor, and a card with matrix units.
const CARDS: [Card; 4] = [
    card(false, None, Blocks::Repeated),
    card(true, None, Blocks::Repeated),
    card(false, None, Blocks::Loops),
    card(
        false,
        Some(MatrixUnits {
            size: 16,
            lanes: 32,
        }),
        Blocks::Repeated,
    ),
];

const fn card(reorders_sums: bool, units: Option<MatrixUnits>, blocks: Blocks) -> Card {
    Card {
        exact: false,
        reorders_sums,
        units,
        blocks,
    }
}

/// A step of single tokens: rows of as many sequences, each of which sees so many positions.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    rows: u32,
    positions: u32,
}

/// Bytes by what has them.
#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    weights: u64,
    pages: u64,
    states: u64,
    others: u64,
}

impl Bytes {
    fn all(self) -> u64 {
        self.weights + self.pages + self.states + self.others
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, more: Self) {
        self.weights += more.weights;
        self.pages += more.pages;
        self.states += more.states;
        self.others += more.others;
    }
}

/// Bytes of a row of a matrix.
fn row_bytes(shape: &MatrixShape) -> u64 {
    matrix_bytes(&MatrixShape { rows: 1, ..*shape })
}

/// Floats of a norm's weights and biases.
fn norm_floats(norm: Option<Norm>, len: u32) -> u64 {
    norm.map_or(0, |norm| {
        let vectors = [norm.weight, norm.bias];
        u64::from(len) * vectors.iter().flatten().count() as u64
    })
}

/// The bytes of weights that a product reads: whole blocks of outputs, for each block of rows.
fn product_bytes(shape: &MatrixShape, rows: u32, card: Card) -> u64 {
    let units = card.units.filter(|_| shape.format != Format::F32);
    let (exact, reorders) = (card.exact, card.reorders_sums);
    let kernels = matmul_kernels(shape.format, exact, reorders, units, card.blocks);
    let kernel = kernels.iter().find(|(most, _)| rows <= *most);
    let block = kernel.expect("a kernel for all rows").1.block();
    let grid = Grid::Matmul {
        outputs: shape.rows,
    };
    let [_, times, _] = grid.workgroups(block, rows, 0, 0).expect("work");
    u64::from(times) * u64::from(shape.rows.next_multiple_of(block[0])) * row_bytes(shape)
}

/// The bytes of the experts that rows choose: for each choice, or for each tile of 32, of which there may be so many.
fn expert_bytes(shape: &MatrixShape, used: u32, rows: u32, card: Card) -> u64 {
    let (format, outputs) = (shape.format, shape.unit_rows);
    let count = shape.rows / outputs;
    let (kernel, grid) = if card.exact || rows < TILE_ROWS_MIN {
        let grid = Grid::Choices { outputs, used };
        (Kernel::ExpertMatmul { format }, grid)
    } else {
        let grid = Grid::Tiles {
            outputs,
            count,
            used,
        };
        (Kernel::ExpertTile { format }, grid)
    };
    let block = kernel.block();
    let [_, y, z] = grid.workgroups(block, rows, 0, 0).expect("work");
    u64::from(y * z) * u64::from(outputs.next_multiple_of(block[0])) * row_bytes(shape)
}

/// The bytes that an operation reads.
fn read_by(program: &Program, operation: &Operation, tokens: Tokens, card: Card) -> Bytes {
    let shape_of = |id: MatrixId| &program.matrices[id.0 as usize];
    let rows = u64::from(tokens.rows);
    let floats_of_states = |floats: u32| rows * 4 * u64::from(floats);
    let mut bytes = Bytes {
        others: 4 * other_floats(program, operation, tokens),
        ..Bytes::default()
    };
    match *operation {
        Operation::Embed { table, .. } => bytes.weights = rows * row_bytes(shape_of(table)),
        Operation::Matmul { matrix, .. } => {
            bytes.weights = product_bytes(shape_of(matrix), tokens.rows, card);
        }
        Operation::ExpertMatmul { stack, used, .. } => {
            bytes.weights = expert_bytes(shape_of(stack), used, tokens.rows, card);
        }
        Operation::Attend {
            heads,
            cache,
            window,
            ..
        } => {
            let shape = program.caches[cache.0 as usize];
            let group = heads / shape.kv_heads;
            let times = group.div_ceil(heads_at_once(shape.stride(), group));
            let words = shape.kv_heads * (shape.row_words() + shape.scale_words());
            let seen = tokens.positions.min(window.unwrap_or(u32::MAX));
            bytes.pages = rows * u64::from(seen) * u64::from(2 * times) * u64::from(4 * words);
        }
        // The convolution, then what keeps its inputs but for the one that leaves.
        Operation::Convolve { layer, .. } => {
            let states = program.states.expect("states");
            let [kept, cols] = states.convolution(layer);
            bytes.states = floats_of_states((2 * kept - 1) * cols);
        }
        Operation::Scan { .. } => {
            let heads = program.states.and_then(|states| states.scan);
            let heads = heads.expect("heads of a scan");
            bytes.states = floats_of_states(heads.value_heads * heads.key_dim * heads.value_dim);
        }
        _ => {}
    }
    bytes
}

/// Floats of activations and vectors that an operation reads.
#[expect(clippy::too_many_lines, reason = "a table of operations")]
fn other_floats(program: &Program, operation: &Operation, tokens: Tokens) -> u64 {
    let (of_row, of_all) = match *operation {
        Operation::Norm { cols, norm, .. } => (cols, norm_floats(Some(norm), cols)),
        Operation::NormParts {
            parts,
            len,
            norm,
            own_weights,
            ..
        } => {
            let weights = if own_weights { parts * len } else { len };
            (parts * len, norm_floats(Some(norm), weights))
        }
        Operation::Add {
            post, next, cols, ..
        } => {
            let next = next.map(|(norm, _)| norm);
            let norms = norm_floats(post, cols) + norm_floats(next, cols);
            (2 * cols, norms)
        }
        Operation::Matmul {
            matrix, bias, add, ..
        } => {
            let shape = program.matrices[matrix.0 as usize];
            let sums = if add { shape.rows } else { 0 };
            (shape.cols + sums, floats_of(bias, shape.rows))
        }
        Operation::Heads {
            heads,
            head_dim,
            norm,
            turn,
            ..
        } => {
            let angles = turn.map_or(0, |turn| turn.dims);
            (
                heads * head_dim + angles,
                norm_floats(norm, heads * head_dim),
            )
        }
        Operation::Attend {
            heads,
            cache,
            sinks,
            ..
        } => {
            let shape = program.caches[cache.0 as usize];
            // The results of parts, which are put together.
            let parts = tokens.positions.div_ceil(PART);
            let parts = if parts > 1 { parts } else { 0 };
            let of_parts = heads * parts * (shape.stride() + 4);
            (heads * shape.head_dim + of_parts, floats_of(sinks, heads))
        }
        Operation::Activate { up, cols, .. } => (cols * (1 + u32::from(up.is_some())), 0),
        Operation::Finish { cols, bias, .. } => (cols, floats_of(bias, cols)),
        Operation::Route {
            count,
            choice_bias,
            factors,
            ..
        } => (
            count,
            floats_of(choice_bias, count) + floats_of(factors, count),
        ),
        Operation::ExpertMatmul {
            stack,
            used,
            input_stride,
            bias,
            ..
        } => {
            let shape = program.matrices[stack.0 as usize];
            let inputs = if input_stride == 0 { 1 } else { used };
            let biases = if bias.is_some() { shape.unit_rows } else { 0 };
            (inputs * shape.cols + used * (2 + biases), 0)
        }
        Operation::Combine {
            used, cols, add, ..
        } => (used * (cols + 2) + if add { cols } else { 0 }, 0),
        Operation::Convolve { layer, bias, .. } => {
            let states = program.states.expect("states");
            let [kept, cols] = states.convolution(layer);
            let taps = u64::from((kept + 1) * cols);
            (2 * cols, taps + floats_of(bias, cols))
        }
        Operation::ScanGates { heads, .. } => (2 * heads, u64::from(2 * heads)),
        Operation::Scan { .. } => {
            let heads = program.states.and_then(|states| states.scan);
            let heads = heads.expect("heads of a scan");
            let values = heads.value_heads * (heads.value_dim + 2);
            (2 * heads.key_heads * heads.key_dim + values, 0)
        }
        Operation::Share {
            cols, input_cols, ..
        } => (cols + input_cols, u64::from(input_cols)),
        Operation::CopyParts { parts, len, .. } => (parts * len, 0),
        Operation::AddParts { parts, len, .. } => (2 * parts * len, u64::from(parts)),
        Operation::Gather { cols, .. } => (cols, 0),
        // Rows are tokens without adapters.
        Operation::Embed { .. }
        | Operation::Vectors { .. }
        | Operation::AdaptDown { .. }
        | Operation::AdaptUp { .. } => (0, 0),
    };
    u64::from(tokens.rows) * u64::from(of_row) + of_all
}

/// Floats of a vector that may be missing.
fn floats_of<T>(vector: Option<T>, len: u32) -> u64 {
    vector.map_or(0, |_| u64::from(len))
}

/// The operations of a step with logits.
fn operations(program: &Program) -> impl Iterator<Item = &Operation> {
    let steps = program.steps.iter();
    let steps = steps.filter(|step| step.rows != RowSet::Hidden);
    steps.map(|step| &step.operation)
}

fn read(program: &Program, tokens: Tokens, card: Card) -> Bytes {
    let mut all = Bytes::default();
    for operation in operations(program) {
        all += read_by(program, operation, tokens, card);
    }
    all
}

/// The bytes that a step needs: each matrix that it uses once, or the rows of a table; different experts; what the sequences
/// have in pages and states.
fn needed(program: &Program, tokens: Tokens) -> u64 {
    let rows = u64::from(tokens.rows);
    let (mut matrices, mut all) = (Vec::new(), 0);
    for operation in operations(program) {
        all += match *operation {
            Operation::Embed { table, .. } => rows * row_bytes(&program.matrices[table.0 as usize]),
            Operation::Matmul { matrix, .. } if !matrices.contains(&matrix) => {
                matrices.push(matrix);
                matrix_bytes(&program.matrices[matrix.0 as usize])
            }
            Operation::ExpertMatmul { stack, used, .. } => {
                let stack = program.matrices[stack.0 as usize];
                let (count, chosen) = (stack.rows / stack.unit_rows, tokens.rows * used);
                u64::from(chosen.min(count)) * matrix_bytes(&stack) / u64::from(count)
            }
            Operation::Attend { cache, window, .. } => {
                let cache = program.caches[cache.0 as usize];
                let seen = tokens.positions.min(window.unwrap_or(u32::MAX));
                rows * u64::from(seen) * 2 * cache.page_bytes() / u64::from(cache.page_tokens)
            }
            Operation::Convolve { layer, .. } => {
                let states = program.states.expect("states");
                let [kept, cols] = states.convolution(layer);
                rows * u64::from(kept * cols) * 4
            }
            Operation::Scan { .. } => {
                let states = program.states.expect("states");
                let [_, scan] = states.layer_bytes();
                rows * scan / u64::from(states.states)
            }
            _ => 0,
        };
    }
    all
}

/// Keeps the first bytes that are written, the header, and refuses those of weights.
struct Header(Vec<u8>);

impl Write for Header {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.0.is_empty() {
            return Err(io::Error::other("the header is enough"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The program of a model with so many layers, from a file without weights.
fn program_of(preset: &str, layers: u32, mix: &str, kv: KvKind) -> Program {
    let spec = SynthSpec::preset(preset).expect("a preset");
    let spec = SynthSpec {
        mix: Mix::from_name(mix).expect("a mix"),
        layers,
        // Else the file would need the factors of frequencies.
        rope: RopeSynth {
            scaling: RopeScaling::None,
            ..spec.rope
        },
        ..spec
    };
    let mut header = Header(Vec::new());
    spec.write(None, &mut header).expect_err("no weights");
    let folder = Folder::new("gpu-reads");
    let path = folder.0.join("model.gguf");
    std::fs::write(&path, &header.0).expect("a file");
    let file = std::fs::File::options().write(true).open(&path);
    let grown = file.and_then(|file| file.set_len(FILE_BYTES));
    grown.expect("a file with a hole");
    let files = ModelFiles::from(Gguf::open(&path).expect("a header"));
    let options = Options {
        context_max: Some(1 << 14),
        page_tokens: 32,
        pages: 64,
        rows_max: 64,
        logit_rows_max: 64,
        draws_max: 64,
        spans_max: 64,
        kv,
        states: 16,
        block_rows: 0,
        mtp: false,
        vectors: false,
        exact: false,
    };
    let config = files.config(options.context_max).expect("a configuration");
    let weights = Weights::describe(&files, &config, &mut Pool::new(1)).expect("weights");
    let dims = options.dims(&config, weights.vocab());
    Plan::new(&config, &weights, &dims, &options, 0).program
}

#[test]
fn step_reads_little_more_than_weights_pages_and_states() {
    const F16: KvKind = KvKind::F16;
    // Layers, and the most rows and positions for which the bound holds.
    for (preset, layers, mix, kv, rows_max, longest) in [
        ("llama-8b", 32, "Q8_0", F16, 8, 8000),
        ("llama-8b", 32, "Q4_K_M", KvKind::Q4_0, 8, 8000),
        ("llama-1b", 16, "Q4_K_M", F16, 8, 8000),
        ("gpt-oss-20b-slice", 24, "MXFP4_MOE", F16, 8, 8000),
        ("qwen3.5-9b-slice", 32, "Q4_K_M", F16, 8, 8000),
        ("qwen3-30b-a3b-slice", 48, "Q4_K_M", F16, 8, 8000),
        // Activations of more rows are a larger part of so small models.
        ("mamba2-370m", 48, "Q8_0", F16, 5, 8000),
        ("qwen3.5-0.8b", 24, "Q8_0", F16, 5, 8000),
        ("qwen3-0.6b", 28, "Q4_K_M", F16, 5, 8000),
        // Eight heads of 256 elements share keys: for two workgroups, which both read them.
        ("qwen3.5-35b-a3b-slice", 40, "Q4_K_M", F16, 8, 1000),
    ] {
        let program = program_of(preset, layers, mix, kv);
        for rows in [1, 2, 3, 5, 8] {
            for positions in [1, 1000, 8000] {
                let tokens = Tokens { rows, positions };
                let wanted = needed(&program, tokens) as f64;
                let is_within =
                    |card| read(&program, tokens, card).all() as f64 <= READ_MAX * wanted;
                let holds = CARDS.into_iter().all(is_within);
                let promised = rows <= rows_max && positions <= longest;
                assert!(holds || !promised, "{preset} {mix}, {tokens:?}");
            }
        }
    }
}

#[test]
fn products_read_weights_once_for_eight_rows_and_for_a_tile() {
    let shape = MatrixShape {
        format: Format::Q8_0,
        rows: 4096,
        cols: 4096,
        unit_rows: 1,
    };
    let times = |rows, card| product_bytes(&shape, rows, card) / matrix_bytes(&shape);
    for card in CARDS {
        for rows in 1..=32 {
            let wanted = if (9..16).contains(&rows) { 2 } else { 1 };
            assert_eq!(times(rows, card), wanted, "{rows} rows, {card:?}");
        }
        let exact = Card {
            exact: true,
            ..card
        };
        assert_eq!(times(32, exact), 4, "{card:?}");
    }
}
