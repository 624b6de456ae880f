//! Plans next to those of transformers' image processors, and what holds for any size.

use crate::pattern::{golden, pattern};
use media::plan::{
    Budget, Fit, LongestEdge, Pinpoints, Plan, SliceRows, Slices, SmartResize, SplitLarge, Square,
    Step, TileGrid, Tiles,
};
use media::{
    Area, Filter, Grid, ImageFault, Normalization, PatchOrder, Pixels, Size, file_digest, patches,
};
use proptest::prelude::*;
use testing::random::Random;

type Rule = Box<dyn Fn(Size) -> Result<Plan, ImageFault>>;

fn smart_resize(patch: u32, pixels_min: u64, pixels_max: u64) -> SmartResize {
    SmartResize {
        patch,
        merge: 2,
        pixels_min,
        pixels_max,
    }
}

fn tiles(longest_edge: u32, tile: u32, patch: u32, shuffle: u32) -> Tiles {
    Tiles {
        longest_edge,
        tile,
        patch,
        shuffle,
    }
}

fn budget(rows_max: u32) -> Budget {
    Budget {
        patch: 16,
        pool: 3,
        rows_max,
    }
}

fn longest_edge(longest_edge: u32, patch: u32, merge: u32) -> LongestEdge {
    LongestEdge {
        longest_edge,
        patch,
        merge,
    }
}

fn pinpoints(tile: u32) -> Pinpoints {
    let resolutions = [(2, 1), (1, 2), (2, 2), (1, 3), (3, 1)];
    Pinpoints {
        tile,
        patch: 14,
        resolutions: resolutions
            .map(|(across, down)| Size::new(across * tile, down * tile))
            .to_vec(),
    }
}

/// Tiles that are no whole number of patches.
fn granite_vision() -> Pinpoints {
    let widest = [10, 5, 2, 2, 2, 1, 1, 1, 1, 1];
    let grids = (1..).zip(widest);
    let sizes = grids.flat_map(|(down, widest)| {
        (1..=widest).map(move |across| Size::new(384 * across, 384 * down))
    });
    Pinpoints {
        tile: 384,
        patch: 14,
        resolutions: sizes.collect(),
    }
}

fn split_large() -> SplitLarge {
    SplitLarge {
        tile: 512,
        patch: 16,
        merge: 2,
        tiles_min: 2,
        tiles_max: 10,
        rows_min: 64,
        rows_max: 256,
    }
}

fn tile_grid(tile: u32) -> TileGrid {
    TileGrid {
        tile,
        patch: 14,
        shuffle: 2,
        tiles_min: 1,
        tiles_max: 12,
    }
}

fn slices(slice: u32, rows: SliceRows) -> Slices {
    Slices {
        slice,
        patch: 14,
        slices_max: 9,
        rows,
    }
}

fn square(edge: u32, pool: u32, filter: Filter, fit: Fit) -> Square {
    Square {
        edge,
        patch: 14,
        pool,
        filter,
        fit,
    }
}

