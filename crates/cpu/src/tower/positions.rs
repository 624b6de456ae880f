//! Places of patches: entries of the learned table, and turns of the 2D rope.

use kernels::{Isa, Rope, RopePairs, RopeSpec, add_scaled};
use media::{Grid, PatchOrder};
use weights::vision::{Positions, VisionConfig};

/// The entries of a table along one edge that one row or column of patches reads.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entries {
    low: usize,
    high: usize,
    /// Weight of `high`; `low` has the rest.
    share: f32,
}

/// Places of the patches of one picture.
pub(super) struct Places {
    rule: Positions,
    /// Entries along one edge of the table.
    edge: usize,
    order: PatchOrder,
    /// (row, column) of each patch, in the tower's order.
    places: Vec<(u32, u32)>,
    rows: Vec<Entries>,
    columns: Vec<Entries>,
}

impl Places {
    pub(super) fn new(config: &VisionConfig) -> Self {
        Self {
            rule: config.traits.positions,
            edge: config.table_edge,
            order: config.recipe.order,
            places: Vec::new(),
            rows: Vec::new(),
            columns: Vec::new(),
        }
    }

    /// Sets the places of a picture of these patches.
    pub(super) fn read(&mut self, patches: Grid) {
        self.places.clear();
        self.places.extend(self.order.places(patches));
        for (count, entries) in [
            (patches.rows, &mut self.rows),
            (patches.columns, &mut self.columns),
        ] {
            entries.clear();
            match self.rule {
                Positions::Buckets => buckets(count as usize, self.edge, entries),
                Positions::Interpolated => interpolated(count as usize, self.edge, entries),
            }
        }
    }

    /// Row and column of a patch.
    pub(super) fn of(&self, patch: usize) -> (usize, usize) {
        let (row, column) = self.places[patch];
        (row as usize, column as usize)
    }

    /// Adds the table's entry for a patch, `table` of shape `(edge * edge, dim)`, to a row.
    pub(super) fn add(&self, isa: Isa, table: &[f32], patch: usize, row: &mut [f32]) {
        let (y, x) = self.of(patch);
        let (y, x) = (self.rows[y], self.columns[x]);
        let mut add = |y: usize, x: usize, share: f32| {
            let entry = &table[(y * self.edge + x) * row.len()..][..row.len()];
            add_scaled(isa, row, entry, share);
        };
        if self.rule == Positions::Buckets {
            return add(y.low, x.low, 1.0);
        }
        for (line, down) in [(y.low, 1.0 - y.share), (y.high, y.share)] {
            for (column, across) in [(x.low, 1.0 - x.share), (x.high, x.share)] {
                add(line, column, down * across);
            }
        }
    }
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

/// The 2D rope: the first half of a head's pairs turns by the row, the second by the column.
pub(super) struct TowerRope {
    axis: Rope,
    head: Rope,
}

impl TowerRope {
    /// The rope of a tower that has one.
    pub(super) fn of(config: &VisionConfig) -> Option<Self> {
        let rope = |dims| {
            Rope::new(RopeSpec {
                dims,
                theta: config.theta,
                freq_scale: 1.0,
                factors: None,
                magnitude: 1.0,
                pairs: RopePairs::Halves,
                yarn: None,
            })
        };
        let head_dim = config.head_dim();
        config.traits.roped.then(|| Self {
            axis: rope(head_dim / 2),
            head: rope(head_dim),
        })
    }

    /// Length of a table.
    pub(super) fn table_len(&self) -> usize {
        self.head.table_len()
    }

    /// Writes the turns of a place.
    pub(super) fn table(&self, (row, column): (usize, usize), table: &mut [f32]) {
        let (first, second) = table.split_at_mut(table.len() / 2);
        self.axis.table(row, first);
        self.axis.table(column, second);
    }

    /// Turns the heads of one row.
    pub(super) fn apply(&self, table: &[f32], heads: &mut [f32]) {
        self.head.apply(table, heads, table.len());
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
            interpolated(edge, edge, &mut entries);
            for (patch, entry) in entries.iter().enumerate() {
                let at = entry.low as f32 + entry.share;
                assert!((at - patch as f32).abs() < 1e-4, "{edge}: {entry:?}");
            }
        }
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
