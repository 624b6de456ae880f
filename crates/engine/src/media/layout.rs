//! Positions of rows on three axes (M-RoPE; Wang et al. 2024, "Qwen2-VL"): a pure function of where inputs are and of their
//! grids, so that prefill, decode, drafts and every cut of a prompt have the same positions.
//!
//! A token has one position `p` on all axes. The rows of an input that begins at position `p` all have time `p`; a row's
//! height and width are `p` plus its row and column in the grid. The token after the input has position `p + max(height,
//! width)` of the grid. Rows of an input without a grid have the positions of as many tokens.

use std::ops::Range;

/// Where an input is, in rows of the prompt and on the axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputPlace {
    /// Rows of the prompt.
    pub(crate) rows: Range<usize>,
    /// Columns of the grid; 0 without one.
    columns: u32,
    /// Position of the first row.
    first: u32,
    /// Position of the token that follows.
    next: u32,
}

/// The places of inputs, in order, from their rows and grids (rows, columns), which are (0, 0) for inputs without one.
pub(crate) fn places(
    inputs: impl Iterator<Item = (Range<usize>, (u32, u32))>,
) -> impl Iterator<Item = InputPlace> {
    let (mut row, mut position) = (0, 0_u32);
    inputs.map(move |(rows, (height, columns))| {
        let first = position.saturating_add((rows.start - row) as u32);
        let steps = match (height, columns) {
            (0, 0) => rows.len() as u32,
            _ => height.max(columns),
        };
        (row, position) = (rows.end, first.saturating_add(steps));
        InputPlace {
            rows,
            columns,
            first,
            next: position,
        }
    })
}

/// The positions of a row, where `before` is the last input that begins at it or before it: time, height, width.
pub(crate) fn axes(before: Option<&InputPlace>, row: usize) -> [u32; 3] {
    let Some(place) = before else {
        return [row as u32; 3];
    };
    match row.checked_sub(place.rows.end) {
        Some(after) => [place.next.saturating_add(after as u32); 3],
        None => {
            let at = (row - place.rows.start) as u32;
            if place.columns == 0 {
                return [place.first.saturating_add(at); 3];
            }
            let (down, right) = (at / place.columns, at % place.columns);
            let [down, right] = [down, right].map(|by| place.first.saturating_add(by));
            [place.first, down, right]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows and grid of an input.
    type Input = (Range<usize>, (u32, u32));

    /// The positions of all rows, in one pass.
    fn in_one_pass(inputs: &[Input], rows: usize) -> Vec<[u32; 3]> {
        let (mut all, mut position) = (Vec::new(), 0);
        while all.len() < rows {
            let input = inputs.iter().find(|(range, _)| range.start == all.len());
            let Some((_, (height, width))) = input else {
                all.push([position; 3]);
                position += 1;
                continue;
            };
            if (*height, *width) == (0, 0) {
                let rows = input.map_or(0, |(range, _)| range.len() as u32);
                all.extend((position..position + rows).map(|at| [at; 3]));
                position += rows;
            }
            for down in 0..*height {
                for right in 0..*width {
                    all.push([position, position + down, position + right]);
                }
            }
            position += height.max(width);
        }
        all.truncate(rows);
        all
    }

    #[test]
    fn positions_are_those_of_one_pass() {
        let cases: [&[Input]; 7] = [
            &[],
            &[(0..6, (2, 3))],
            &[(3..15, (4, 3)), (15..19, (1, 4))],
            &[(2..4, (2, 1)), (9..15, (3, 2)), (16..17, (1, 1))],
            &[(1..5, (2, 2))],
            &[(2..9, (0, 0))],
            &[(0..4, (0, 0)), (5..11, (2, 3)), (12..20, (0, 0))],
        ];
        for inputs in cases {
            let known: Vec<_> = places(inputs.iter().cloned()).collect();
            let wanted = in_one_pass(inputs, 40);
            for (row, wanted) in wanted.into_iter().enumerate() {
                let before = known.iter().rfind(|place| place.rows.start <= row);
                assert_eq!(axes(before, row), wanted, "{inputs:?}, row {row}");
            }
        }
    }

    #[test]
    fn example_of_the_paper() {
        // Three tokens, a grid of 2 by 3, then text at 3 + max(2, 3).
        let place = places([(3..9, (2, 3))].into_iter()).next();
        let at = |row| axes(place.as_ref().filter(|p| p.rows.start <= row), row);
        assert_eq!(at(2), [2, 2, 2]);
        assert_eq!(at(3), [3, 3, 3]);
        assert_eq!(at(5), [3, 3, 5]);
        assert_eq!(at(6), [3, 4, 3]);
        assert_eq!(at(9), [6, 6, 6]);
    }
}