/// The rules of `plans.tsv`, each with the most rows that it may make.
fn rules() -> Vec<(&'static str, u32, Rule)> {
    fn rule<T>(of: T, plan: fn(&T, Size) -> Result<Plan, ImageFault>) -> Rule
    where
        T: 'static,
    {
        Box::new(move |size| plan(&of, size))
    }
    let qwen = |patch, low, high| rule(smart_resize(patch, low, high), SmartResize::plan);
    let pixtral = |edge, patch, merge| rule(longest_edge(edge, patch, merge), LongestEdge::plan);
    let minicpm = |merge| rule(slices(448, SliceRows::Merged(merge)), Slices::plan);
    vec![
        ("qwen2.5", 16_384, qwen(14, 3_136, 12_845_056)),
        ("qwen3", 16_384, qwen(16, 65_536, 16_777_216)),
        ("qwen-small", 1_280, qwen(14, 3_136, 1280 * 28 * 28)),
        (
            "smolvlm",
            17 * 64,
            rule(tiles(2048, 512, 16, 4), Tiles::plan),
        ),
        (
            "smolvlm-2b",
            17 * 81,
            rule(tiles(1536, 384, 14, 3), Tiles::plan),
        ),
        ("gemma4-280", 280, rule(budget(280), Budget::plan)),
        ("gemma4-70", 70, rule(budget(70), Budget::plan)),
        ("pixtral", 64 * 65, pixtral(1024, 16, 1)),
        ("mistral3", 55 * 56, pixtral(1540, 14, 2)),
        (
            "llava-next",
            576 + 48 * 49,
            rule(pinpoints(336), Pinpoints::plan),
        ),
        (
            "granite-vision",
            11 * 27 * 28,
            rule(granite_vision(), Pinpoints::plan),
        ),
        ("internvl", 13 * 256, rule(tile_grid(448), TileGrid::plan)),
        ("minicpm-16x", 2_000, minicpm(4)),
        ("minicpm-4x", 8_000, minicpm(2)),
        ("lfm2", 11 * 256, rule(split_large(), SplitLarge::plan)),
    ]
}

/// Sizes of the canvases after their last steps.
fn made(plan: &Plan) -> Vec<Size> {
    let last = |step: &Step| match *step {
        Step::Resize { to, .. } | Step::Pad { to, .. } | Step::Thin { to, .. } => to,
        Step::Crop(area) => area.size,
    };
    let ends = plan
        .canvases
        .iter()
        .filter_map(|canvas| canvas.steps.last());
    ends.map(last).collect()
}

#[test]
fn plans_are_those_of_transformers() {
    let rules = rules();
    let table = std::fs::read_to_string(golden().join("plans.tsv")).expect("the table");
    let mut count = 0;
    for line in table.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let edge = |at: usize| columns[at].parse::<u32>().expect("a number");
        let (_, _, rule) = rules
            .iter()
            .find(|(name, ..)| *name == columns[0])
            .expect("a rule");
        let plan = rule(Size::new(edge(1), edge(2))).expect("a plan");
        let sizes = made(&plan).into_iter();
        let sizes: Vec<String> = sizes.map(|s| format!("{}x{}", s.width, s.height)).collect();
        let grid = format!("{}x{}", plan.grid.rows, plan.grid.columns);
        let found = (sizes.join(","), grid, plan.rows);
        let expected = (columns[3].to_owned(), columns[4].to_owned(), edge(5));
        // MiniCPM's whole comes first, as its grid is of the second canvas.
        assert_eq!(found, expected, "{line}");
        count += 1;
    }
    assert_eq!(count, 200 * rules.len());
}

