//! Summary statistics (mean, percentiles, extremes), and text tables.

use serde::Serialize;

/// Summary of a set of values. Percentiles are by nearest rank, so each is one of the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Mean value.
    pub mean: f64,
    /// Minimum.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Summary {
    /// Summarizes `values` and sorts them; all fields are zero if there are no values.
    pub fn of(values: &mut [f64]) -> Self {
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            return Self::default();
        };
        Self {
            count: values.len(),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            min,
            p50: nearest_rank(values, 50),
            p95: nearest_rank(values, 95),
            p99: nearest_rank(values, 99),
            max,
        }
    }
}

/// The smallest value that `percent` of 100 values do not exceed. `sorted` is not empty.
fn nearest_rank(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted[rank.max(1) - 1]
}

/// Formats lines of cells: the first column left-aligned, all others right-aligned.
pub(crate) fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            let padded = match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
            text.push_str(&padded);
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// Converts the cells of one line.
pub(crate) fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let summary = |n: u32| Summary::of(&mut (1..=n).rev().map(f64::from).collect::<Vec<_>>());
        let rows = [
            // values 1..=n, then p50, p95, p99
            (1, 1.0, 1.0, 1.0),
            (2, 1.0, 2.0, 2.0),
            (3, 2.0, 3.0, 3.0),
            (20, 10.0, 19.0, 20.0),
            (100, 50.0, 95.0, 99.0),
            (101, 51.0, 96.0, 100.0),
            (1000, 500.0, 950.0, 990.0),
        ];
        for (n, p50, p95, p99) in rows {
            let got = summary(n);
            assert_eq!((got.p50, got.p95, got.p99), (p50, p95, p99), "1..={n}");
            assert_eq!((got.min, got.max), (1.0, f64::from(n)), "1..={n}");
            assert_eq!(got.mean, f64::from(n + 1) / 2.0, "1..={n}");
        }
        assert_eq!(Summary::of(&mut []), Summary::default());
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let lines = [
            cells(["test", "µs"]),
            cells(["a", "12.5"]),
            cells(["long name", ""]),
        ];
        assert_eq!(
            aligned(&lines),
            "test         µs\na          12.5\nlong name\n"
        );
        assert_eq!(aligned(&[]), "");
    }
}
