//! Recipe of a tower's input, from the keys of its file and the usual numbers of its family.

use super::config::EDGE_MAX;
use super::minicpm::ResamplerConfig;
use super::projector::Projector;
use crate::ConfigError;
use crate::config::keys::Keys;
use media::plan::{
    Budget, LongestEdge, PINPOINTS_MAX, Pinpoints, SliceRows, Slices, SmartResize, SplitLarge,
    TILES_MAX, TileGrid, Tiles,
};
use media::{Grid, Normalization, Recipe, Size};

/// Tiles along the longest edge, where a file does not name the edge.
const TILES_ALONG: usize = 4;
/// Pixels of a resized picture of Qwen2-VL and Qwen2.5-VL, and of Qwen3-VL, at least and at most, where a file does not name
/// them.
const QWEN2_PIXELS: (usize, usize) = (3_136, 12_845_056);
const QWEN3_PIXELS: (usize, usize) = (65_536, 16_777_216);
/// Tiles of InternVL, at least and at most.
const INTERNVL_TILES: (usize, usize) = (1, 12);
/// Tiles of LFM2-VL, at least and at most, the pixels of a tile's edge, and rows of the one picture, at least and at most.
const LFM2_TILES: (usize, usize) = (2, 10);
const LFM2_TILE: usize = 512;
const LFM2_ROWS: (usize, usize) = (64, 256);
/// Slices of MiniCPM-V, at most.
const MINICPM_SLICES: usize = 9;
/// Rows of an image of Gemma 4, at most, where a request does not state its detail.
const GEMMA4_ROWS: u32 = 280;
/// Pixels of a resized picture that a file may name.
const PIXELS_MAX: usize = media::plan::VIEW_PIXELS_MAX as usize;
/// Means and deviations that a file may name: levels are 0 to 1.
const MEAN: std::ops::RangeInclusive<f32> = -1.0..=2.0;
const DEVIATION: std::ops::RangeInclusive<f32> = 1e-3..=10.0;

/// Reads the recipe of a tower with pictures of `edge` pixels, patches of `patch` and rows of `merge` by `merge` patches, or of
/// the queries of a resampler.
pub(super) fn read(
    keys: &Keys<'_>,
    projector: Projector,
    resampler: Option<ResamplerConfig>,
    sizes: (usize, usize, usize),
) -> Result<Recipe, ConfigError> {
    let (edge, patch, merge) = sizes;
    let normalization = normalization(keys, projector)?;
    let pixels = |size: usize| size as u32;
    Ok(match projector {
        Projector::Idefics3 => Recipe::idefics3(tiles(keys, sizes)?, normalization),
        Projector::Gemma4V | Projector::Gemma4Uv => {
            let rule = Budget {
                patch: pixels(patch),
                pool: pixels(merge),
                rows_max: GEMMA4_ROWS,
            };
            Recipe::gemma4(rule, centered(projector, normalization))
        }
        Projector::Gemma3 => {
            whole_rows(keys, edge / patch, merge)?;
            Recipe::gemma3(pixels(edge), pixels(patch), pixels(merge), normalization)
        }
        Projector::Qwen2Vl | Projector::Qwen25Vl | Projector::Qwen3Vl => {
            let rule = smart_resize(keys, projector, (pixels(patch), pixels(merge)))?;
            Recipe::qwen(rule, normalization)
        }
        Projector::Pixtral => {
            let rule = LongestEdge {
                longest_edge: pixels(edge),
                patch: pixels(patch),
                merge: pixels(merge),
            };
            Recipe::pixtral(rule, normalization)
        }
        Projector::InternVl => Recipe::internvl(tile_grid(keys, sizes)?, normalization),
        Projector::Lfm2 => Recipe::lfm2(split_large(keys, (patch, merge))?, normalization),
        Projector::Resampler | Projector::MiniCpm46 => {
            let most = keys.size("preproc_max_tiles", 1, TILES_MAX as usize)?;
            let rows = resampler.map_or(SliceRows::Merged(pixels(merge)), |resampler| {
                SliceRows::Queries(pixels(resampler.queries))
            });
            let rule = Slices {
                slice: pixels(edge),
                patch: pixels(patch),
                slices_max: pixels(most.unwrap_or(MINICPM_SLICES)),
                rows,
            };
            Recipe::minicpm(rule, normalization)
        }
        Projector::Llava => match resolutions(keys, edge)? {
            Some(resolutions) => {
                let rule = Pinpoints {
                    tile: pixels(edge),
                    patch: pixels(patch),
                    resolutions,
                };
                Recipe::llava_next(rule, normalization)
            }
            None => Recipe::llava(pixels(edge), pixels(patch), normalization),
        },
    })
}

