//! The text of each kernel, put together from the sections of the files in `kernels`.

use super::blocks::{Blocks, expand, repeat_lines};
use super::matrix_units::MatrixUnits;
use crate::operation::{CacheShape, SCALE_GROUP};
use crate::record::SPAN_WORDS;
use kernels::{Format, KvKind, QuantFormat, ScaleKind};
use std::fmt::Write as _;

const PRELUDE: &str = include_str!("../kernels/prelude.wgsl");
const FORMATS: &str = include_str!("../kernels/formats.wgsl");
const MATMUL: &str = include_str!("../kernels/matmul.wgsl");
const TILE: &str = include_str!("../kernels/tile.wgsl");
const MATRIX_TILE: &str = include_str!("../kernels/matrix_tile.wgsl");
const EMBED: &str = include_str!("../kernels/embed.wgsl");
const NORMS: &str = include_str!("../kernels/norms.wgsl");
const ROWS: &str = include_str!("../kernels/rows.wgsl");
const HEADS: &str = include_str!("../kernels/heads.wgsl");
const ATTEND: &str = include_str!("../kernels/attend.wgsl");
const PAGES: &str = include_str!("../kernels/pages.wgsl");
const ATTEND_PROMPT: &str = include_str!("../kernels/attend_prompt.wgsl");
const RECURRENT: &str = include_str!("../kernels/recurrent.wgsl");
const DRAW: &str = include_str!("../kernels/draw.wgsl");
const DRAW_CUTS: &str = include_str!("../kernels/draw_cuts.wgsl");
const ADAPTERS: &str = include_str!("../kernels/adapters.wgsl");
const EXPERTS: &str = include_str!("../kernels/experts.wgsl");

/// Outputs that each quarter of a workgroup computes of a product with an expert.
const EXPERT_OUTPUTS: u32 = 2;

/// Threads of a norm of whole rows, and of parts of rows.
const NORM_THREADS: u32 = 256;
const PART_THREADS: u32 = 64;

/// Bytes of workgroup memory that the queries and scores of attention may take.
const ATTEND_BYTES_MAX: u32 = 12 << 10;

/// Positions of a part of attention.
pub(crate) const PART: u32 = 256;

/// Rows from which on a product is computed by tiles, unless the program is exact.
pub(crate) const TILE_ROWS_MIN: u32 = 16;

/// Rows of the smaller tile.
pub(crate) const TILE_ROWS: u32 = 32;

/// Most rows, and outputs and rows of a workgroup, of products of few rows. Each workgroup reads the weights of its outputs, so 9 rows
/// and more read all weights twice: those of a workgroup with 15 rows would keep 15 sums of each thread in registers.
const FEW: [(u32, u32, u32); 4] = [(1, 4, 1), (2, 2, 2), (4, 2, 4), (TILE_ROWS_MIN - 1, 1, 8)];

/// Kernels for a processor that serves as a device, which gains nothing from sums in registers and takes long to compile a kernel.
const FEW_OF_PROCESSOR: [(u32, u32, u32); 2] = [(1, 1, 1), (TILE_ROWS_MIN - 1, 1, 8)];

/// Kernels of a product, each with the most rows that it is for. One of them computes all numbers of rows below
/// [`TILE_ROWS_MIN`] where the device's compiler changes the order of sums from kernel to kernel.
pub(crate) fn matmul_kernels(
    format: Format,
    exact: bool,
    reorders_sums: bool,
    units: Option<MatrixUnits>,
    blocks: Blocks,
) -> Vec<(u32, Kernel)> {
    let few = match blocks {
        Blocks::Repeated => &FEW[..],
        Blocks::Loops => &FEW_OF_PROCESSOR,
    };
    let few = if reorders_sums {
        &few[few.len() - 1..]
    } else {
        few
    };
    let few = few.iter().map(|&(most, outputs, rows)| {
        let kernel = Kernel::Matmul {
            format,
            outputs,
            rows,
        };
        (most, kernel)
    });
    let mut kernels: Vec<_> = few.collect();
    match (exact, units, kernels.last_mut()) {
        (true, _, Some(last)) => last.0 = u32::MAX,
        (_, Some(units), _) => kernels.extend([32, 64, 128].map(|rows| {
            let kernel = Kernel::MatrixTile {
                format,
                units,
                rows,
            };
            (if rows == 128 { u32::MAX } else { rows }, kernel)
        })),
        _ if blocks == Blocks::Loops => kernels.push((u32::MAX, Kernel::Tile { format, rows: 1 })),
        _ => kernels.extend([
            (TILE_ROWS, Kernel::Tile { format, rows: 1 }),
            (u32::MAX, Kernel::Tile { format, rows: 2 }),
        ]),
    }
    kernels
}

