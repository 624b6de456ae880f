//! Places of patches: entries of the learned table, and turns of the 2D rope.

use kernels::{Isa, Rope, RopePairs, RopeSpec, add_assign, add_scaled};
use media::{Grid, PatchOrder, View};
use std::ops::Range;
use weights::vision::{Positions, TowerRopeKind, VisionConfig, Windows};

/// The entries of a table along one edge that one row or column of patches reads.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entries {
    low: usize,
    high: usize,
    /// Weight of `high`; `low` has the rest.
    share: f32,
}

/// Places of the patches of one picture, and the rows of its stream.
///
/// The stream has the patches in the recipe's order. Where there is a class token, each window begins with a row of its own.
pub(super) struct Places {
    rule: Option<Positions>,
    windows: Windows,
    has_class: bool,
    /// Entries along one edge of the table.
    edge: usize,
    order: PatchOrder,
    /// Patches along the edge of a row's block.
    merge: usize,
    /// Rows and columns of the output, and what is left out above and to the left of them.
    merged: Grid,
    left_out: (usize, usize),
    /// Rows of the output, with the marks of lines' ends.
    output: usize,
    /// (row, column) of each patch, in the tower's order.
    places: Vec<(u32, u32)>,
    rows: Vec<Entries>,
    columns: Vec<Entries>,
    /// Of a rule with more entries than two, for each row and each column.
    spans: [Vec<Span>; 2],
    /// The first patch of each window, and the number of patches.
    bounds: Vec<usize>,
}

impl Places {
    pub(super) fn new(config: &VisionConfig) -> Self {
        Self {
            rule: config.traits.positions,
            windows: config.windows,
            has_class: config.traits.class_token,
            edge: config.table_edge,
            order: config.recipe.order,
            merge: config.merge,
            merged: Grid::new(0, 0),
            left_out: (0, 0),
            output: 0,
            places: Vec::new(),
            rows: Vec::new(),
            columns: Vec::new(),
            spans: [const { Vec::new() }; 2],
            bounds: Vec::new(),
        }
    }

    /// Sets the places of a picture, and gives the number of rows of its stream.
    pub(super) fn read(&mut self, view: &View) -> usize {
        let patches = view.patches;
        self.places.clear();
        self.places.extend(self.order.places(patches));
        self.merged = view.merged;
        self.output = view.rows as usize;
        let blocks = patches.merged(self.merge as u32);
        let half = |all: u32, kept: u32| (all.saturating_sub(kept) / 2) as usize;
        self.left_out = (
            half(blocks.rows, view.merged.rows),
            half(blocks.columns, view.merged.columns),
        );
        self.bounds.clear();
        self.bounds.push(0);
        let mut end = 0;
        for patches in self.order.windows(patches) {
            end += patches as usize;
            self.bounds.push(end);
        }
        for (count, entries) in [
            (patches.rows, &mut self.rows),
            (patches.columns, &mut self.columns),
        ] {
            entries.clear();
            let count = match self.windows {
                // A place counts from the corner of its window, which is as large as the table.
                Windows::Pictures => self.edge,
                Windows::Whole | Windows::Layers { .. } => count as usize,
            };
            match self.rule {
                Some(Positions::Buckets) => buckets(count, self.edge, entries),
                Some(Positions::Floors) => floors(count, self.edge, entries),
                Some(Positions::Interpolated) => interpolated(count, self.edge, entries),
                Some(Positions::Smoothed | Positions::Axes) | None => {}
            }
        }
        if self.rule == Some(Positions::Smoothed) {
            let edges = [patches.rows, patches.columns];
            self.spans = edges.map(|count| smoothed(count as usize, self.edge));
        }
        self.stream_row(end)
    }

    /// Patches of the picture.
    pub(super) fn patches(&self) -> usize {
        self.places.len()
    }

    /// Row and column of a patch.
    pub(super) fn of(&self, patch: usize) -> (usize, usize) {
        let (row, column) = self.places[patch];
        (row as usize, column as usize)
    }

    /// The row of the stream that has a patch; of the number of patches, the number of rows.
    pub(super) fn stream_row(&self, patch: usize) -> usize {
        if !self.has_class {
            return patch;
        }
        let before = |start: &usize| *start <= patch;
        let windows = self.bounds.len() - 1;
        patch + self.bounds.partition_point(before).min(windows)
    }

    /// The patch of a row of the stream, or `None` for a class token.
    pub(super) fn patch_of(&self, row: usize) -> Option<usize> {
        if !self.has_class {
            return Some(row);
        }
        let window = self.window_of(row);
        (row > self.bounds[window] + window).then(|| row - window - 1)
    }

    /// The rows that a row sees, in a layer that is bound to windows.
    pub(super) fn window(&self, row: usize) -> Range<usize> {
        let (window, class) = (self.window_of(row), usize::from(self.has_class));
        let start = |window: usize| self.bounds[window] + window * class;
        start(window)..start(window + 1)
    }

