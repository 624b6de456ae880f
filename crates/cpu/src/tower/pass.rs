//! The layers of a tower: patches in, a stream of patches out, block by block.

use super::TowerPass;
use crate::decoder::scratch::Buffer;
use crate::norm;
use crate::norm::project;
use kernels::{
    Activations, DenseSpan, Isa, Matrix, Pool, add_assign, gelu_erf_in_place, gelu_mul, matmul,
    quick_gelu_in_place, silu_in_place, silu_mul,
};
use std::ops::Range;
use weights::parameters::{Clamp, Linear, Norm, TowerLayer, TowerWeights};
use weights::vision::{Activation, NEIGHBORS, VisionConfig};

/// Epsilon of the norms around a matrix of patches: PyTorch's, also where the file names another for the layers.
const PATCH_EPS: f32 = 1e-5;

/// Rows that a row sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// All of the stream.
    All,
    /// The patches of its window.
    Window,
    /// The patches that become one row with it.
    Neighbors,
}

impl TowerPass {
    /// Computes the stream of some rows: `numbers` of all patches, `(patches, 3 * patch * patch)`.
    pub(super) fn embed(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (weights, kernel): (&TowerWeights, Option<&Matrix>),
        (numbers, rows): (&[f32], Range<usize>),
    ) {
        let (isa, dim, cols) = (self.isa, config.dim, config.patch_cols());
        let (scratch, places) = (&mut self.scratch, &self.places);
        let mut patches = rows.clone().filter_map(|row| places.patch_of(row));
        let first = patches.next().unwrap_or_default();
        let count = 1 + patches.count();
        let x = &numbers[first * cols..][..count * cols];
        let embedded = scratch.update.head_mut(count);
        if let Some(patches) = &weights.patch_matrix {
            let input = &mut scratch.input;
            input.set_cols(cols);
            pool.rows(input.head_mut(count), cols, |row, input| {
                let numbers = &x[row * cols..][..cols];
                norm::apply(&patches.before, isa, PATCH_EPS, numbers, input);
            });
            scratch
                .activations
                .load(isa, pool, scratch.input.head(count), count, cols);
            project(isa, pool, &patches.matrix, &scratch.activations, embedded);
        } else if let Some(kernel) = kernel {
            scratch.activations.load(isa, pool, x, count, cols);
            matmul(pool, kernel, &scratch.activations, embedded);
        }
        let (embedded, stream) = (&scratch.update, scratch.stream.rows_mut(rows.clone()));
        pool.rows(stream, dim, |row, stream| {
            if let Some(patch) = places.patch_of(rows.start + row) {
                stream.copy_from_slice(embedded.row(patch - first));
                if let Some(bias) = &weights.patches_bias {
                    add_assign(isa, stream, bias);
                }
                if let Some(patches) = &weights.patch_matrix {
                    norm::apply_in_place(&patches.after, isa, PATCH_EPS, stream);
                }
                places.add(isa, &weights.positions, patch, stream);
                if let Some(patches) = &weights.patch_matrix {
                    norm::apply_in_place(&patches.placed, isa, PATCH_EPS, stream);
                }
            } else if let Some(class) = &weights.class_token {
                stream.copy_from_slice(class);
            }
            if let Some(norm) = &weights.pre_norm {
                norm::apply_in_place(norm, isa, config.norm_eps, stream);
            }
        });
    }

    /// Stores the keys and values of some of `stream` rows.
    pub(super) fn store(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        layer: &TowerLayer,
        (stream, rows): (usize, Range<usize>),
    ) {
        self.normalize(pool, config, &layer.attention_norm, rows.clone());
        let clamps = layer.clamps.as_deref();
        let key = (
            &layer.key,
            layer.key_norm.as_ref(),
            clamps.map(|all| all.key),
        );
        self.heads(pool, config, key, rows.clone());
        let (isa, scratch) = (self.isa, &mut self.scratch);
        let value = scratch.value.head_mut(rows.len());
        let normed = (scratch.normed.head(rows.len()), &mut scratch.input);
        let matrix = (&layer.value, clamps.map(|all| all.value));
        project_within((isa, pool), matrix, normed, &mut scratch.activations, value);
        if let Some(norm) = &layer.value_norm {
            let (eps, len) = (config.norm_eps, norm.weight.len());
            pool.rows(value, config.dim, |_, row| {
                norm::apply_to_parts(norm, isa, eps, row, len);
            });
        }
        if rows.start == 0 {
            scratch.attention.begin(stream);
        }
        let key = scratch.query.head(rows.len());
        scratch.attention.store(pool, rows, key, value);
    }