/// A kernel, with the constants that it is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kernel {
    Embed {
        format: Format,
    },
    Norm,
    NormParts,
    Add,
    Vectors,
    Matmul {
        format: Format,
        /// `R` and `C`.
        outputs: u32,
        rows: u32,
    },
    Tile {
        format: Format,
        /// Rows of a workgroup, in 32.
        rows: u32,
    },
    MatrixTile {
        format: Format,
        units: MatrixUnits,
        /// Rows of a workgroup: 32, 64 or 128.
        rows: u32,
    },
    AdaptDown,
    AdaptUp,
    Heads {
        head_dim: u32,
        /// Storage format of the pages that heads are written to, or that those of rows are next to.
        kind: KvKind,
    },
    Attend {
        head_dim: u32,
        kind: KvKind,
        page_tokens: u32,
        /// Heads of a workgroup.
        heads: u32,
    },
    AttendPrompt {
        head_dim: u32,
        kind: KvKind,
        page_tokens: u32,
    },
    Merge {
        head_dim: u32,
        kind: KvKind,
    },
    Activate,
    Finish,
    Gather,
    Route,
    ExpertMatmul {
        format: Format,
    },
    Combine,
    SortChoices,
    ExpertTile {
        format: Format,
    },
    Convolve,
    Keep,
    ScanGates,
    Scan {
        key_dim: u32,
        value_dim: u32,
        delta: bool,
    },
    Share,
    AddParts,
    CopyParts,
    Read,
    Adjust,
    Choose,
}

/// Rows of a workgroup of attention by tiles: as many as workgroup memory has room for.
pub(crate) const fn prompt_rows(stride: u32) -> u32 {
    if stride > 128 { 16 } else { 32 }
}

/// Elements of the largest heads that attention by tiles computes.
pub(crate) const PROMPT_HEAD_MAX: u32 = 256;

/// Heads that a workgroup of attention computes at once, of `group` that share keys.
pub(crate) fn heads_at_once(stride: u32, group: u32) -> u32 {
    let bytes = (stride + PART) * size_of::<f32>() as u32;
    let most = (ATTEND_BYTES_MAX / bytes).clamp(1, 8);
    // As many workgroups as needed, each with as few heads as then suffice.
    group.div_ceil(group.div_ceil(most))
}

