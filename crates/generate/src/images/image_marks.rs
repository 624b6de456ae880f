//! The texts that a family of models was trained to see around the rows of an image, as transformers' processors write
//! them (<https://github.com/huggingface/transformers>, `processing_*.py`).

use media::plan::Plan;
use std::borrow::Cow;
use text::Tokenizer;

/// How a family marks images in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageMarks {
    /// Idefics 3 and SmolVLM: each tile by row and column, then the whole.
    Idefics3,
    /// Qwen2-VL to Qwen 3.5: the template writes what is around.
    Qwen,
    /// Gemma 3.
    Gemma3,
    /// Gemma 4.
    Gemma4,
    /// Pixtral and Mistral 3: marks of line ends are rows of the encoder.
    Pixtral,
    /// LLaVA: nothing around.
    Llava,
    /// InternVL.
    InternVl,
    /// LFM2-VL: each tile by row and column, then the whole.
    Lfm2,
    /// MiniCPM-V 2.5: the whole, then its slices, line by line, in one pair of marks.
    MiniCpm25,
    /// MiniCPM-V 2.6, 4.0 and 4.5, MiniCPM-o: the image's number, the whole, then its slices, line by line.
    MiniCpm26,
    /// MiniCPM-V 4.6: the same, in place of another placeholder.
    MiniCpm46,
}

/// A part of what stands for an image in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkPiece {
    /// Template text.
    Text(Cow<'static, str>),
    /// The rows of this number among the image's runs.
    Run(usize),
}

/// The texts of a family.
struct Texts {
    /// Text that the template writes for an image.
    placeholder: &'static str,
    /// The token whose id rows of an image have in the prompt.
    pad: &'static str,
    /// Texts around the placeholder where no template writes them.
    around: (&'static str, &'static str),
}

impl ImageMarks {
    /// The marks of the models with this projector: the name of `VisionConfig::marks_name`.
    pub fn of_projector(name: &str) -> Option<Self> {
        Some(match name {
            "idefics3" => Self::Idefics3,
            "qwen2vl_merger" | "qwen2.5vl_merger" | "qwen3vl_merger" => Self::Qwen,
            "gemma3" => Self::Gemma3,
            "gemma4v" | "gemma4uv" => Self::Gemma4,
            "pixtral" => Self::Pixtral,
            "mlp" | "mlp_norm" => Self::Llava,
            "internvl" => Self::InternVl,
            "lfm2" => Self::Lfm2,
            "resampler of MiniCPM-V 2.5" => Self::MiniCpm25,
            "resampler" => Self::MiniCpm26,
            "minicpmv4_6" => Self::MiniCpm46,
            _ => return None,
        })
    }

    const fn of_family(self) -> Texts {
        let (placeholder, pad, around) = match self {
            Self::Idefics3 => ("<image>", "<image>", ("", "")),
            Self::Qwen => (
                "<|image_pad|>",
                "<|image_pad|>",
                ("<|vision_start|>", "<|vision_end|>"),
            ),
            Self::Gemma3 => ("<start_of_image>", "<image_soft_token>", ("", "")),
            Self::Gemma4 => ("<|image|>", "<|image|>", ("", "")),
            Self::Pixtral => ("[IMG]", "[IMG]", ("", "")),
            Self::Llava => ("<image>", "<image>", ("", "\n")),
            Self::InternVl => ("<IMG_CONTEXT>", "<IMG_CONTEXT>", ("", "\n")),
            Self::Lfm2 => ("<image>", "<image>", ("", "")),
            // The published code joins the parts of a message with line ends.
            Self::MiniCpm25 | Self::MiniCpm26 => ("(<image>./</image>)", "<unk>", ("", "\n")),
            Self::MiniCpm46 => ("<|image_pad|>", "<|image_pad|>", ("", "\n")),
        };
        Texts {
            placeholder,
            pad,
            around,
        }
    }

