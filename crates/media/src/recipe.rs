//! Recipe of a tower's input: the rule of its size, the order of its patches, and the numbers of its levels.

use crate::error::ImageFault;
use crate::patches::{Normalization, PatchOrder, patches};
use crate::pixels::Pixels;
use crate::plan::{
    Budget, LongestEdge, PARAMETER_MAX, Pinpoints, Plan, SliceRows, Slices, SmartResize,
    SplitLarge, Square, TileGrid, Tiles,
};
use crate::resize::Filter;
use crate::size::{Grid, Size};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Tiles of an image whose detail is not stated, where a model cuts images into tiles.
const TILES_AUTO: u32 = 6;

/// A rule with a number of rows has so many times as many for an image of high detail.
const BUDGET_HIGH: u32 = 4;

/// How much of an image a request wants to be seen: more detail costs more rows, and more time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Detail {
    /// Few rows: one tile, or a small picture.
    Low,
    /// The server's choice.
    #[default]
    Auto,
    /// As many rows as the model and the server allow.
    High,
}

/// Rows of one image for each detail, for the models whose rule follows a number of rows. Fixed sizes ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetailRows {
    /// Rows at most with [`Detail::Low`].
    pub low: u32,
    /// Rows at most with [`Detail::Auto`].
    pub auto: u32,
    /// Rows at most with [`Detail::High`].
    pub high: u32,
}

impl Default for DetailRows {
    fn default() -> Self {
        Self {
            low: 256,
            auto: 1280,
            high: 4096,
        }
    }
}

impl DetailRows {
    /// Rows at most with this detail.
    #[must_use]
    pub fn of(self, detail: Detail) -> u32 {
        match detail {
            Detail::Low => self.low,
            Detail::Auto => self.auto,
            Detail::High => self.high,
        }
    }
}

/// The rule by which the size of an image becomes a plan, with the parameters of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each rule is described where it is defined")]
pub enum Rule {
    Tiles(Tiles),
    Square(Square),
    SmartResize(SmartResize),
    Budget(Budget),
    LongestEdge(LongestEdge),
    TileGrid(TileGrid),
    Slices(Slices),
    Pinpoints(Pinpoints),
    SplitLarge(SplitLarge),
}

/// The recipe by which an image becomes a tower's input.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// From a size to resizes, tiles and rows.
    pub rule: Rule,
    /// Pixels of a patch's edge.
    pub patch: u32,
    /// The order in which the tower takes patches.
    pub order: PatchOrder,
    /// How levels become numbers.
    pub normalization: Normalization,
    /// Bounds of rows by detail.
    pub rows: DetailRows,
}

/// A picture that a tower sees, and turns into one run of rows: the input of an encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The pixels, in the size that the tower takes.
    pub pixels: Pixels,
    /// Patches of the picture.
    pub patches: Grid,
    /// Rows and columns of what the tower makes of it.
    pub merged: Grid,
    /// Rows that the tower makes of it, with the marks of lines' ends: see [`crate::plan::Tile::rows`].
    pub rows: u32,
}

impl Recipe {
    /// The plan of an image of `size`, upright, as [`crate::Header::size`] gives it.
    ///
    /// # Errors
    ///
    /// The image has no pixels or a ratio that the rule refuses, or there are more rows than
    /// [`crate::plan::ROWS_MAX`].
    pub fn plan(&self, size: Size, detail: Detail) -> Result<Plan, ImageFault> {
        let rows = self.rows.of(detail);
        match &self.rule {
            Rule::Tiles(rule) => plan_of_tiles(*rule, size, detail),
            Rule::Square(rule) => rule.plan(size),
            Rule::SmartResize(rule) => within_rows(*rule, rows).plan(size),
            Rule::Budget(rule) => within_budget(*rule, detail, rows).plan(size),
            Rule::LongestEdge(rule) => within_edge(*rule, rows).plan(size),
            Rule::TileGrid(rule) => TileGrid {
                tiles_max: tiles_of(detail, rule.tiles_max),
                ..*rule
            }
            .plan(size),
            Rule::Slices(rule) => Slices {
                slices_max: tiles_of(detail, rule.slices_max),
                ..*rule
            }
            .plan(size),
            Rule::Pinpoints(rule) => rule.plan(size),
            Rule::SplitLarge(rule) => SplitLarge {
                tiles_max: tiles_of(detail, rule.tiles_max),
                ..*rule
            }
            .plan(size),
        }
    }