impl Kernel {
    /// The name in messages.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Matmul { format, rows, .. } => format!("matmul {format:?}, {rows} rows"),
            Self::Tile { format, rows } => format!("tile {format:?}, {} rows", rows * TILE_ROWS),
            Self::MatrixTile {
                format,
                units,
                rows,
            } => format!(
                "tile {format:?} on matrix units of {}, {rows} rows",
                units.size
            ),
            Self::Embed { format } => format!("embed {format:?}"),
            Self::Heads { head_dim, kind } => format!("heads of {head_dim}, {kind}"),
            Self::Attend {
                head_dim,
                kind,
                heads,
                ..
            } => format!("attend, {heads} heads of {head_dim}, {kind}"),
            Self::AttendPrompt { head_dim, kind, .. } => {
                format!("attend by tiles, heads of {head_dim}, {kind}")
            }
            Self::Merge { head_dim, .. } => format!("merge of heads of {head_dim}"),
            Self::AdaptDown => "adapters, to their rank".into(),
            Self::AdaptUp => "adapters, from their rank".into(),
            Self::Norm => "norm".into(),
            Self::NormParts => "norm of parts".into(),
            Self::Add => "add".into(),
            Self::Vectors => "vectors in place of tokens".into(),
            Self::Activate => "activate".into(),
            Self::Finish => "finish".into(),
            Self::Gather => "gather".into(),
            Self::Route => "choice of experts".into(),
            Self::ExpertMatmul { format } => format!("experts {format:?}"),
            Self::Combine => "sum of experts".into(),
            Self::SortChoices => "sorted choices of experts".into(),
            Self::ExpertTile { format } => format!("tile of experts {format:?}"),
            Self::Convolve => "convolution".into(),
            Self::Keep => "inputs that a convolution keeps".into(),
            Self::ScanGates => "gates of a scan".into(),
            Self::Scan {
                key_dim, value_dim, ..
            } => format!("scan of {key_dim} x {value_dim}"),
            Self::Share => "share".into(),
            Self::AddParts => "sum of parts".into(),
            Self::CopyParts => "copy of parts".into(),
            Self::Read => "read".into(),
            Self::Adjust => "adjusted logits".into(),
            Self::Choose => "draws and log-probabilities".into(),
        }
    }

    /// The buffers: whether each is only read.
    pub(crate) fn bindings(self) -> &'static [bool] {
        match self {
            Self::Embed { .. } => &[true, true, true, true, true, false],
            Self::ExpertMatmul { .. } | Self::ExpertTile { .. } => {
                &[true, true, true, true, true, true, false]
            }
            Self::Norm | Self::Activate | Self::Gather => &[true, true, false],
            Self::Choose => &[true, true, false, false],
            Self::Route | Self::Combine => &[true, true, false],
            Self::Convolve => &[true, true, true, true, false],
            Self::Keep | Self::Share | Self::AddParts => &[true, true, false],
            Self::Scan { .. } => &[true, true, true, false, false],
            Self::ScanGates => &[true, true, true, false],
            Self::NormParts | Self::Finish | Self::Read => &[true, false],
            Self::SortChoices | Self::CopyParts | Self::Adjust => &[true, false],
            Self::Add => &[true, true, false, false],
            Self::Vectors => &[true, true, true, false, false],
            Self::AdaptDown | Self::AdaptUp => &[true, true, true, true, false],
            Self::Matmul { .. } | Self::Tile { .. } | Self::MatrixTile { .. } => {
                &[true, true, true, true, true, false]
            }
            Self::Heads { .. } | Self::Merge { .. } => &[true, true, true, false],
            Self::Attend { .. } | Self::AttendPrompt { .. } => {
                &[true, true, true, true, true, false, false]
            }
        }
    }

    /// Outputs and rows of a workgroup of a product.
    pub(crate) const fn block(self) -> [u32; 2] {
        match self {
            Self::Matmul { outputs, rows, .. } => [4 * outputs, rows],
            Self::Tile { rows, .. } => [64, rows * TILE_ROWS],
            Self::MatrixTile { rows, .. } => [64, rows],
            Self::ExpertTile { .. } => [64, TILE_ROWS],
            Self::ExpertMatmul { .. } => [4 * EXPERT_OUTPUTS, 1],
            _ => [1, 1],
        }
    }

    /// Constants that blocks of the text are counted by.
    fn counts(self) -> Vec<(&'static str, u32)> {
        match self {
            Self::Matmul { outputs, rows, .. } => vec![("R", outputs), ("C", rows)],
            Self::ExpertMatmul { .. } => vec![("R", EXPERT_OUTPUTS)],
            Self::Attend { heads, .. } => vec![("Q", heads)],
            Self::AttendPrompt { head_dim, kind, .. } => {
                let stride = head_shape(head_dim, kind).stride();
                let (rows, groups) = (prompt_rows(stride), 128 / (stride / 4));
                vec![("Q", rows / 8), ("V", rows.div_ceil(groups))]
            }
            Self::Tile { rows, .. } => vec![("H", rows), ("LOADS", 2 * rows), ("SUMS", 4 * rows)],
            Self::ExpertTile { .. } => vec![("H", 1), ("LOADS", 2), ("SUMS", 4)],
            Self::MatrixTile { units, rows, .. } => {
                // Two subgroups next to each other in each direction: 64 outputs.
                vec![("M", rows / 2 / units.size), ("N", 32 / units.size)]
            }
            _ => Vec::new(),
        }
    }

    /// The whole source.
    pub(crate) fn source(self, blocks: Blocks) -> String {
        let counts = self.counts();
        let mut source = self.extensions().to_owned() + PRELUDE;
        for (name, count) in &counts {
            _ = writeln!(source, "const {name}: u32 = {count}u;");
        }
        source += &self.constants();
        for section in self.sections() {
            source += section;
        }
        match self {
            Self::MatrixTile { .. } => repeat_lines(&source, &counts),
            _ => expand(&source, &counts, blocks),
        }
    }

    /// The text before everything else.
    const fn extensions(self) -> &'static str {
        match self {
            Self::MatrixTile { .. } => "enable f16;\nenable wgpu_cooperative_matrix;\n",
            _ => "",
        }
    }

    /// What the sections of a kernel need before them.
    fn constants(self) -> String {
        let threads = |count: u32| format!("const THREADS: u32 = {count}u;\n");
        match self {
            Self::Embed { format }
            | Self::Tile { format, .. }
            | Self::Matmul { format, .. }
            | Self::ExpertMatmul { format }
            | Self::ExpertTile { format } => format_source(format),
            Self::MatrixTile { format, units, .. } => {
                let MatrixUnits { size, lanes } = units;
                let lanes = format!("const LANES: u32 = {lanes}u;\nconst SIZE: u32 = {size}u;\n");
                let square = |kind, of| format!("alias {kind} = coop_mat{size}x{size}<{of}>;\n");
                let squares = square("Rows", "f16, A") + &square("Weights", "f16, B");
                format_source(format) + &lanes + &squares + &square("Sums", "f32, C")
            }
            Self::Norm | Self::Add | Self::Vectors | Self::Share => threads(NORM_THREADS),
            Self::NormParts => threads(PART_THREADS),
            Self::Heads { head_dim, kind } => {
                threads(PART_THREADS) + &head_constants(head_dim, kind)
            }
            Self::Attend {
                head_dim,
                kind,
                page_tokens,
                ..
            } => {
                let tokens = format!("const PAGE_TOKENS: u32 = {page_tokens}u;\n");
                head_constants(head_dim, kind) + &tokens + &span_words()
            }
            Self::AttendPrompt {
                head_dim,
                kind,
                page_tokens,
            } => {
                let rows = prompt_rows(head_shape(head_dim, kind).stride());
                let sizes = format!(
                    "const PAGE_TOKENS: u32 = {page_tokens}u;\nconst ROWS: u32 = {rows}u;\n"
                );
                head_constants(head_dim, kind) + &sizes + &span_words()
            }
            Self::Merge { head_dim, kind } => head_constants(head_dim, kind),
            Self::Scan {
                key_dim,
                value_dim,
                delta,
            } => {
                let key = format!("const KEY_DIM: u32 = {key_dim}u;\n");
                let value = format!("const VALUE_DIM: u32 = {value_dim}u;\n");
                key + &value + &format!("const DELTA: bool = {delta};\n")
            }
            _ => String::new(),
        }
    }

    /// The sections of a kernel's files, in order.
    fn sections(self) -> Vec<&'static str> {
        let norm = |name| vec![section(NORMS, "sums"), section(NORMS, name)];
        let attend_with = |kind: KvKind, rest| {
            vec![
                section(ATTEND, "common"),
                section(ATTEND, "operation"),
                section(PAGES, kind.name()),
                rest,
            ]
        };
        let recurrent = |name| vec![section(RECURRENT, "spans"), section(RECURRENT, name)];
        match self {
            Self::Embed { .. } => vec![EMBED],
            Self::Tile { .. } => {
                let common = section(TILE, "common");
                vec![section(MATMUL, "product"), common, section(TILE, "matmul")]
            }
            Self::MatrixTile { .. } => vec![section(MATMUL, "product"), MATRIX_TILE],
            Self::SortChoices => vec![section(TILE, "sort")],
            Self::ExpertTile { .. } => vec![section(TILE, "common"), section(TILE, "experts")],
            Self::Matmul { .. } => {
                let lanes = section(MATMUL, "lanes");
                vec![section(MATMUL, "product"), lanes, section(MATMUL, "few")]
            }
            Self::Norm => norm("norm"),
            Self::NormParts => norm("parts"),
            Self::Add => norm("add"),
            Self::Vectors => norm("vectors"),
            Self::Share => norm("share"),
            Self::Heads { kind, .. } => {
                let mut all = vec![section(NORMS, "sums"), section(HEADS, "heads")];
                if kind.is_quantized() {
                    all.push(section(HEADS, "quants"));
                }
                all.push(section(HEADS, kind.name()));
                all
            }
            Self::Attend { kind, .. } => attend_with(kind, section(ATTEND, "attend")),
            Self::AttendPrompt { kind, .. } => attend_with(kind, ATTEND_PROMPT),
            Self::Merge { .. } => vec![section(ATTEND, "common"), section(ATTEND, "merge")],
            Self::Activate => vec![section(ROWS, "activate")],
            Self::Finish => vec![section(ROWS, "finish")],
            Self::Gather => vec![section(ROWS, "gather")],
            Self::CopyParts => vec![section(ROWS, "copy_parts")],
            Self::AddParts => vec![section(ROWS, "add_parts")],
            Self::Read => vec![section(ROWS, "read")],
            Self::Adjust => vec![section(DRAW, "draws"), section(DRAW, "adjust")],
            Self::Choose => vec![section(DRAW, "draws"), DRAW_CUTS, section(DRAW, "choose")],
            Self::Convolve => recurrent("convolve"),
            Self::Keep => recurrent("keep"),
            Self::ScanGates => recurrent("gates"),
            Self::Scan { .. } => recurrent("scan"),
            Self::AdaptDown => vec![section(ADAPTERS, "pairs"), section(ADAPTERS, "down")],
            Self::AdaptUp => vec![section(ADAPTERS, "pairs"), section(ADAPTERS, "up")],
            Self::Route => vec![section(EXPERTS, "route")],
            Self::Combine => vec![section(EXPERTS, "combine")],
            Self::ExpertMatmul { .. } => {
                vec![section(MATMUL, "lanes"), section(EXPERTS, "product")]
            }
        }
    }
}