/// What the rules of `views.tsv` give to the tower.
fn views(name: &str, image: &Pixels) -> Vec<u8> {
    let size = image.size();
    let plan = match name {
        "smolvlm" => tiles(256, 64, 16, 2).plan(size),
        "gemma3" => square(112, 2, Filter::Bilinear, Fit::Stretch).plan(size),
        "llava" => square(56, 1, Filter::Bicubic, Fit::Crop).plan(size),
        "llava_next" => pinpoints(56).plan(size),
        "internvl" => tile_grid(56).plan(size),
        "minicpm" => slices(112, SliceRows::Merged(4)).plan(size),
        "qwen" => smart_resize(14, 3_136, 28 * 28 * 40).plan(size),
        "gemma4" => budget(70).plan(size),
        name => panic!("{name} is no rule"),
    };
    let mut views = plan.expect("a plan").views(image);
    if name == "llava_next" {
        // transformers has the tiles one by one.
        let large = views.pop().expect("a picture of tiles");
        let tiles = (0..large.size().pixels() as u32 / (56 * 56)).map(|tile| {
            let across = large.size().width / 56;
            let (x, y) = (tile % across * 56, tile / across * 56);
            large.crop(Area {
                x,
                y,
                size: Size::square(56),
            })
        });
        views.extend(tiles.collect::<Vec<_>>());
    }
    let (patch, order, normalization) = match name {
        "qwen" => (14, PatchOrder::Blocks(2), Normalization::CLIP),
        "gemma4" => (16, PatchOrder::Raster, Normalization::HALF),
        _ => {
            return views
                .iter()
                .flat_map(|view| view.bytes().to_vec())
                .collect();
        }
    };
    let numbers = patches(&views[0], patch, order, &normalization);
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

#[test]
fn views_and_patches_are_those_of_transformers() {
    let table = std::fs::read_to_string(golden().join("views.tsv")).expect("the table");
    let mut faults = Vec::new();
    for line in table.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let edge = |at: usize| columns[at].parse::<u32>().expect("a number");
        let image = pattern(columns[3], Size::new(edge(1), edge(2)));
        let digest = file_digest(&views(columns[0], &image));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        if digest != columns[4] {
            faults.push(line.to_owned());
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(table.lines().count(), 40);
}

/// Every ratio that is taken at all (200) has slices within the bound of patches, which is the tower's workspace.
#[test]
fn slices_of_every_ratio_are_within_their_bound_of_patches() {
    for rows in [
        SliceRows::Queries(64),
        SliceRows::Merged(2),
        SliceRows::Merged(4),
    ] {
        let rule = slices(448, rows);
        for edge in [1, 20, 448, 700] {
            for ratio in 1..=200 {
                for size in [Size::new(edge, edge * ratio), Size::new(edge * ratio, edge)] {
                    let plan = rule.plan(size).expect("a plan");
                    let most = plan.tiles().map(|tile| tile.rows).max();
                    assert!(most <= Some(rule.rows_max()), "{rows:?} {size:?}");
                }
            }
        }
    }
    // Slices of two patches along an edge cannot be as narrow as that.
    let rule = Slices {
        slice: 28,
        ..slices(448, SliceRows::Queries(64))
    };
    let plan = rule.plan(Size::new(10, 2000));
    let said = plan.expect_err("a narrow picture").to_string();
    assert!(said.contains("there would be too many"), "{said}");
}

#[test]
fn parameters_without_rows_and_impossible_sizes_are_errors() {
    let size = Size::new(640, 480);
    let cases: [(&str, Result<Plan, ImageFault>); 6] = [
        (
            "is 640 x 480 pixels, from which no rows can be made: there would be none",
            square(10, 1, Filter::Bilinear, Fit::Stretch).plan(size),
        ),
        (
            "is 640 x 480 pixels, from which no rows can be made: a parameter of the model is out of range",
            budget(0).plan(size),
        ),
        (
            "is 640 x 480 pixels, from which no rows can be made: there would be too many",
            smart_resize(14, 1 << 40, 1 << 41).plan(size),
        ),
        (
            "is 640 x 480 pixels, from which no rows can be made: the model names no resolution of whole tiles",
            Pinpoints {
                resolutions: Vec::new(),
                ..pinpoints(336)
            }
            .plan(size),
        ),
        (
            "has edges of 402 x 2 pixels: one may be at most 200 times the other",
            smart_resize(14, 3_136, 1 << 20).plan(Size::new(402, 2)),
        ),
        (
            "has 0 x 480 pixels: each edge needs at least one",
            tile_grid(448).plan(Size::new(0, 480)),
        ),
    ];
    for (expected, found) in cases {
        let found = found.map_err(|fault| fault.to_string());
        assert_eq!(found, Err(expected.to_owned()));
    }
}

#[test]
fn a_padded_square_is_centered_and_queries_do_not_depend_on_the_size() {
    let padded = square(56, 1, Filter::Bicubic, Fit::Pad([122, 116, 104]));
    let image = pattern("noise", Size::new(100, 50));
    let plan = padded.plan(image.size()).expect("a plan");
    let views = plan.views(&image);
    assert_eq!(views[0].size(), Size::square(56));
    assert_eq!(views[0].bytes()[..3], [122, 116, 104]);
    let middle = views[0].bytes()[28 * 56 * 3..][..56 * 3].to_vec();
    assert_ne!(middle, [122, 116, 104].repeat(56));
    for (size, rows) in [
        ((448, 448), 64),
        ((1344, 448), 64 * 4),
        ((2000, 2000), 64 * 10),
    ] {
        let size = Size::new(size.0, size.1);
        let plan = slices(448, SliceRows::Queries(64))
            .plan(size)
            .expect("a plan");
        assert_eq!(plan.rows, rows, "{size}");
    }
}

#[test]
fn any_parameters_have_a_plan_within_the_bounds_or_an_error() {
    let mut random = Random(11);
    for _ in 0..20_000 {
        let words = (0..6).map(|_| random.next() as u16 >> random.below(16));
        let bytes: Vec<u8> = words.flat_map(u16::to_le_bytes).collect();
        crate::seeds::inputs::row_plan(&bytes);
    }
}

/// Sizes that the default limits let through.
fn any_size() -> impl Strategy<Value = Size> {
    (1_u32..=32_768, 1_u32..=32_768).prop_map(|(a, b)| {
        let short = a.min(b).max(a.max(b).div_ceil(200));
        let long = a.max(b).min(50_000_000 / short);
        if a > b {
            Size::new(long, short.min(long))
        } else {
            Size::new(short.min(long), long)
        }
    })
}

/// What holds for every plan.
fn check(name: &str, size: Size, plan: &Plan, rows_max: u32) {
    assert!(
        (1..=rows_max).contains(&plan.rows),
        "{name} {size}: {}",
        plan.rows
    );
    let ends = made(plan);
    assert_eq!(ends.len(), plan.canvases.len());
    let tiles = plan.canvases.iter().map(|canvas| canvas.tiles.len());
    let largest = tiles.max().unwrap_or(0);
    // The tiles of LLaVA 1.6 are one picture.
    let pictures = if matches!(name, "llava-next" | "granite-vision") {
        1
    } else {
        plan.grid.count()
    };
    assert_eq!(largest as u32, pictures, "{name} {size}");
    // Ends of lines are rows in LLaVA 1.6 and in Pixtral.
    let has_marks = matches!(
        name,
        "llava-next" | "granite-vision" | "pixtral" | "mistral3"
    );
    let mut rows = 0;
    for (canvas, end) in plan.canvases.iter().zip(ends) {
        for tile in &canvas.tiles {
            rows += tile.rows;
            let marks = tile.rows - tile.merged.count();
            assert!(has_marks || marks == 0, "{name} {size}");
            assert!(marks <= tile.merged.rows, "{name} {size}");
            let right = tile.area.x + tile.area.size.width;
            let bottom = tile.area.y + tile.area.size.height;
            assert!(right <= end.width && bottom <= end.height, "{name} {size}");
            let patches: Grid = tile.patches;
            assert!(patches.count() > 0 && tile.rows > 0, "{name} {size}");
        }
    }
    // A token ends the image after Pixtral's rows.
    let end = u32::from(matches!(name, "pixtral" | "mistral3"));
    assert_eq!(rows + end, plan.rows, "{name} {size}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_size_has_rows_within_the_rule_s_bound(size in any_size()) {
        for (name, rows_max, rule) in rules() {
            let plan = rule(size).expect("a plan");
            check(name, size, &plan, rows_max);
        }
    }

    /// A larger allowance never gives fewer rows.
    #[test]
    fn rows_grow_with_the_allowance(size in any_size(), less in 70_u32..1120, more in 0_u32..1120) {
        let more = less + more;
        let rows = |plan: Result<Plan, ImageFault>| plan.expect("a plan").rows;
        prop_assert!(rows(budget(less).plan(size)) <= rows(budget(more).plan(size)));
        let qwen = |rows: u32| smart_resize(14, 3_136, u64::from(rows) * 784).plan(size);
        prop_assert!(rows(qwen(less)) <= rows(qwen(more)));
        let pixtral = |edge| longest_edge(edge, 16, 1).plan(size);
        prop_assert!(rows(pixtral(less)) <= rows(pixtral(more)));
    }
}