    /// The pictures that the tower sees of an image, one for each run of rows, in the order of the prompt.
    #[must_use]
    pub fn inputs(&self, plan: &Plan, image: &Pixels) -> Vec<Arc<View>> {
        let views = plan.views(image).into_iter().zip(plan.tiles());
        views
            .map(|(pixels, tile)| {
                Arc::new(View {
                    pixels,
                    patches: tile.patches,
                    merged: tile.merged,
                    rows: tile.rows,
                })
            })
            .collect()
    }

    /// The numbers of a view that the first matrix of the tower takes, (patches, 3 · patch · patch).
    #[must_use]
    pub fn patches(&self, view: &View) -> Vec<f32> {
        patches(&view.pixels, self.patch, self.order, &self.normalization)
    }

    /// A hash of what turns pixels into the numbers of patches. Sizes and rows are in the plan, which a key has too.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(b"millrace recipe\0");
        hash.update(self.patch.to_le_bytes());
        let (blocks, windows) = match self.order {
            PatchOrder::Raster => (0, None),
            PatchOrder::Blocks(edge) => (edge, None),
            PatchOrder::Windows { merge, edge } => (merge, Some(edge)),
        };
        hash.update(blocks.to_le_bytes());
        if let Some(edge) = windows {
            hash.update(edge.to_le_bytes());
        }
        let Normalization { mean, std } = self.normalization;
        for number in mean.into_iter().chain(std) {
            hash.update(number.to_le_bytes());
        }
        hash.finalize().into()
    }

    /// Rows of one run, at most: a bound of what a tower holds at one time.
    #[must_use]
    pub fn run_rows_max(&self) -> u32 {
        let rows = self.rows.low.max(self.rows.auto).max(self.rows.high);
        let square = |edge: u32, patch: u32, merge: u32| {
            Grid::of_cells(Size::square(edge), patch)
                .merged(merge)
                .count()
        };
        match &self.rule {
            Rule::Tiles(rule) => square(rule.tile, rule.patch, rule.shuffle),
            Rule::Square(rule) => square(rule.edge, rule.patch, rule.pool),
            Rule::SmartResize(rule) => rows.max(cells(rule.pixels_min, rule.patch * rule.merge)),
            Rule::Budget(rule) => rows.min(rule.rows_max.saturating_mul(BUDGET_HIGH)),
            // A mark after each line of cells, of which there are no more than along the edge of the largest square.
            Rule::LongestEdge(_) => rows.saturating_add(rows.isqrt()),
            Rule::TileGrid(rule) => square(rule.tile, rule.patch, rule.shuffle),
            Rule::SplitLarge(rule) => square(rule.tile, rule.patch, rule.merge).max(rule.rows_max),
            Rule::Slices(rule) => rule.rows_max(),
            // A mark after each line of the largest resolution.
            Rule::Pinpoints(rule) => {
                let grids = rule
                    .resolutions
                    .iter()
                    .map(|size| Grid::of_cells(*size, rule.patch));
                let most =
                    grids.map(|grid| grid.rows.saturating_mul(grid.columns.saturating_add(1)));
                most.max()
                    .unwrap_or(0)
                    .max(square(rule.tile, rule.patch, 1))
            }
        }
    }
}

/// Cells of `unit` by `unit` pixels in so many pixels, a part of one counted.
fn cells(pixels: u64, unit: u32) -> u32 {
    let cell = u64::from(unit.max(1)).pow(2);
    u32::try_from(pixels.div_ceil(cell)).unwrap_or(u32::MAX)
}

/// Tiles at most with this detail.
fn tiles_of(detail: Detail, most: u32) -> u32 {
    match detail {
        Detail::Low => 1,
        Detail::Auto => most.min(TILES_AUTO),
        Detail::High => most,
    }
}

/// The largest plan of tiles that the detail allows: shorter edges until there are few enough tiles.
fn plan_of_tiles(rule: Tiles, size: Size, detail: Detail) -> Result<Plan, ImageFault> {
    let most = tiles_of(detail, u32::MAX);
    let mut edges = rule.longest_edge / rule.tile.max(1);
    let mut plan = rule.plan(size)?;
    while plan.grid.count() > most && edges > 1 {
        edges -= 1;
        let longest_edge = edges * rule.tile;
        plan = Tiles {
            longest_edge,
            ..rule
        }
        .plan(size)?;
    }
    Ok(plan)
}

