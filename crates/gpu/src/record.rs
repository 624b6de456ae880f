//! The record of a batch: what the kernels read about its rows, as one upload of words.
//!
//! ```text
//! words 0..4                  zero
//! for each row set            rows: ROW_WORDS words each; then the angles of table 0, of table 1: (rows, dims) as f32
//!                             (cos, sin) pairs; sets without layers after them have no angles; then ADAPTER_WORDS words
//!                             of each row, if any row has adapters
//! spans                       SPAN_WORDS words each
//! tiles                       of long spans: the first row, and the number of rows, at most TILE_ROWS
//! tables                      page tables, to which rows point by their first word
//! ```

use crate::operation::RowSet;
use model::AdapterSet;
use model::adapters::SEQUENCE_ADAPTERS_MAX;

/// Words of a span: the first row, the number of rows, the state before or [`u32::MAX`], the number of states that are written;
/// then of each of these the rows of the span before it, and its number.
pub const SPAN_WORDS: usize = 4 + 2 * WRITES_MAX;

/// Rows of a span from which on its attention is computed by tiles; also the least of a batch with tiles.
pub(crate) const TILED_ROWS_MIN: u32 = 16;

/// Rows of a tile of a span, at most.
pub(crate) const TILE_ROWS: u32 = 32;

/// States that a span writes, at most.
pub const WRITES_MAX: usize = model::KEPT_MAX + 1;

/// Words of a row's adapters: of each its number, or [`u32::MAX`], and its scale.
pub const ADAPTER_WORDS: usize = 2 * SEQUENCE_ADAPTERS_MAX;

/// Words of a row.
pub const ROW_WORDS: usize = 10;

/// One row of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Row {
    /// The token.
    pub token: u32,
    /// Position in the sequence.
    pub position: u32,
    /// Page for the row's key and value.
    pub page: u32,
    /// Slot within the page.
    pub slot: u32,
    /// First entry of the row's page table, among the entries of all tables.
    pub table: u32,
    /// Index of the row in the set that this set is taken from.
    pub source: u32,
    /// Factor of the queries; 1 in most models.
    pub temperature: f32,
    /// Index of the row's span.
    pub span: u32,
    /// Positions after its own that the row sees: those of its block.
    pub after: u32,
    /// Index of the row's vector among those of the batch; `None`: the row is a token.
    pub vector: Option<u32>,
    /// Adapters of the row's sequence.
    pub adapters: AdapterSet,
}

/// Rows of one sequence that follow each other, with its states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first row.
    pub first: u32,
    /// Number of rows.
    pub rows: u32,
    /// The state before the first row; `None`: nothing precedes.
    pub before: Option<u32>,
    /// States that are written: the number of rows of the span before each, ascending, and its number.
    pub writes: [Option<(u32, u32)>; WRITES_MAX],
}

/// Where the data of a row set are, in words of the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetPlace {
    /// Number of rows.
    pub(crate) rows: u32,
    /// The first row.
    pub(crate) rows_at: u32,
    /// The angles of the first row, of each table.
    pub(crate) angles_at: [u32; 2],
    /// The adapters of the first row; 0: no row has any.
    pub(crate) adapters_at: u32,
}

/// The record of a batch; reused, so that a warm batch allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Record {
    words: Vec<u32>,
    sets: [SetPlace; RowSet::ALL.len()],
    /// The first span, and the number of spans.
    spans: [u32; 2],
    /// Number of tiles, after the spans, and of their rows.
    tiles: u32,
    tiled_rows: u32,
    tables_at: u32,
    /// Positions that the longest row sees.
    longest: u32,
    /// Number of rows that are vectors.
    vectors: u32,
}

impl Record {
    /// Begins a batch.
    pub fn clear(&mut self) {
        self.words.clear();
        self.words.resize(4, 0);
        self.sets = Default::default();
        self.spans = [0; 2];
        self.tiles = 0;
        self.tiled_rows = 0;
        self.tables_at = 0;
        self.longest = 0;
        self.vectors = 0;
    }

    /// Words of the largest record: `rows` rows in each set, with `others` angles of both tables and words of adapters, and `entries`
    /// entries of page tables.
    pub fn words_max(rows: usize, others: usize, entries: usize) -> usize {
        // A tile has at least as many rows as words.
        4 + rows * (RowSet::ALL.len() * (ROW_WORDS + others) + SPAN_WORDS + 1) + entries
    }

