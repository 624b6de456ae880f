//! The rows of a batch as a device reads them: one record of rows, angles and page tables.

use crate::operation::RowSet;
use crate::record::{Record, Row, Span as SpanRecord};
use kernels::Rope;
use model::{Batch, Dims, Span, VECTOR, Want};
use weights::Config;
use weights::config::Temperature;
use weights::config::table_of_axes;

/// Makes the record of a batch. Reused, so that a warm step allocates nothing.
pub(crate) struct StepRows {
    page_tokens: usize,
    temperature: Option<Temperature>,
    ropes: [Option<Rope>; 2],
    /// Which of three positions turns each pair of a table, in a model with positions on three axes.
    axis_of: [Vec<u8>; 2],
    /// Rotary positions of all rows and of the wanted ones, if any row has three.
    axes: [Vec<[u32; 3]>; 2],
    /// Rows that were vectors so far.
    vectors: u32,
    /// Rows of each [`RowSet`].
    sets: [Vec<Row>; RowSet::ALL.len()],
    /// Angles of all rows and of the wanted ones, of both tables: `(rows, dims)`.
    angles: [[Vec<f32>; 2]; 2],
    /// Whether the states that spans name are written.
    writes_states: bool,
    /// Spans with their states, in a model with recurrent layers.
    spans: Vec<SpanRecord>,
    /// Page tables, span after span.
    tables: Vec<u32>,
    record: Record,
}

impl StepRows {
    pub(crate) fn new(config: &Config, dims: &Dims, ropes: [Option<Rope>; 2]) -> Self {
        let len = |table: usize| ropes[table].as_ref().map_or(0, Rope::table_len);
        let angles = || [0, 1].map(|table| Vec::with_capacity(dims.rows_max * len(table)));
        Self {
            page_tokens: dims.page_tokens,
            temperature: config.scales.temperature,
            sets: RowSet::ALL.map(|_| Vec::with_capacity(dims.rows_max)),
            angles: [angles(), angles()],
            spans: Vec::with_capacity(dims.rows_max),
            tables: Vec::new(),
            record: Record::default(),
            writes_states: true,
            axis_of: [&config.rope, &config.rope_local].map(|rope| rope.axes.clone()),
            axes: Default::default(),
            vectors: 0,
            ropes,
        }
    }

    /// Reads a batch, which was checked.
    pub(crate) fn read(&mut self, batch: &Batch) {
        self.read_rows(batch, false);
    }

    /// Reads a block, which was checked: each row sees the positions up to the last.
    pub(crate) fn read_block(&mut self, block: &Batch) {
        self.read_rows(block, true);
    }

    fn read_rows(&mut self, batch: &Batch, is_block: bool) {
        self.sets.iter_mut().for_each(Vec::clear);
        self.spans.clear();
        self.tables.clear();
        self.axes.iter_mut().for_each(Vec::clear);
        self.vectors = 0;
        for span in batch.ranges() {
            self.push(span, batch, is_block);
        }
        self.read_angles();
        let Self {
            sets,
            angles,
            record,
            ..
        } = self;
        record.clear();
        for (set, rows) in RowSet::ALL.into_iter().zip(sets) {
            let [all, wanted] = &angles;
            let angles = match set {
                RowSet::All => [&all[0][..], &all[1][..]],
                RowSet::Wanted => [&wanted[0][..], &wanted[1][..]],
                RowSet::Hidden | RowSet::Logits => [&[][..]; 2],
            };
            record.set(set, rows, angles);
        }
        record.spans(&self.spans);
        record.tables(&self.tables);
    }

    /// Reads a batch of guesses, which write no states.
    pub(crate) fn read_guesses(&mut self, batch: &Batch) {
        self.writes_states = false;
        self.read(batch);
        self.writes_states = true;
    }

    /// The record of the last batch.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Number of rows of a set of the last batch.
    pub(crate) fn rows(&self, set: RowSet) -> usize {
        self.sets[set as usize].len()
    }

