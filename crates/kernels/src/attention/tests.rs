//! Attention against an f64 oracle, and bit-equality across batches, on every level.

#![allow(clippy::single_range_in_vec_init)] // A batch of one sequence is a list of one range.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod amx_reference;
mod invariance;
mod oracle;

use super::schedule::WorkPartition;
use super::{
    AttentionBounds, AttentionCall, AttentionParams, AttentionScratch, QueryRow, Window, attend,
};
use crate::{Isa, KvCache, KvKind, KvShape, Pool};
use std::ops::Range;

/// A cache with stored sequences, and queries.
struct AttentionFixture {
    kv: KvCache,
    params: AttentionParams<'static>,
    /// Block tables, concatenated.
    tables: Vec<u32>,
    rows: Vec<QueryRow>,
    /// `(rows, heads, head_dim)`.
    q: Vec<f32>,
    /// Keys and values as stored, `(position, kv_heads, head_dim)` of each sequence.
    stored: Vec<(Vec<f32>, Vec<f32>)>,
    /// Sequence index of each row.
    sequence: Vec<usize>,
}

/// Shapes of a fixture.
#[derive(Clone, Debug)]
struct FixtureShape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    page_tokens: usize,
    softcap: Option<f32>,
    window: Option<usize>,
    /// Whether a query sees later positions, too.
    sees_later: bool,
    sinks: bool,
    kind: KvKind,
    /// Query positions of each sequence; keys are stored up to the end.
    sequences: Vec<Range<usize>>,
}

impl Default for FixtureShape {
    fn default() -> Self {
        Self {
            heads: 4,
            kv_heads: 2,
            head_dim: 32,
            page_tokens: 16,
            softcap: None,
            window: None,
            sees_later: false,
            sinks: false,
            kind: KvKind::F16,
            sequences: vec![0..5],
        }
    }
}

impl FixtureShape {
    /// The default shape with `sequences`, then modified by `change`.
    fn of(sequences: &[Range<usize>], change: impl FnOnce(&mut Self)) -> Self {
        let mut plan = Self {
            sequences: sequences.to_vec(),
            ..Self::default()
        };
        change(&mut plan);
        plan
    }
}

/// Pseudorandom numbers between -1 and 1.
pub(super) struct Noise(pub(super) u64);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(super) fn take(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.next() * scale).collect()
    }
}

const LAYER: usize = 1;

impl AttentionFixture {
    fn new(plan: &FixtureShape) -> Self {
        let mut noise = Noise(42);
        let pages_of = |range: &Range<usize>| range.end.div_ceil(plan.page_tokens);
        let pages = plan.sequences.iter().map(pages_of).sum::<usize>() + 1;
        let shape = KvShape {
            layers: 2,
            pages,
            page_tokens: plan.page_tokens,
            kv_heads: plan.kv_heads,
            head_dim: plan.head_dim,
            kind: plan.kind,
        };
        let mut world = Self {
            kv: poisoned(shape),
            params: AttentionParams {
                heads: plan.heads,
                scale: 1.0 / (plan.head_dim as f32).sqrt(),
                softcap: plan.softcap,
                window: plan.window.map(if plan.sees_later {
                    Window::around
                } else {
                    Window::last
                }),
                // Leaked: a few floats of a test.
                sinks: plan.sinks.then(|| &*noise.take(plan.heads, 4.0).leak()),
            },
            tables: shuffled(pages, &mut noise),
            rows: Vec::new(),
            q: Vec::new(),
            stored: Vec::new(),
            sequence: Vec::new(),
        };
        let mut first = 0;
        for range in &plan.sequences {
            let pages = first..first + pages_of(range);
            first = pages.end;
            world.add(range, &pages, plan.sees_later, &mut noise);
        }
        world
    }

