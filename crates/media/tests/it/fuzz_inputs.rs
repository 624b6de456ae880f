//! What the fuzz targets check of any bytes. Each function panics only for a fault.

use media::plan::{
    Budget, Fit, LongestEdge, Pinpoints, Plan, ROWS_MAX, SliceRows, Slices, SmartResize,
    SplitLarge, Square, TileGrid, Tiles,
};
use media::{Filter, Header, ImageSource, Limits, Size, decode, decode_base64};
use std::cell::Cell;
use std::time::Duration;

/// Any bytes are an image or an error that names the field; the size is that of the header.
pub(crate) fn image_decode(bytes: &[u8]) {
    let limits = Limits {
        pixels_max: 1_000_000,
        decode_bytes_max: 128 << 20,
        scanned_pixels_max: 10_000_000,
        decode_ms: 1_000_000,
        ..Limits::default()
    };
    let looks = Cell::new(0);
    let clock = || {
        looks.set(looks.get() + 1);
        Duration::from_millis(looks.get())
    };
    let header = Header::read("image", bytes, &limits);
    match decode("image", bytes, &limits, &clock) {
        Ok(pixels) => {
            let size = header.expect("a header, as there are pixels").size();
            assert_eq!(pixels.size(), size);
            assert!(size.pixels() <= limits.pixels_max);
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.starts_with("image "), "{sentence}");
            assert!(!sentence.ends_with("the decoder failed"), "{sentence}");
        }
    }
}

/// Any text is bytes within the limit, a remote URL, or an error that names the field.
pub(crate) fn data_url(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let limits = Limits {
        bytes_max: 512,
        ..Limits::default()
    };
    match ImageSource::of_url("image_url", &text, &limits) {
        Ok(ImageSource::Bytes(bytes)) => assert!((1..=512).contains(&bytes.len())),
        Ok(ImageSource::Remote(url)) => {
            assert!(url.to_ascii_lowercase().starts_with("http"), "{url}");
        }
        Err(error) => assert!(error.to_string().starts_with("image_url "), "{error}"),
    }
    match decode_base64("images[0]", &text, &limits) {
        Ok(bytes) => assert!((1..=512).contains(&bytes.len())),
        Err(error) => assert!(error.to_string().starts_with("images[0] "), "{error}"),
    }
}

/// Any size, with any parameters, has a plan within the bounds or an error. Two bytes each are width, height, an edge, a
/// patch, patches that are merged, and a number of rows or tiles.
pub(crate) fn row_plan(bytes: &[u8]) {
    let word = |at: usize| {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        u32::from(u16::from_le_bytes([byte(2 * at), byte(2 * at + 1)]))
    };
    let size = Size::new(word(0), word(1));
    let edge = 16 + word(2) % 2048;
    let patch = 8 + word(3) % 40;
    let merge = 1 + word(4) % 4;
    for plan in plans(size, edge, patch, merge, word(5))
        .into_iter()
        .flatten()
    {
        assert!((1..=ROWS_MAX).contains(&plan.rows), "{plan:?}");
        assert!(!plan.canvases.is_empty());
        for tile in plan.canvases.iter().flat_map(|canvas| &canvas.tiles) {
            assert!(tile.area.size.pixels() > 0);
        }
    }
}

fn plans(size: Size, edge: u32, patch: u32, merge: u32, count: u32) -> [Option<Plan>; 9] {
    let pixels = u64::from(edge) * u64::from(edge);
    let smart = SmartResize {
        patch,
        merge,
        pixels_min: pixels / 7,
        pixels_max: pixels,
    };
    let tiles = Tiles {
        longest_edge: edge,
        tile: patch.saturating_mul(merge).saturating_mul(4),
        patch,
        shuffle: merge,
    };
    let square = Square {
        edge,
        patch,
        pool: merge,
        filter: Filter::Bilinear,
        fit: [Fit::Stretch, Fit::Crop, Fit::Pad([1, 2, 3])][count as usize % 3],
    };
    let budget = Budget {
        patch,
        pool: merge,
        rows_max: count,
    };
    let longest = LongestEdge {
        longest_edge: edge,
        patch,
        merge,
    };
    let pinpoints = Pinpoints {
        tile: edge,
        patch,
        resolutions: vec![Size::new(edge * 2, edge), Size::new(edge, edge * 3)],
    };
    let grid = TileGrid {
        tile: edge,
        patch,
        shuffle: merge,
        tiles_min: count % 4,
        tiles_max: count,
    };
    let slices = Slices {
        slice: edge,
        patch,
        slices_max: count,
        rows: SliceRows::Merged(merge),
    };
    let split = SplitLarge {
        tile: edge,
        patch,
        merge,
        tiles_min: 2,
        tiles_max: count,
        rows_min: 4,
        rows_max: 64,
    };
    [
        split.plan(size).ok(),
        smart.plan(size).ok(),
        tiles.plan(size).ok(),
        square.plan(size).ok(),
        budget.plan(size).ok(),
        longest.plan(size).ok(),
        pinpoints.plan(size).ok(),
        grid.plan(size).ok(),
        slices.plan(size).ok(),
    ]
}