/// How levels become numbers, from the file or as usual in the family.
fn normalization(keys: &Keys<'_>, projector: Projector) -> Result<Normalization, ConfigError> {
    let usual = match projector {
        Projector::Idefics3
        | Projector::Gemma3
        | Projector::Qwen3Vl
        | Projector::Lfm2
        | Projector::Resampler
        | Projector::MiniCpm46 => Normalization::HALF,
        Projector::Gemma4V | Projector::Gemma4Uv => Normalization::PARTS,
        Projector::Qwen2Vl | Projector::Qwen25Vl | Projector::Pixtral | Projector::Llava => {
            Normalization::CLIP
        }
        Projector::InternVl => Normalization::IMAGENET,
    };
    Ok(Normalization {
        mean: channels(keys, "image_mean", usual.mean, MEAN)?,
        std: channels(keys, "image_std", usual.std, DEVIATION)?,
    })
}

/// The rule of Idefics 3 and SmolVLM.
fn tiles(
    keys: &Keys<'_>,
    (edge, patch, merge): (usize, usize, usize),
) -> Result<Tiles, ConfigError> {
    let pixels = |size: usize| size as u32;
    whole_rows(keys, edge / patch, merge)?;
    let longest = keys.size("preproc_image_size", edge, EDGE_MAX)?;
    Ok(Tiles {
        longest_edge: pixels(longest.unwrap_or((TILES_ALONG * edge).min(EDGE_MAX))),
        tile: pixels(edge),
        patch: pixels(patch),
        shuffle: pixels(merge),
    })
}

/// The rule of InternVL.
fn tile_grid(
    keys: &Keys<'_>,
    (edge, patch, merge): (usize, usize, usize),
) -> Result<TileGrid, ConfigError> {
    let pixels = |size: usize| size as u32;
    whole_rows(keys, edge / patch, merge)?;
    let (tiles_min, tiles_max) = tile_bounds(keys, INTERNVL_TILES)?;
    Ok(TileGrid {
        tile: pixels(edge),
        patch: pixels(patch),
        shuffle: pixels(merge),
        tiles_min,
        tiles_max,
    })
}

/// The rule of LFM2-VL.
fn split_large(keys: &Keys<'_>, (patch, merge): (usize, usize)) -> Result<SplitLarge, ConfigError> {
    let pixels = |size: usize| size as u32;
    let tile = keys.size("preproc_image_size", patch * merge, EDGE_MAX)?;
    let tile = tile.unwrap_or(LFM2_TILE);
    whole_rows(keys, tile / patch, merge)?;
    let (tiles_min, tiles_max) = tile_bounds(keys, LFM2_TILES)?;
    let unit = (patch * merge) * (patch * merge);
    let least = keys.size("image_min_pixels", unit, PIXELS_MAX)?;
    let most = keys.size("image_max_pixels", unit, PIXELS_MAX)?;
    let rows = [
        least.map_or(LFM2_ROWS.0, |pixels| pixels / unit),
        most.map_or(LFM2_ROWS.1, |pixels| pixels / unit),
    ];
    if rows[0] > rows[1] {
        let bound = format!("at most {} rows", rows[1]);
        return Err(keys.range("image_min_pixels", format!("{} rows", rows[0]), bound));
    }
    Ok(SplitLarge {
        tile: pixels(tile),
        patch: pixels(patch),
        merge: pixels(merge),
        tiles_min,
        tiles_max,
        rows_min: pixels(rows[0]),
        rows_max: pixels(rows[1]),
    })
}