    /// Attention of some of `stream` rows, added to the stream.
    pub(super) fn attend(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (seen, layer): (Seen, &TowerLayer),
        (stream, rows): (usize, Range<usize>),
    ) {
        self.normalize(pool, config, &layer.attention_norm, rows.clone());
        let clamps = layer.clamps.as_deref();
        let query = (
            &layer.query,
            layer.query_norm.as_ref(),
            clamps.map(|all| all.query),
        );
        self.heads(pool, config, query, rows.clone());
        let (isa, dim, scratch) = (self.isa, config.dim, &mut self.scratch);
        scratch.spans.clear();
        let mut first = rows.start;
        while first < rows.end {
            let keys = match seen {
                Seen::All => 0..stream,
                Seen::Window => self.places.window(first),
                Seen::Neighbors => {
                    first / NEIGHBORS * NEIGHBORS..(first / NEIGHBORS + 1) * NEIGHBORS
                }
            };
            let queries = first..keys.end.min(rows.end);
            first = queries.end;
            let queries = queries.start - rows.start..queries.end - rows.start;
            scratch.spans.push(DenseSpan { queries, keys });
        }
        let scale = config.score_scale();
        let (query, attended) = (
            scratch.query.head(rows.len()),
            scratch.value.head_mut(rows.len()),
        );
        scratch
            .attention
            .attend(pool, &scratch.spans, scale, query, attended);
        let activations = &mut scratch.activations;
        activations.load(isa, pool, attended, rows.len(), dim);
        let update = scratch.update.head_mut(rows.len());
        let matrix = (&layer.out, clamps.map(|all| all.out));
        project_within(
            (isa, pool),
            matrix,
            (attended, &mut scratch.input),
            activations,
            update,
        );
        let after = (
            layer.post_attention_norm.as_ref(),
            layer.attention_scale.as_deref(),
        );
        self.add_update(pool, config, after, rows);
    }

    /// The feed-forward part of some rows, added to the stream.
    pub(super) fn feed_forward(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        layer: &TowerLayer,
        rows: Range<usize>,
    ) {
        self.normalize(pool, config, &layer.hidden_norm, rows.clone());
        let (isa, scratch) = (self.isa, &mut self.scratch);
        let (hidden, kind) = (scratch.hidden.head_mut(rows.len()), config.activation);
        let (clamps, activations) = (layer.clamps.as_deref(), &mut scratch.activations);
        let (normed, input) = (scratch.normed.head(rows.len()), &mut scratch.input);
        let up_matrix = (&layer.up, clamps.map(|all| all.up));
        if let Some(gate) = &layer.gate {
            let up = scratch.up.head_mut(rows.len());
            let gate = (gate, clamps.map(|all| all.gate));
            project_within((isa, pool), gate, (normed, input), activations, hidden);
            project_within((isa, pool), up_matrix, (normed, input), activations, up);
            let up = &scratch.up;
            pool.rows(hidden, config.hidden, |row, hidden| {
                activate_gate(isa, kind, hidden, up.row(row));
            });
        } else {
            project_within((isa, pool), up_matrix, (normed, input), activations, hidden);
            let ones = &scratch.ones[..config.hidden];
            pool.rows(hidden, config.hidden, |_, hidden| match kind {
                Activation::Gelu => gelu_mul(isa, hidden, ones),
                Activation::GeluErf => gelu_erf_in_place(hidden),
                Activation::Silu => silu_in_place(isa, hidden),
                Activation::QuickGelu => quick_gelu_in_place(isa, hidden),
            });
        }
        activations.load(isa, pool, hidden, rows.len(), config.hidden);
        let update = scratch.update.head_mut(rows.len());
        let down = (&layer.down, clamps.map(|all| all.down));
        project_within((isa, pool), down, (hidden, input), activations, update);
        let after = (
            layer.post_hidden_norm.as_ref(),
            layer.hidden_scale.as_deref(),
        );
        self.add_update(pool, config, after, rows);
    }

