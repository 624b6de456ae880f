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
    /// The marks of the models with this projector (`clip.projector_type`).
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
    /// template has written anything around.
    pub fn pieces(self, plan: &Plan, alone: bool) -> Vec<MarkPiece> {
        let pieces = match self {
            Self::Idefics3 => tiles_and_whole(plan),
            Self::Qwen | Self::Llava => runs(plan),
            Self::Gemma3 => between("\n\n<start_of_image>", plan, "<end_of_image>\n\n"),
            Self::Gemma4 => between("<|image>", plan, "<image|>"),
            Self::Pixtral => between("", plan, "[IMG_END]"),
            Self::InternVl => between("<img>", plan, "</img>"),
            Self::Lfm2 => numbered_tiles(plan),
        };
        let (before, after) = self.of_family().around;
        if alone {
            [vec![text(before)], pieces, vec![text(after)]].concat()
        } else {
            pieces
        }
    }

    /// Rows of each run of an image with this plan, and their grids.
    pub(crate) fn run_rows(plan: &Plan) -> Vec<(usize, (u32, u32))> {
        plan.tiles()
            .map(|tile| {
                let grid = (tile.merged.rows, tile.merged.columns);
                (tile.rows as usize, grid)
            })
            .collect()
    }
}

fn text(text: &'static str) -> MarkPiece {
    MarkPiece::Text(Cow::Borrowed(text))
}

fn runs(plan: &Plan) -> Vec<MarkPiece> {
    (0..plan.tiles().count()).map(MarkPiece::Run).collect()
}

fn between(before: &'static str, plan: &Plan, after: &'static str) -> Vec<MarkPiece> {
    [vec![text(before)], runs(plan), vec![text(after)]].concat()
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