    fn push(&mut self, span: &Span, batch: &Batch, is_block: bool) {
        let tokens = &batch.tokens()[span.tokens.clone()];
        let table = &batch.pages()[span.pages.clone()];
        let first = self.sets[RowSet::All as usize].len();
        let entry = self.tables.len() as u32;
        let end = span.position + tokens.len();
        let number = self.spans.len() as u32;
        let mut record = span_record(span, first);
        if !self.writes_states {
            record.writes = Default::default();
        }
        self.spans.push(record);
        self.tables
            .extend_from_slice(&table[..end.div_ceil(self.page_tokens)]);
        for (position, &token) in (span.position..).zip(tokens) {
            let factor = |temperature: &Temperature| temperature.factor(position);
            let vector = (token == VECTOR).then_some(self.vectors);
            self.vectors += u32::from(vector.is_some());
            self.sets[RowSet::All as usize].push(Row {
                token,
                position: position as u32,
                page: table[position / self.page_tokens],
                slot: (position % self.page_tokens) as u32,
                table: entry,
                source: 0,
                temperature: self.temperature.as_ref().map_or(1.0, factor),
                span: number,
                after: if is_block {
                    (end - 1 - position) as u32
                } else {
                    0
                },
                vector,
                adapters: span.adapters,
            });
        }
        let rows = first..first + tokens.len();
        self.push_axes(span, batch);
        let wanted = match span.want {
            Want::None => return,
            Want::FirstHidden => rows.start..rows.end.min(rows.start + 1),
            Want::Last | Want::LastHidden => rows.end.saturating_sub(1).max(rows.start)..rows.end,
            Want::All | Want::AllHidden => rows,
        };
        let outputs = match span.want {
            Want::FirstHidden | Want::LastHidden | Want::AllHidden => RowSet::Hidden,
            Want::None | Want::Last | Want::All => RowSet::Logits,
        };
        for row in wanted {
            let of = |source: usize, row: Row| Row {
                source: source as u32,
                ..row
            };
            let known = self.sets[RowSet::All as usize][row];
            let place = self.sets[RowSet::Wanted as usize].len();
            self.sets[RowSet::Wanted as usize].push(of(row, known));
            let [all, wanted] = &mut self.axes;
            wanted.extend(all.get(row));
            self.sets[outputs as usize].push(of(place, known));
        }
    }

    /// Rotary positions of a span's rows, if any span of the batch has three.
    fn push_axes(&mut self, span: &Span, batch: &Batch) {
        if batch.axes().is_empty() {
            return;
        }
        let [axes, _] = &mut self.axes;
        if span.axes.is_empty() {
            let positions = span.position..span.position + span.tokens.len();
            axes.extend(positions.map(|position| [position as u32; 3]));
        } else {
            axes.extend_from_slice(&batch.axes()[span.axes.clone()]);
        }
    }

    fn read_angles(&mut self) {
        let sets = [RowSet::All, RowSet::Wanted].into_iter().zip(&self.axes);
        for (of_set, (set, axes)) in self.angles.iter_mut().zip(sets) {
            let ropes = self.ropes.iter().zip(&self.axis_of);
            for (angles, (rope, axis_of)) in of_set.iter_mut().zip(ropes) {
                angles.clear();
                let Some(rope) = rope else { continue };
                let (rows, len) = (&self.sets[set as usize], rope.table_len());
                angles.resize(rows.len() * len, 0.0);
                let tables = angles.chunks_exact_mut(len.max(1));
                for (index, (row, table)) in rows.iter().zip(tables).enumerate() {
                    match axes.get(index) {
                        None => rope.table(row.position as usize, table),
                        Some(axes) => table_of_axes(rope, axis_of, *axes, table),
                    }
                }
            }
        }
    }
}