    /// Loads the normalized stream of some rows as the input of the next matrices.
    fn normalize(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        norm: &Norm,
        rows: Range<usize>,
    ) {
        let (isa, dim, scratch) = (self.isa, config.dim, &mut self.scratch);
        let stream = &scratch.stream;
        let normed = scratch.normed.head_mut(rows.len());
        pool.rows(normed, dim, |row, normed| {
            norm::apply(
                norm,
                isa,
                config.norm_eps,
                stream.row(rows.start + row),
                normed,
            );
        });
        scratch.activations.load(isa, pool, normed, rows.len(), dim);
    }

    /// Computes the queries or keys of some rows, normalized and turned.
    fn heads(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (linear, norm, clamp): (&Linear, Option<&Norm>, Option<Clamp>),
        rows: Range<usize>,
    ) {
        let (isa, scratch, places) = (self.isa, &mut self.scratch, &self.places);
        let heads = scratch.query.head_mut(rows.len());
        let normed = (scratch.normed.head(rows.len()), &mut scratch.input);
        let matrix = (linear, clamp);
        project_within((isa, pool), matrix, normed, &mut scratch.activations, heads);
        if let Some(norm) = norm {
            let (eps, len) = (config.norm_eps, norm.weight.len());
            pool.rows(heads, config.dim, |_, row| {
                norm::apply_to_parts(norm, isa, eps, row, len);
            });
        }
        let Some(rope) = &self.rope else { return };
        let turns = scratch.turns.head_mut(rows.len());
        pool.rows(turns, rope.table_len(), |row, table| {
            let place = places
                .patch_of(rows.start + row)
                .map(|patch| places.of(patch));
            rope.table(place.unwrap_or_default(), table);
        });
        let turns = &scratch.turns;
        pool.rows(heads, config.dim, |row, heads| {
            rope.apply(turns.row(row), heads);
        });
    }

    /// Adds `update`, normalized and scaled, to the stream of some rows.
    fn add_update(
        &mut self,
        pool: &mut Pool,
        config: &VisionConfig,
        (norm, scale): (Option<&Norm>, Option<&[f32]>),
        rows: Range<usize>,
    ) {
        let (isa, scratch) = (self.isa, &mut self.scratch);
        if norm.is_some() || scale.is_some() {
            let update = scratch.update.head_mut(rows.len());
            pool.rows(update, config.dim, |_, update| {
                if let Some(norm) = norm {
                    norm::apply_in_place(norm, isa, config.norm_eps, update);
                }
                let factors = scale.unwrap_or_default();
                update
                    .iter_mut()
                    .zip(factors)
                    .for_each(|(x, factor)| *x *= factor);
            });
        }
        let (stream, update) = (scratch.stream.rows_mut(rows), &scratch.update);
        pool.rows(stream, config.dim, |row, stream| {
            add_assign(isa, stream, update.row(row));
        });
    }
}

/// The product of a matrix and `x`, which is loaded; where there are bounds, of `x` within them, in `input`, and within them.
fn project_within(
    (isa, pool): (Isa, &mut Pool),
    (linear, clamp): (&Linear, Option<Clamp>),
    (x, input): (&[f32], &mut Buffer),
    activations: &mut Activations,
    out: &mut [f32],
) {
    let Some(clamp) = clamp else {
        return project(isa, pool, linear, activations, out);
    };
    let (rows, cols) = (linear.weight.rows(), linear.weight.cols());
    let count = x.len() / cols;
    input.set_cols(cols);
    let bounded = input.head_mut(count);
    pool.rows(bounded, cols, |row, bounded| {
        bounded.copy_from_slice(&x[row * cols..][..cols]);
        limit(bounded, clamp.input);
    });
    activations.load(isa, pool, bounded, count, cols);
    project(isa, pool, linear, activations, out);
    pool.rows(out, rows, |_, out| limit(out, clamp.output));
}

/// Moves numbers to the bounds that they are beyond.
fn limit(numbers: &mut [f32], [least, most]: [f32; 2]) {
    for number in numbers {
        *number = number.max(least).min(most);
    }
}

/// The non-linearity of a gate, times `up`.
fn activate_gate(isa: Isa, kind: Activation, gate: &mut [f32], up: &[f32]) {
    match kind {
        Activation::Gelu => gelu_mul(isa, gate, up),
        Activation::Silu => silu_mul(isa, gate, up),
        Activation::QuickGelu | Activation::GeluErf => {
            if kind == Activation::QuickGelu {
                quick_gelu_in_place(isa, gate);
            } else {
                gelu_erf_in_place(gate);
            }
            gate.iter_mut().zip(up).for_each(|(gate, up)| *gate *= up);
        }
    }
}