    /// Text that the family's templates write for an image.
    pub fn placeholder(self) -> &'static str {
        self.of_family().placeholder
    }

    /// Texts around the placeholder: written with it where no template does.
    pub(crate) fn around(self) -> (&'static str, &'static str) {
        self.of_family().around
    }

    /// Texts that users' text must not be taken for ([`Tokenizer::reserving`]).
    pub fn texts(self) -> impl Iterator<Item = &'static str> {
        let others: &[&str] = match self {
            Self::Idefics3 => &["<fake_token_around_image>", "<global-img>"],
            Self::Qwen => &["<|vision_start|>", "<|vision_end|>"],
            Self::Gemma3 => &["<end_of_image>", "<image_soft_token>"],
            Self::Gemma4 => &["<|image>", "<image|>"],
            Self::Pixtral => &["[IMG_BREAK]", "[IMG_END]"],
            Self::Llava => &[],
            Self::InternVl => &["<img>", "</img>"],
            Self::Lfm2 => &["<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"],
            Self::MiniCpm25 | Self::MiniCpm26 | Self::MiniCpm46 => &MINICPM_MARKS,
        };
        [self.placeholder()]
            .into_iter()
            .chain(others.iter().copied())
    }

    /// The id that rows of an image have in a prompt: any token's, as the encoder's vectors take its place.
    pub(crate) fn pad(self, tokenizer: &Tokenizer) -> u32 {
        let Texts {
            placeholder, pad, ..
        } = self.of_family();
        let known = [pad, placeholder].into_iter();
        known
            .filter_map(|text| tokenizer.id_of(text))
            .next()
            .unwrap_or(0)
    }

    /// Texts and runs of an image with this plan, in place of the placeholder of a template; `alone`: in place of a mark that no
    /// template has written anything around. `number` is that of the image among those of the prompt.
    pub fn pieces(self, plan: &Plan, number: usize, alone: bool) -> Vec<MarkPiece> {
        let pieces = match self {
            Self::Idefics3 => tiles_and_whole(plan),
            Self::Qwen | Self::Llava => runs(plan),
            Self::Gemma3 => between("\n\n<start_of_image>", plan, "<end_of_image>\n\n"),
            Self::Gemma4 => between("<|image>", plan, "<image|>"),
            Self::Pixtral => between("", plan, "[IMG_END]"),
            Self::InternVl => between("<img>", plan, "</img>"),
            Self::Lfm2 => numbered_tiles(plan),
            Self::MiniCpm25 => {
                let slices = ("<slice>", ("<image>", "</image>"), "</slice>");
                whole_and_slices(plan, None, slices)
            }
            Self::MiniCpm26 | Self::MiniCpm46 => {
                whole_and_slices(plan, Some(number), ("", ("<slice>", "</slice>"), ""))
            }
        };
        let (before, after) = self.around();
        if alone {
            [vec![text(before)], pieces, vec![text(after)]].concat()
        } else {
            pieces
        }
    }

    /// Rows of each run of an image with this plan, and the grids by which a text model counts positions on three axes; none
    /// where rows were trained to have the positions of tokens.
    pub(crate) fn run_rows(self, plan: &Plan) -> Vec<(usize, (u32, u32))> {
        plan.tiles()
            .map(|tile| {
                let grid = match self {
                    Self::MiniCpm46 => (0, 0),
                    _ => (tile.merged.rows, tile.merged.columns),
                };
                (tile.rows as usize, grid)
            })
            .collect()
    }
}

/// Marks of all versions of MiniCPM-V; 2.5 has no numbers of images.
const MINICPM_MARKS: [&str; 6] = [
    "<image>",
    "</image>",
    "<slice>",
    "</slice>",
    "<image_id>",
    "</image_id>",
];

fn text(text: &'static str) -> MarkPiece {
    MarkPiece::Text(Cow::Borrowed(text))
}

fn runs(plan: &Plan) -> Vec<MarkPiece> {
    (0..plan.tiles().count()).map(MarkPiece::Run).collect()
}

fn between(before: &'static str, plan: &Plan, after: &'static str) -> Vec<MarkPiece> {
    [vec![text(before)], runs(plan), vec![text(after)]].concat()
}

/// The number of the image, the whole picture, and its slices with line ends between their rows, all within `before` and `after`.
fn whole_and_slices(
    plan: &Plan,
    number: Option<usize>,
    (before, slice, after): (&'static str, (&'static str, &'static str), &'static str),
) -> Vec<MarkPiece> {
    let number = number.map(|number| format!("<image_id>{number}</image_id>"));
    let number = MarkPiece::Text(number.unwrap_or_default().into());
    let mut pieces = vec![number, text("<image>"), MarkPiece::Run(0), text("</image>")];
    let slices = plan.tiles().count().saturating_sub(1);
    if slices == 0 {
        return pieces;
    }
    pieces.push(text(before));
    for number in 0..slices {
        if number > 0 && number.is_multiple_of(plan.grid.columns as usize) {
            pieces.push(text("\n"));
        }
        pieces.extend([text(slice.0), MarkPiece::Run(1 + number), text(slice.1)]);
    }
    pieces.push(text(after));
    pieces
}

/// Tiles row by row, each behind its row and column, and the whole picture; of a picture that is not cut, the whole alone.
fn numbered_tiles(plan: &Plan) -> Vec<MarkPiece> {
    let (grid, whole) = (plan.grid, plan.tiles().count().saturating_sub(1));
    let mut pieces = vec![text("<|image_start|>")];
    for tile in 0..whole {
        let (row, column) = (tile as u32 / grid.columns, tile as u32 % grid.columns);
        let mark = format!("<|img_row_{}_col_{}|>", row + 1, column + 1);
        pieces.push(MarkPiece::Text(mark.into()));
        pieces.push(MarkPiece::Run(tile));
    }
    if whole > 0 {
        pieces.push(text("<|img_thumbnail|>"));
    }
    pieces.push(MarkPiece::Run(whole));
    pieces.push(text("<|image_end|>"));
    pieces
}

/// Tiles row by row, each behind its row and column, a line end after each row of them, and the whole picture; of a picture
/// that is one tile, the whole alone.
fn tiles_and_whole(plan: &Plan) -> Vec<MarkPiece> {
    const FAKE: &str = "<fake_token_around_image>";
    let mut pieces = Vec::new();
    let grid = plan.grid;
    let tiles = if grid.count() > 1 { grid.count() } else { 0 };
    for tile in 0..tiles {
        let (row, column) = (tile / grid.columns, tile % grid.columns);
        let mark = format!("{FAKE}<row_{}_col_{}>", row + 1, column + 1);
        pieces.push(MarkPiece::Text(mark.into()));
        pieces.push(MarkPiece::Run(tile as usize));
        if column + 1 == grid.columns {
            pieces.push(text("\n"));
        }
    }
    if tiles > 0 {
        pieces.push(text("\n"));
    }
    pieces.push(text("<fake_token_around_image><global-img>"));
    pieces.push(MarkPiece::Run(tiles as usize));
    pieces.push(text(FAKE));
    pieces
}