/// The rule of Qwen's towers.
fn smart_resize(
    keys: &Keys<'_>,
    projector: Projector,
    (patch, merge): (u32, u32),
) -> Result<SmartResize, ConfigError> {
    let (least, most) = match projector {
        Projector::Qwen3Vl => QWEN3_PIXELS,
        _ => QWEN2_PIXELS,
    };
    let bound = |name: &str, usual: usize| {
        let found = keys.size(name, 1, PIXELS_MAX)?;
        Ok::<_, ConfigError>(found.unwrap_or(usual))
    };
    let least = bound("image_min_pixels", least)?;
    let most = bound("image_max_pixels", most)?;
    if least > most {
        return Err(keys.range("image_min_pixels", least, format!("at most {most}")));
    }
    Ok(SmartResize {
        patch,
        merge,
        pixels_min: least as u64,
        pixels_max: most as u64,
    })
}

/// The resolutions of a picture of tiles, as widths and heights in turn. Files of LLaVA 1.5 name none.
fn resolutions(keys: &Keys<'_>, tile: usize) -> Result<Option<Vec<Size>>, ConfigError> {
    const NAME: &str = "image_grid_pinpoints";
    let Some(edges) = keys.numbers(NAME, 2 * PINPOINTS_MAX)? else {
        return Ok(None);
    };
    let edges: Vec<u32> = edges
        .into_iter()
        .map(|edge| edge.try_into().unwrap_or_default())
        .collect();
    let (pairs, rest) = edges.as_chunks::<2>();
    let tile = tile as u32;
    let fits = |[width, height]: &[u32; 2]| {
        let grid = Grid::of_cells(Size::new(*width, *height), tile);
        let is_whole = width.is_multiple_of(tile) && height.is_multiple_of(tile);
        let bound = EDGE_MAX as u32;
        is_whole && width.max(height) <= &bound && (1..=TILES_MAX).contains(&grid.count())
    };
    if rest.is_empty() && !pairs.is_empty() && pairs.iter().all(fits) {
        let sizes = pairs
            .iter()
            .map(|[width, height]| Size::new(*width, *height));
        return Ok(Some(sizes.collect()));
    }
    let bound = format!("pairs of multiples of {tile}, with 1 to {TILES_MAX} tiles");
    Err(keys.range(NAME, format!("{edges:?}"), bound))
}

/// Tiles of an image, at least and at most, where a file may name others.
fn tile_bounds(keys: &Keys<'_>, usual: (usize, usize)) -> Result<(u32, u32), ConfigError> {
    let bound = TILES_MAX as usize;
    let least = keys.size("preproc_min_tiles", 1, bound)?;
    let most = keys.size("preproc_max_tiles", 1, bound)?;
    let (least, most) = (least.unwrap_or(usual.0), most.unwrap_or(usual.1));
    if least <= most {
        return Ok((least as u32, most as u32));
    }
    Err(keys.range("preproc_min_tiles", least, format!("at most {most}")))
}

/// The numbers that the first matrix takes: a tower of Gemma 4 makes -1 to 1 of what the file calls normalized.
fn centered(projector: Projector, normalization: Normalization) -> Normalization {
    if projector == Projector::Gemma4Uv {
        return normalization;
    }
    let Normalization { mean, std } = normalization;
    Normalization {
        mean: std::array::from_fn(|channel| mean[channel] + std[channel] / 2.0),
        std: std.map(|std| std / 2.0),
    }
}

/// Refuses a picture of a fixed size with patches along an edge that do not become whole rows. Pixels beyond the last patch
/// are not seen.
fn whole_rows(keys: &Keys<'_>, patches: usize, merge: usize) -> Result<(), ConfigError> {
    if patches.is_multiple_of(merge) {
        return Ok(());
    }
    let found = format!("{patches} patches");
    Err(keys.range("image_size", found, format!("a multiple of {merge}")))
}

/// A number for each color.
fn channels(
    keys: &Keys<'_>,
    name: &str,
    usual: [f32; 3],
    bound: std::ops::RangeInclusive<f32>,
) -> Result<[f32; 3], ConfigError> {
    let Some(numbers) = keys.floats(name, 3)? else {
        return Ok(usual);
    };
    let found = format!("{numbers:?}");
    match <[f32; 3]>::try_from(numbers) {
        Ok(channels) if channels.iter().all(|number| bound.contains(number)) => Ok(channels),
        _ => {
            let (least, most) = (bound.start(), bound.end());
            Err(keys.range(name, found, format!("three numbers of {least} to {most}")))
        }
    }
}
