//! Recipe of a tower's input, from the keys of its file and the usual numbers of its family.

use super::config::EDGE_MAX;
use super::projector::Projector;
use crate::ConfigError;
use crate::config::keys::Keys;
use media::plan::{LongestEdge, PINPOINTS_MAX, Pinpoints, SmartResize, TILES_MAX, Tiles};
use media::{Grid, Normalization, Recipe, Size};

/// Tiles along the longest edge, where a file does not name the edge.
const TILES_ALONG: usize = 4;
/// Pixels of a resized picture of Qwen2-VL and Qwen2.5-VL, and of Qwen3-VL, at least and at most, where a file does not name
/// them.
const QWEN2_PIXELS: (usize, usize) = (3_136, 12_845_056);
const QWEN3_PIXELS: (usize, usize) = (65_536, 16_777_216);
/// Pixels of a resized picture that a file may name.
const PIXELS_MAX: usize = media::plan::VIEW_PIXELS_MAX as usize;
/// Means and deviations that a file may name: levels are 0 to 1.
const MEAN: std::ops::RangeInclusive<f32> = -1.0..=2.0;
const DEVIATION: std::ops::RangeInclusive<f32> = 1e-3..=10.0;

/// Reads the recipe of a tower with pictures of `edge` pixels, patches of `patch` and rows of `merge` by `merge` patches.
pub(super) fn read(
    keys: &Keys<'_>,
    projector: Projector,
    (edge, patch, merge): (usize, usize, usize),
) -> Result<Recipe, ConfigError> {
    let usual = match projector {
        Projector::Idefics3 | Projector::Gemma3 | Projector::Qwen3Vl => Normalization::HALF,
        Projector::Qwen2Vl | Projector::Qwen25Vl | Projector::Pixtral | Projector::Llava => {
            Normalization::CLIP
        }
    };
    let normalization = Normalization {
        mean: channels(keys, "image_mean", usual.mean, MEAN)?,
        std: channels(keys, "image_std", usual.std, DEVIATION)?,
    };
    let pixels = |size: usize| size as u32;
    Ok(match projector {
        Projector::Idefics3 => {
            whole_rows(keys, edge / patch, merge)?;
            let longest = keys.size("preproc_image_size", edge, EDGE_MAX)?;
            let rule = Tiles {
                longest_edge: pixels(longest.unwrap_or((TILES_ALONG * edge).min(EDGE_MAX))),
                tile: pixels(edge),
                patch: pixels(patch),
                shuffle: pixels(merge),
            };
            Recipe::idefics3(rule, normalization)
        }
        Projector::Gemma3 => {
            whole_rows(keys, edge / patch, merge)?;
            Recipe::gemma3(pixels(edge), pixels(patch), pixels(merge), normalization)
        }
        Projector::Qwen2Vl | Projector::Qwen25Vl | Projector::Qwen3Vl => {
            let (least, most) = match projector {
                Projector::Qwen3Vl => QWEN3_PIXELS,
                _ => QWEN2_PIXELS,
            };
            let least = keys
                .size("image_min_pixels", 1, PIXELS_MAX)?
                .unwrap_or(least);
            let most = keys
                .size("image_max_pixels", 1, PIXELS_MAX)?
                .unwrap_or(most);
            if least > most {
                return Err(keys.range("image_min_pixels", least, format!("at most {most}")));
            }
            let rule = SmartResize {
                patch: pixels(patch),
                merge: pixels(merge),
                pixels_min: least as u64,
                pixels_max: most as u64,
            };
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
        is_whole && width.max(height) <= &bound && (2..=TILES_MAX).contains(&grid.count())
    };
    if rest.is_empty() && !pairs.is_empty() && pairs.iter().all(fits) {
        let sizes = pairs
            .iter()
            .map(|[width, height]| Size::new(*width, *height));
        return Ok(Some(sizes.collect()));
    }
    let bound = format!("pairs of multiples of {tile}, with 2 to {TILES_MAX} tiles");
    Err(keys.range(NAME, format!("{edges:?}"), bound))
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