    /// Adds the rows of a set, and its angles: for each table `(rows, dims)`, empty where no operation turns by them. Each set
    /// is added at most once, before the tables.
    pub fn set(&mut self, set: RowSet, rows: &[Row], angles: [&[f32]; 2]) {
        let rows_at = self.words.len() as u32;
        for row in rows {
            self.longest = self.longest.max(row.position + 1 + row.after);
            self.words.extend([
                row.token,
                row.position,
                row.page,
                row.slot,
                row.table,
                row.source,
                row.temperature.to_bits(),
                row.span,
                row.after,
                row.vector.unwrap_or(u32::MAX),
            ]);
        }
        if set == RowSet::All {
            let vectors = rows.iter().filter(|row| row.vector.is_some());
            self.vectors = vectors.count() as u32;
        }
        let mut angles_at = [0; 2];
        for (at, angles) in angles_at.iter_mut().zip(angles) {
            *at = self.words.len() as u32;
            self.words
                .extend(angles.iter().map(|angle| angle.to_bits()));
        }
        let adapters_at = self.adapters(rows);
        self.sets[set as usize] = SetPlace {
            rows: rows.len() as u32,
            rows_at,
            angles_at,
            adapters_at,
        };
    }

    /// Adds the adapters of rows, if any row has one; returns their first word, or 0.
    fn adapters(&mut self, rows: &[Row]) -> u32 {
        if rows.iter().all(|row| row.adapters.is_empty()) {
            return 0;
        }
        let at = self.words.len();
        for row in rows {
            let end = self.words.len() + ADAPTER_WORDS;
            let given = row.adapters.iter();
            self.words
                .extend(given.flat_map(|(number, scale)| [number as u32, scale.to_bits()]));
            self.words.resize(end, u32::MAX);
        }
        at as u32
    }

    /// Adds the spans, after the rows and before the tables.
    pub fn spans(&mut self, spans: &[Span]) {
        self.spans = [self.words.len() as u32, spans.len() as u32];
        for span in spans {
            let writes = span.writes.iter().flatten();
            let before = span.before.unwrap_or(u32::MAX);
            let count = writes.clone().count() as u32;
            let end = self.words.len() + SPAN_WORDS;
            self.words.extend([span.first, span.rows, before, count]);
            self.words
                .extend(writes.flat_map(|(rows, state)| [*rows, *state]));
            self.words.resize(end, 0);
        }
        let long = spans.iter().filter(|span| span.rows >= TILED_ROWS_MIN);
        for span in long {
            for begin in (0..span.rows).step_by(TILE_ROWS as usize) {
                let rows = (span.rows - begin).min(TILE_ROWS);
                self.words.extend([span.first + begin, rows]);
                self.tiles += 1;
                self.tiled_rows += rows;
            }
        }
    }

    /// Adds the page tables of all rows, at the end.
    pub fn tables(&mut self, entries: &[u32]) {
        self.tables_at = self.words.len() as u32;
        self.words.extend_from_slice(entries);
    }

    /// The words.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Number of rows of a set.
    pub fn rows(&self, set: RowSet) -> u32 {
        self.sets[set as usize].rows
    }

    pub(crate) fn place(&self, set: RowSet) -> SetPlace {
        self.sets[set as usize]
    }

    /// A row of a set.
    #[cfg(test)]
    pub(crate) fn row(&self, set: RowSet, row: usize) -> Row {
        let first = self.place(set).rows_at as usize + row * ROW_WORDS;
        let words = &self.words[first..first + ROW_WORDS];
        Row {
            token: words[0],
            position: words[1],
            page: words[2],
            slot: words[3],
            table: words[4],
            source: words[5],
            temperature: f32::from_bits(words[6]),
            span: words[7],
            after: words[8],
            vector: Some(words[9]).filter(|vector| *vector != u32::MAX),
            adapters: AdapterSet::NONE,
        }
    }

    /// The first word of the spans, and their number.
    pub(crate) fn span_place(&self) -> [u32; 2] {
        self.spans
    }

    /// Number of tiles of long spans.
    pub(crate) fn tiles(&self) -> u32 {
        self.tiles
    }

    /// Number of rows of long spans.
    pub(crate) fn tiled_rows(&self) -> u32 {
        self.tiled_rows
    }

    pub(crate) fn tables_at(&self) -> u32 {
        self.tables_at
    }

    pub(crate) fn longest(&self) -> u32 {
        self.longest
    }

    /// Number of rows that are vectors.
    pub(crate) fn vectors(&self) -> u32 {
        self.vectors
    }
}