    /// The window of a row of the stream.
    fn window_of(&self, row: usize) -> usize {
        let class = usize::from(self.has_class);
        let (mut low, mut high) = (0, self.bounds.len() - 1);
        while low + 1 < high {
            let middle = usize::midpoint(low, high);
            if self.bounds[middle] + middle * class <= row {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The place of a block of patches among the rows of the output, which are line by line; `None` if it makes no row.
    pub(super) fn output_row(&self, block: usize) -> Option<usize> {
        let (row, column) = self.of(block * self.merge * self.merge);
        let line = (row / self.merge).checked_sub(self.left_out.0)?;
        let column = (column / self.merge).checked_sub(self.left_out.1)?;
        let (lines, columns) = (self.merged.rows as usize, self.merged.columns as usize);
        (line < lines && column < columns).then(|| line * (columns + self.marks()) + column)
    }

    /// The places of marks of lines' ends among the rows of the output.
    pub(super) fn line_ends(&self) -> impl Iterator<Item = usize> {
        let (marks, columns) = (self.marks(), self.merged.columns as usize);
        let lines = self.merged.rows as usize * marks;
        let ends = (1..=lines).map(move |line| line * (columns + marks) - 1);
        let output = self.output;
        ends.take_while(move |end| *end < output)
    }

    /// Marks in a line: 1 or 0.
    fn marks(&self) -> usize {
        usize::from(self.output > self.merged.count() as usize)
    }

    /// Adds the table's entry for a patch, `table` of shape `(edge * edge, dim)` or `(2 * edge, dim)`, to a row.
    pub(super) fn add(&self, isa: Isa, table: &[f32], patch: usize, row: &mut [f32]) {
        let Some(rule) = self.rule else { return };
        let (mut y, mut x) = self.of(patch);
        if self.windows == Windows::Pictures {
            (y, x) = (y % self.edge, x % self.edge);
        }
        if rule == Positions::Smoothed {
            return self.add_smoothed(isa, table, (y, x), row);
        }
        if rule == Positions::Axes {
            for entry in [x, self.edge + y] {
                add_assign(isa, row, &table[entry * row.len()..][..row.len()]);
            }
            return;
        }
        let (y, x) = (self.rows[y], self.columns[x]);
        let mut add = |y: usize, x: usize, share: f32| {
            let entry = &table[(y * self.edge + x) * row.len()..][..row.len()];
            add_scaled(isa, row, entry, share);
        };
        if matches!(rule, Positions::Buckets | Positions::Floors) {
            return add(y.low, x.low, 1.0);
        }
        for (line, down) in [(y.low, 1.0 - y.share), (y.high, y.share)] {
            for (column, across) in [(x.low, 1.0 - x.share), (x.high, x.share)] {
                add(line, column, down * across);
            }
        }
    }

    fn add_smoothed(&self, isa: Isa, table: &[f32], (y, x): (usize, usize), row: &mut [f32]) {
        let [lines, columns] = &self.spans;
        for (line, down) in lines[y].weighted() {
            for (column, across) in columns[x].weighted() {
                let entry = &table[(line * self.edge + column) * row.len()..][..row.len()];
                add_scaled(isa, row, entry, down * across);
            }
        }
    }
}

/// Entries that follow each other, with their weights.
struct Span {
    first: usize,
    weights: Vec<f32>,
}

impl Span {
    fn weighted(&self) -> impl Iterator<Item = (usize, f32)> {
        (self.first..).zip(self.weights.iter().copied())
    }
}

/// The entries of each of `count` patches, with the weights of a bilinear filter that is as wide as patches are fewer than
/// entries (`Siglip2VisionEmbeddings`).
fn smoothed(count: usize, edge: usize) -> Vec<Span> {
    let scale = edge as f32 / count.max(1) as f32;
    let support = scale.max(1.0);
    let span = |patch: usize| {
        let center = (patch as f32 + 0.5) * scale - 0.5;
        let weight = |entry: usize| 1.0 - (entry as f32 - center).abs() / support;
        let is_in = |entry: &usize| weight(*entry) > 0.0;
        let entries: Vec<usize> = (0..edge).filter(is_in).collect();
        let sum: f32 = entries.iter().map(|entry| weight(*entry)).sum();
        Span {
            first: entries.first().copied().unwrap_or_default(),
            weights: entries.iter().map(|entry| weight(*entry) / sum).collect(),
        }
    };
    (0..count).map(span).collect()
}

/// The bucket of each of `count` patches along an edge of `edge` entries, with transformers' roundings
/// (`Idefics3VisionEmbeddings`): parts of the edge in f32, bounds in f64 and then in f32.
fn buckets(count: usize, edge: usize, entries: &mut Vec<Entries>) {
    let bound = |entry: usize| {
        let step = 1.0 / edge as f64;
        (step + (entry - 1) as f64 * step) as f32
    };
    let step = 1.0 / count as f32;
    let mut bucket = 0;
    for patch in 0..count {
        let part = (patch as f32 * step).min(1.0 - 1e-6);
        while bucket + 1 < edge && bound(bucket + 1) <= part {
            bucket += 1;
        }
        entries.push(Entries {
            low: bucket,
            high: bucket,
            share: 0.0,
        });
    }
}

/// The bucket of each of `count` patches in whole numbers (`get_vision_nearest_position_ids`).
fn floors(count: usize, edge: usize, entries: &mut Vec<Entries>) {
    entries.extend((0..count).map(|patch| Entries {
        low: patch * edge / count,
        high: patch * edge / count,
        share: 0.0,
    }));
}

/// The two entries around each of `count` patches: the first and the last patch have the first and the last entry.
fn interpolated(count: usize, edge: usize, entries: &mut Vec<Entries>) {
    let (last, steps) = ((edge - 1) as f32, (count.max(2) - 1) as f32);
    for patch in 0..count {
        let at = (patch as f32 * last / steps).min(last);
        let low = at.floor();
        entries.push(Entries {
            low: low as usize,
            high: (low as usize + 1).min(edge - 1),
            share: at - low,
        });
    }
}

/// The 2D rope: one part of a head's pairs turns by the row, the other by the column.
pub(super) struct TowerRope {
    /// Turns by the row and by the column.
    axes: [Rope; 2],
    /// The pairs of a head.
    head: Rope,
    /// Whether each half of a head turns on its own, the first by the column.
    by_axis: bool,
}

impl TowerRope {
    /// The rope of a tower that has one.
    pub(super) fn of(config: &VisionConfig) -> Option<Self> {
        let (head_dim, theta) = (config.head_dim(), config.theta);
        let kind = config.traits.rope?;
        let (pairs, columns) = match kind {
            TowerRopeKind::Halves | TowerRopeKind::Axes => (RopePairs::Halves, 1.0),
            TowerRopeKind::Interleaved => {
                let next = f64::from(theta).powf(-2.0 / head_dim as f64);
                (RopePairs::Adjacent, next as f32)
            }
        };
        let rope = |dims, freq_scale| {
            Rope::new(RopeSpec {
                dims,
                theta,
                freq_scale,
                factors: None,
                magnitude: 1.0,
                pairs,
                yarn: None,
            })
        };
        Some(Self {
            axes: [rope(head_dim / 2, 1.0), rope(head_dim / 2, columns)],
            head: rope(head_dim, 1.0),
            by_axis: kind == TowerRopeKind::Axes,
        })
    }

    /// Length of a table.
    pub(super) fn table_len(&self) -> usize {
        self.head.table_len()
    }

    /// Writes the turns of a place.
    pub(super) fn table(&self, (row, column): (usize, usize), table: &mut [f32]) {
        let (first, second) = table.split_at_mut(table.len() / 2);
        let places = if self.by_axis {
            [column, row]
        } else {
            [row, column]
        };
        self.axes[0].table(places[0], first);
        self.axes[1].table(places[1], second);
    }

    /// Turns the heads of one row.
    pub(super) fn apply(&self, table: &[f32], heads: &mut [f32]) {
        if !self.by_axis {
            return self.head.apply(table, heads, table.len());
        }
        let tables = table.split_at(table.len() / 2);
        for head in heads.chunks_exact_mut(table.len()) {
            let (first, second) = head.split_at_mut(tables.0.len());
            self.axes[0].apply(tables.0, first, tables.0.len());
            self.axes[1].apply(tables.1, second, tables.1.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_the_tables_size_has_each_entry_once() {
        for edge in [1, 2, 16, 32, 64] {
            let mut entries = Vec::new();
            buckets(edge, edge, &mut entries);
            assert!(entries.iter().map(|entry| entry.low).eq(0..edge), "{edge}");
            entries.clear();
            floors(edge, edge, &mut entries);
            assert!(entries.iter().map(|entry| entry.low).eq(0..edge), "{edge}");
            entries.clear();
            interpolated(edge, edge, &mut entries);
            for (patch, entry) in entries.iter().enumerate() {
                let at = entry.low as f32 + entry.share;
                assert!((at - patch as f32).abs() < 1e-4, "{edge}: {entry:?}");
            }
        }
    }

    #[test]
    fn smoothed_weights_add_up_to_one_and_widen_with_the_table() {
        for (count, edge) in [(1, 1), (1, 16), (8, 16), (16, 16), (40, 16), (3, 7)] {
            for span in smoothed(count, edge) {
                let sum: f32 = span.weights.iter().sum();
                assert!((sum - 1.0).abs() < 1e-5, "{count} of {edge}: {sum}");
                assert!(span.first + span.weights.len() <= edge);
                assert!(span.weights.len() <= 2 * edge.div_ceil(count) + 1);
            }
        }
        let same = smoothed(16, 16);
        assert!(
            same.iter()
                .enumerate()
                .all(|(at, span)| span.first == at && span.weights == [1.0])
        );
    }

    #[test]
    fn the_corners_of_table_and_picture_coincide() {
        for (count, edge) in [(2, 48), (5, 3), (100, 48), (1, 7)] {
            let mut entries = Vec::new();
            interpolated(count, edge, &mut entries);
            let at =
                |entry: Entries| entry.low as f32 + entry.share * (entry.high - entry.low) as f32;
            assert_eq!(at(entries[0]), 0.0);
            let last = if count > 1 { (edge - 1) as f32 } else { 0.0 };
            assert!((at(entries[count - 1]) - last).abs() < 1e-3);
        }
    }
}