/// A cache with one such head.
const fn head_shape(head_dim: u32, kind: KvKind) -> CacheShape {
    CacheShape {
        layers: 1,
        pages: 1,
        page_tokens: 1,
        kv_heads: 1,
        head_dim,
        kind,
    }
}

fn span_words() -> String {
    format!("const SPAN_WORDS: u32 = {SPAN_WORDS}u;\n")
}

fn head_constants(head_dim: u32, kind: KvKind) -> String {
    let shape = head_shape(head_dim, kind);
    let (stride, row, scales) = (shape.stride(), shape.row_words(), shape.scale_words());
    // A thread holds four elements of a head: 128 threads for 512 elements, 256 for the latents of DeepSeek.
    let threads = if stride > 512 { 256 } else { 128 };
    format!(
        "const HEAD_DIM: u32 = {head_dim}u;\nconst STRIDE: u32 = {stride}u;\nconst HEAD_THREADS: u32 = {threads}u;\n\
         const KV_ROW: u32 = {row}u;\nconst KV_SCALES: u32 = {scales}u;\nconst SCALE_GROUP: u32 = {SCALE_GROUP}u;\n"
    )
}

/// The lines after `// section NAME`, up to the next section.
fn section(text: &'static str, name: &str) -> &'static str {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("// section ") {
        let (found, body) = after.split_once('\n').unwrap_or((after, ""));
        if found == name {
            return body.split("// section ").next().unwrap_or(body);
        }
        rest = body;
    }
    ""
}

/// What reads the weights of a format.
fn format_source(format: Format) -> String {
    let names: &[&str] = &match format {
        Format::F32 => ["f32"],
        Format::F16 => ["f16"],
        _ => ["bf16"],
    };
    let Some(quant) = QuantFormat::of(format) else {
        let unit = section(FORMATS, names[0]);
        let common = section(FORMATS, "common");
        return format!("const HAS_SHIFT: bool = false;\n{common}{unit}");
    };
    let low = ["low2", "low4", "low8"][quant.low.ilog2().saturating_sub(1) as usize % 3];
    let high = ["high0", "high1", "high2"][quant.high % 3];
    let levels = match quant.levels {
        None => "even",
        Some(_) => "table",
    };
    let scales = match quant.scale_kind {
        ScaleKind::Plain => "plain",
        ScaleKind::Power => "power",
        ScaleKind::PlainMin => "plain_min",
        ScaleKind::Super32 => "super32",
        ScaleKind::Super16 => "super16",
        ScaleKind::SuperMin16 => "super_min16",
        ScaleKind::SuperMin32 => "super_min32",
    };
    let mut source = constants_of(&quant);
    for name in ["common", low, high, levels, "byte", scales, "quants"] {
        source += section(FORMATS, name);
    }
    source
}

fn constants_of(quant: &QuantFormat) -> String {
    let mut source = format!(
        "const HAS_SHIFT: bool = {};\nconst LOW_BITS: u32 = {}u;\nconst ZERO: f32 = {}.0;\nconst SCALE_UNIT: f32 = {:?};\n",
        quant.has_shift(),
        quant.low,
        quant.zero(),
        quant.unit(),
    );
    let levels = quant.levels.unwrap_or_default();
    for (name, bytes) in ["A", "B", "C", "D"].iter().zip(levels.as_chunks::<4>().0) {
        let word = u32::from_le_bytes(*bytes);
        _ = writeln!(source, "const LEVELS_{name}: u32 = {word}u;");
    }
    source
}