/// A span, whose first row is row `first` of the batch, with the states that it reads and writes.
fn span_record(span: &Span, first: usize) -> SpanRecord {
    let rows = span.tokens.len();
    let mut record = SpanRecord {
        first: first as u32,
        rows: rows as u32,
        before: span.states.and_then(|states| states.before),
        ..SpanRecord::default()
    };
    let written = span.states.iter().flat_map(|states| states.written(rows));
    for (write, kept) in record.writes.iter_mut().zip(written) {
        *write = Some((kept.tokens as u32, kept.state));
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> StepRows {
        StepRows {
            page_tokens: 2,
            temperature: None,
            ropes: [None, None],
            sets: Default::default(),
            angles: Default::default(),
            spans: Vec::new(),
            tables: Vec::new(),
            writes_states: true,
            axis_of: Default::default(),
            axes: Default::default(),
            vectors: 0,
            record: Record::default(),
        }
    }

    #[test]
    fn sets_name_rows_of_the_sets_they_are_taken_from() {
        let mut rows = rows();
        let mut batch = Batch::default();
        batch.push(&[10, 11], 3, &[5, 6, 7, 8], Want::None);
        batch.push(&[20, 21, 22], 0, &[3, 9], Want::Last);
        batch.push(&[30, 31], 0, &[4], Want::AllHidden);
        batch.push(&[40], 1, &[1], Want::All);
        rows.read(&batch);
        let sources = |set: RowSet| -> Vec<(u32, u32)> {
            let rows = rows.sets[set as usize].iter();
            rows.map(|row| (row.source, row.token)).collect()
        };
        let wanted = [(4, 22), (5, 30), (6, 31), (7, 40)];
        assert_eq!(sources(RowSet::Wanted), wanted);
        assert_eq!(sources(RowSet::Logits), [(0, 22), (3, 40)]);
        assert_eq!(sources(RowSet::Hidden), [(1, 30), (2, 31)]);
        // The fourth page of the first span is not reached.
        assert_eq!(rows.tables, [5, 6, 7, 3, 9, 4, 1]);
        let all = &rows.sets[RowSet::All as usize];
        let places: Vec<_> = all
            .iter()
            .map(|row| (row.page, row.slot, row.table))
            .collect();
        let second = [(3, 0, 3), (3, 1, 3), (9, 0, 3)];
        assert_eq!(places[..2], [(6, 1, 0), (7, 0, 0)]);
        assert_eq!(places[2..5], second);
        assert_eq!(places[7], (1, 1, 6));
        assert_eq!(rows.rows(RowSet::All), 8);
    }

    #[test]
    fn rows_know_their_vectors_and_axes() {
        let mut rows = rows();
        let mut batch = Batch::default();
        batch.push(&[1, 2], 0, &[0], Want::Last);
        batch.push(&[3; 6], 2, &[1, 2, 3, 4], Want::Last);
        batch.set_vectors(1..3, &[0.5; 4]);
        batch.set_vectors(4..5, &[0.5; 2]);
        let of_second: Vec<[u32; 3]> = (0..6).map(|at| [2, at, 9]).collect();
        batch.set_axes(&of_second);
        rows.read(&batch);
        let all = &rows.sets[RowSet::All as usize];
        let vectors: Vec<_> = all.iter().map(|row| row.vector).collect();
        let token = None;
        let [a, b, c] = [0, 1, 2].map(Some);
        assert_eq!(vectors, [token, token, token, a, b, token, c, token]);
        assert_eq!(rows.record().vectors(), 3);
        let [all, wanted] = &rows.axes;
        assert_eq!(all[..2], [[0; 3], [1; 3]]);
        assert_eq!(all[2..], of_second);
        assert_eq!(wanted[..], [[1; 3], [2, 5, 9]]);
        let after = |rows: &StepRows| -> Vec<u32> {
            let all = &rows.sets[RowSet::All as usize];
            all.iter().map(|row| row.after).collect()
        };
        assert_eq!(after(&rows), [0; 8]);
        batch.clear();
        batch.push(&[0; 4], 5, &[1, 2, 3, 4, 5], Want::None);
        batch.set_vectors(0..4, &[0.5; 8]);
        rows.read_block(&batch);
        assert_eq!(after(&rows), [3, 2, 1, 0]);
        assert_eq!(rows.record().longest(), 9);
    }
}