    /// Stores a sequence's keys and values and adds its query rows.
    fn add(
        &mut self,
        range: &Range<usize>,
        pages: &Range<usize>,
        sees_later: bool,
        noise: &mut Noise,
    ) {
        let KvShape {
            page_tokens,
            kv_heads,
            head_dim,
            ..
        } = self.kv.shape();
        let width = kv_heads * head_dim;
        let (k, v) = (
            noise.take(range.end * width, 3.0),
            noise.take(range.end * width, 2.0),
        );
        for at in 0..range.end {
            let page = self.tables[pages.clone()][at / page_tokens];
            let part = at * width..(at + 1) * width;
            self.kv
                .store(LAYER, page, at % page_tokens, &k[part.clone()], &v[part]);
        }
        self.sequence
            .extend(range.clone().map(|_| self.stored.len()));
        self.stored.push((k, v));
        self.rows.extend(range.clone().map(|position| QueryRow {
            position,
            end: if sees_later { range.end } else { position + 1 },
            pages: pages.clone(),
        }));
        self.q
            .extend(noise.take(range.len() * self.params.heads * head_dim, 2.0));
    }

    fn width(&self) -> usize {
        self.params.heads * self.kv.shape().head_dim
    }

    fn scratch(&self, isa: Isa, threads: usize, rows_max: usize) -> AttentionScratch {
        AttentionScratch::new(AttentionBounds {
            threads,
            heads: self.params.heads,
            kv_heads: self.kv.shape().kv_heads,
            head_dim: self.kv.shape().head_dim,
            kind: self.kv.shape().kind,
            isa,
            rows_max,
            context_max: self.rows.iter().map(|row| row.end).max().unwrap_or(1),
        })
    }

    /// The partition of the rows among `threads`.
    fn choose_partition(&self, threads: usize, rows: Range<usize>) -> WorkPartition {
        let isa = Isa::scalar();
        let mut scratch = self.scratch(isa, threads, rows.len());
        let call = AttentionCall {
            isa,
            kv: &self.kv,
            layer: LAYER,
            params: &self.params,
            rows: &self.rows[rows],
            tables: &self.tables,
            q: &self.q,
        };
        call.cut_query_tiles(&mut scratch);
        call.choose_partition(threads, &scratch)
    }

    /// Rows that use AMX on a level, if all rows are in one call.
    fn use_amx(&self, isa: Isa, rows: Range<usize>) -> Vec<bool> {
        let mut use_amx = vec![false; rows.len()];
        if !isa.has_tiles() {
            return use_amx;
        }
        let group = self.params.heads / self.kv.shape().kv_heads;
        let mut start = 0;
        while start < rows.len() {
            let first = &self.rows[rows.start + start];
            let run = self.rows[rows.start + start..rows.end]
                .iter()
                .enumerate()
                .take_while(|(i, row)| {
                    row.position == first.position + i && row.pages == first.pages
                })
                .count();
            use_amx[start..start + run].fill(run >= 16 && run * group >= 32);
            start += run;
        }
        use_amx
    }

    /// Runs attention for some of the rows.
    fn attend(&self, isa: Isa, pool: &mut Pool, rows: Range<usize>) -> Vec<f32> {
        let mut scratch = self.scratch(isa, pool.threads(), rows.len());
        let mut out = vec![f32::NAN; rows.len() * self.width()];
        let q = &self.q[rows.start * self.width()..rows.end * self.width()];
        let (kv, params, tables) = (&self.kv, &self.params, &self.tables);
        // Run twice, so that stale scratch contents would show.
        for _ in 0..2 {
            let rows = &self.rows[rows.clone()];
            attend(
                isa,
                pool,
                &mut scratch,
                kv,
                LAYER,
                params,
                rows,
                tables,
                q,
                &mut out,
            );
        }
        out
    }
}

/// A cache full of NaN: memory that was not stored must not affect results.
fn poisoned(shape: KvShape) -> KvCache {
    let mut kv = KvCache::new(shape).expect("tests are small");
    let poison = vec![f32::NAN; shape.kv_heads * shape.head_dim];
    for page in 0..shape.pages as u32 {
        for slot in 0..shape.page_tokens {
            kv.store(LAYER, page, slot, &poison, &poison);
        }
    }
    kv
}

/// A permutation of `0..n`.
fn shuffled(n: usize, noise: &mut Noise) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    for i in (1..n).rev() {
        let other = ((noise.next() + 1.0) / 2.0 * (i + 1) as f32) as usize;
        order.swap(i, other.min(i));
    }
    order
}
