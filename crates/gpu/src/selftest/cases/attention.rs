//! Heads on their way to attention, and attention.

use super::{Builder, Case, Noise};
use crate::operation::{CacheShape, HeadsTo, Operation, RowSet, Turn};
use crate::record::{Row, Span};
use kernels::KvKind;

/// Elements, key heads, query heads of each key head, positions of a page, and storage format.
pub(crate) type HeadShape = (u32, u32, u32, u32, KvKind);

pub(super) fn heads((head_dim, kv_heads, group, page_tokens, kind): HeadShape) -> Case {
    let mut builder = Builder::new(format!("heads of {head_dim}, {kind}"));
    let shape = CacheShape {
        layers: 2,
        pages: 3,
        page_tokens,
        kv_heads,
        head_dim,
        kind,
    };
    let cache = builder.cache(shape);
    let dims = [head_dim / 2 * 2, (head_dim / 4 * 2).max(2)];
    let query_heads = kv_heads * group;
    let kinds = [
        (false, false, false, None, false),
        (true, true, false, Some((0, false)), true),
        (true, false, true, Some((1, true)), false),
    ];
    for (index, (has_norm, own_weights, norm_is_last, turn, tempered)) in (0..).zip(kinds) {
        for kind in 0..3 {
            let heads = if kind == 0 { query_heads } else { kv_heads };
            let input = builder.buffer(3, heads * head_dim);
            let to = match kind {
                0 => HeadsTo::Rows(builder.buffer(3, heads * head_dim)),
                1 => HeadsTo::Keys(cache, index % 2),
                _ => HeadsTo::Values(cache, index % 2),
            };
            let weights = if own_weights {
                heads * head_dim
            } else {
                head_dim
            };
            let norm = has_norm.then(|| builder.norm(weights, !norm_is_last));
            builder.push(Operation::Heads {
                input,
                heads,
                head_dim,
                norm,
                own_weights,
                norm_is_last,
                turn: turn.map(|(table, adjacent)| Turn {
                    table,
                    dims: dims[table as usize],
                    adjacent,
                }),
                tempered,
                transformed: shape.transformed(),
                to,
            });
        }
    }
    let row = |page, slot| Row {
        page,
        slot: slot % page_tokens,
        temperature: 1.25,
        ..Row::default()
    };
    let angles = dims.map(|dims| builder.noise.floats(3 * dims as usize));
    let rows = [row(2, 1), row(0, page_tokens - 1), row(1, 0)];
    builder.rows(RowSet::All, &rows, [&angles[0], &angles[1]]);
    builder.case
}

/// Attention of a long span by tiles, the last of few rows, next to a span of one row.
pub(in crate::selftest) fn attend_tiles(
    (head_dim, kv_heads, group, page_tokens, kind): HeadShape,
) -> Case {
    const LONG: u32 = 37;
    let mut case = attend((head_dim, kv_heads, group, page_tokens, kind), true);
    case.name = format!("attend by tiles, {group} heads of {head_dim}, {kind}");
    let heads = kv_heads * group;
    let mut noise = Noise(head_dim + group);
    for (shape, rows) in case.program.buffers.iter_mut().zip(&mut case.buffers) {
        shape.rows = LONG + 1;
        *rows = noise.floats(((LONG + 1) * heads * head_dim) as usize);
    }
    let entries = (777 + 1u32).div_ceil(page_tokens);
    let row = |position: u32, table, span| Row {
        position,
        table,
        span,
        ..Row::default()
    };
    let mut rows: Vec<Row> = (0..LONG).map(|at| row(60 + at, 0, 0)).collect();
    // Rows that see each other, in two tiles.
    for at in 20..LONG - 1 {
        rows[at as usize].after = LONG - 2 - at;
    }
    rows.push(row(300, entries, 1));
    let tables = case.record.words()[case.record.tables_at() as usize..].to_vec();
    let span = |first, rows| Span {
        first,
        rows,
        ..Span::default()
    };
    case.record.clear();
    case.record.set(RowSet::All, &rows, [&[]; 2]);
    case.record.spans(&[span(0, LONG), span(LONG, 1)]);
    case.record.tables(&tables);
    case
}

/// Attention of three rows; with contexts of several parts if `long`.
pub(in crate::selftest) fn attend(
    (head_dim, kv_heads, group, page_tokens, kind): HeadShape,
    long: bool,
) -> Case {
    let len = if long { "long" } else { "short" };
    let name = format!("attend, {group} heads of {head_dim}, {kind}, {len}");
    let mut builder = Builder::new(name);
    let positions: [u32; 3] = if long { [0, 300, 777] } else { [0, 5, 40] };
    let table_len = (positions[2] + 1).div_ceil(page_tokens);
    let cache = builder.cache(CacheShape {
        layers: 1,
        pages: table_len + 2,
        page_tokens,
        kv_heads,
        head_dim,
        kind,
    });
    let heads = kv_heads * group;
    let query = builder.buffer(3, heads * head_dim);
    let values = &mut builder.case.buffers[query.buffer.0 as usize];
    values.iter_mut().for_each(|x| *x *= 3.0);
    for (cap, window, blocks, sinks) in [
        (None, None, true, false),
        (Some(2.0), Some(30), true, true),
        (None, Some(400), false, true),
    ] {
        let out = builder.buffer(3, heads * head_dim);
        let sinks = sinks.then(|| builder.vector(heads));
        builder.push(Operation::Attend {
            query,
            heads,
            cache,
            layer: 0,
            scale: 0.3,
            cap,
            window,
            blocks,
            sinks,
            out,
        });
    }
    // Two tables: rows 0 and 2 read the first.
    let row = |position: u32, table| Row {
        position,
        table,
        ..Row::default()
    };
    let [a, b, c] = positions;
    // The second is in a block of rows that see each other.
    let second = Row {
        after: 7,
        ..row(b, table_len)
    };
    let rows = [row(a, 0), second, row(c, 0)];
    builder.rows(RowSet::All, &rows, [&[]; 2]);
    let first = (0..table_len).map(|entry| (entry * 5 + 2) % (table_len + 2));
    let second = (0..table_len).map(|entry| (entry * 3 + 1) % (table_len + 2));
    let tables: Vec<u32> = first.chain(second).collect();
    builder.case.record.tables(&tables);
    builder.case
}