/// The rule with no more than so many rows, but as many as its least number of pixels asks for.
fn within_rows(rule: SmartResize, rows: u32) -> SmartResize {
    let unit = u64::from(rule.patch) * u64::from(rule.merge);
    let pixels = u64::from(rows).saturating_mul(unit.saturating_mul(unit));
    SmartResize {
        pixels_max: rule.pixels_max.min(pixels).max(rule.pixels_min),
        ..rule
    }
}

/// The rule with half of its rows, its own rows, or four times as many, within the server's bound.
fn within_budget(rule: Budget, detail: Detail, rows: u32) -> Budget {
    let wanted = match detail {
        Detail::Low => rule.rows_max / 2,
        Detail::Auto => rule.rows_max,
        Detail::High => rule.rows_max.saturating_mul(BUDGET_HIGH),
    };
    Budget {
        rows_max: wanted.min(rows).max(1),
        ..rule
    }
}

/// The rule with a longest edge whose square has no more than so many rows.
fn within_edge(rule: LongestEdge, rows: u32) -> LongestEdge {
    let unit = rule.patch.saturating_mul(rule.merge).min(PARAMETER_MAX);
    let edge = rows.isqrt().max(1).saturating_mul(unit);
    LongestEdge {
        longest_edge: rule.longest_edge.min(edge),
        ..rule
    }
}

/// The rules of single families. What becomes one row is together in all of them.
impl Recipe {
    /// SmolVLM and Idefics 3: tiles of a large picture, and the whole.
    #[must_use]
    pub fn idefics3(rule: Tiles, normalization: Normalization) -> Self {
        Self {
            patch: rule.patch,
            order: PatchOrder::Blocks(rule.shuffle),
            rule: Rule::Tiles(rule),
            normalization,
            rows: DetailRows::default(),
        }
    }

    /// Gemma 3: one square picture, stretched.
    #[must_use]
    pub fn gemma3(edge: u32, patch: u32, pool: u32, normalization: Normalization) -> Self {
        let fit = crate::plan::Fit::Stretch;
        let filter = Filter::Bilinear;
        Self {
            rule: Rule::Square(Square {
                edge,
                patch,
                pool,
                filter,
                fit,
            }),
            patch,
            order: PatchOrder::Blocks(pool),
            normalization,
            rows: DetailRows::default(),
        }
    }

    /// InternVL: tiles of the grid that is nearest to the image's ratio, and the whole.
    #[must_use]
    pub fn internvl(rule: TileGrid, normalization: Normalization) -> Self {
        Self {
            patch: rule.patch,
            order: PatchOrder::Blocks(rule.shuffle),
            rule: Rule::TileGrid(rule),
            normalization,
            rows: DetailRows::default(),
        }
    }

    /// LFM2-VL: one picture, and tiles of a large image before it.
    #[must_use]
    pub fn lfm2(rule: SplitLarge, normalization: Normalization) -> Self {
        Self {
            patch: rule.patch,
            order: PatchOrder::Blocks(rule.merge),
            rule: Rule::SplitLarge(rule),
            normalization,
            rows: DetailRows::default(),
        }
    }

    /// MiniCPM-V: the whole, and slices of a large image after it. Of four by four patches that become one row, each two by
    /// two are together, since the tower merges these first.
    #[must_use]
    pub fn minicpm(rule: Slices, normalization: Normalization) -> Self {
        let order = match rule.rows {
            SliceRows::Queries(_) => PatchOrder::Raster,
            SliceRows::Merged(edge) if edge > 2 => PatchOrder::Windows { merge: 2, edge },
            SliceRows::Merged(edge) => PatchOrder::Blocks(edge),
        };
        Self {
            patch: rule.patch,
            order,
            rule: Rule::Slices(rule),
            normalization,
            rows: DetailRows::default(),
        }
    }

    /// Gemma 4: any ratio within a number of rows, and what becomes one row together.
    #[must_use]
    pub fn gemma4(rule: Budget, normalization: Normalization) -> Self {
        Self {
            patch: rule.patch,
            order: PatchOrder::Blocks(rule.pool),
            rule: Rule::Budget(rule),
            normalization,
            rows: DetailRows::default(),
        }
    }

    /// Pixtral, Mistral Small 3.1 and later, and Ministral 3: the longer edge within a bound.
    #[must_use]
    pub fn pixtral(rule: LongestEdge, normalization: Normalization) -> Self {
        Self {
            patch: rule.patch,
            order: PatchOrder::Blocks(rule.merge),
            rule: Rule::LongestEdge(rule),
            normalization,
            rows: DetailRows::default(),
        }
    }

    /// LLaVA 1.5: one square picture with the whole image, on a ground of the color that becomes zero.
    #[must_use]
    pub fn llava(edge: u32, patch: u32, normalization: Normalization) -> Self {
        let ground = normalization.mean.map(|mean| (mean * 255.0) as u8);
        Self {
            rule: Rule::Square(Square {
                edge,
                patch,
                pool: 1,
                filter: Filter::Bicubic,
                fit: crate::plan::Fit::Pad(ground),
            }),
            patch,
            order: PatchOrder::Raster,
            normalization,
            rows: DetailRows::default(),
        }
    }

    /// LLaVA 1.6: the whole, and a picture of tiles, each of which the tower sees as a picture of its own.
    #[must_use]
    pub fn llava_next(rule: Pinpoints, normalization: Normalization) -> Self {
        let (merge, edge) = (1, rule.tile / rule.patch.max(1));
        Self {
            patch: rule.patch,
            order: PatchOrder::Windows { merge, edge },
            rule: Rule::Pinpoints(rule),
            normalization,
            rows: DetailRows::default(),
        }
    }

    /// Qwen's towers: any ratio, and what becomes one row together.
    #[must_use]
    pub fn qwen(rule: SmartResize, normalization: Normalization) -> Self {
        Self {
            patch: rule.patch,
            order: PatchOrder::Blocks(rule.merge),
            rule: Rule::SmartResize(rule),
            normalization,
            rows: DetailRows::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn smol() -> Recipe {
        let rule = Tiles {
            longest_edge: 2048,
            tile: 512,
            patch: 16,
            shuffle: 4,
        };
        Recipe::idefics3(rule, Normalization::HALF)
    }

    #[test]
    fn detail_bounds_tiles() {
        let size = Size::new(1600, 1200);
        let count = |detail| smol().plan(size, detail).unwrap().grid.count();
        assert_eq!(count(Detail::Low), 1);
        assert!((2..=TILES_AUTO).contains(&count(Detail::Auto)));
        assert_eq!(count(Detail::High), 12);
    }

    #[test]
    fn rows_stay_within_the_bound_of_their_detail() {
        let rule = SmartResize {
            patch: 16,
            merge: 2,
            pixels_min: 65_536,
            pixels_max: 16_777_216,
        };
        let recipe = Recipe::qwen(rule, Normalization::HALF);
        for edge in [1, 30, 999, 5000] {
            for detail in [Detail::Low, Detail::Auto, Detail::High] {
                let plan = recipe.plan(Size::new(edge, 777), detail);
                let Ok(plan) = plan else { continue };
                // The edge of a long picture is rounded up, so a few rows more are possible only below the least size.
                assert!(plan.rows <= recipe.rows.of(detail), "{edge} {detail:?}");
                assert!(plan.rows <= recipe.run_rows_max());
            }
        }
    }

    #[test]
    fn detail_halves_or_quadruples_the_rows_of_a_budget() {
        let rule = Budget {
            patch: 16,
            pool: 3,
            rows_max: 280,
        };
        let recipe = Recipe::gemma4(rule, Normalization::PARTS);
        let rows = [Detail::Low, Detail::Auto, Detail::High].map(|detail| {
            let plan = recipe.plan(Size::new(4000, 3000), detail).unwrap();
            plan.rows
        });
        // Grids of 13 by 10, 19 by 14 and 38 by 28 cells.
        assert_eq!(rows, [130, 266, 1064]);
        assert_eq!(recipe.run_rows_max(), 1120);
    }

    #[test]
    fn one_view_for_each_run() {
        let size = Size::new(60, 30);
        let rule = Tiles {
            longest_edge: 64,
            tile: 32,
            patch: 8,
            shuffle: 2,
        };
        let recipe = Recipe::idefics3(rule, Normalization::HALF);
        let plan = recipe.plan(size, Detail::High).unwrap();
        let views = recipe.inputs(&plan, &Pixels::new(size, vec![9; size.rgb_bytes()]));
        let rows: u32 = views.iter().map(|view| view.merged.count()).sum();
        assert_eq!((views.len(), rows), (plan.tiles().count(), plan.rows));
        assert_eq!(recipe.patches(&views[0]).len(), 16 * 3 * 8 * 8);
    }

    #[test]
    fn fingerprints_tell_numbers_apart() {
        let half = smol().fingerprint();
        let clip = Recipe {
            normalization: Normalization::CLIP,
            ..smol()
        };
        assert_ne!(half, clip.fingerprint());
        assert_eq!(half, smol().fingerprint());
    }
}
