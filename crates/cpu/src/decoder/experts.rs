//! Experts: the rows of a batch, sorted by expert, are multiplied with the experts that they chose.
//!
//! 1. The router scores all experts for each row, and each row chooses some ([`super::router`]).
//! 2. The choices are sorted by expert, and by row for each expert. Each expert's rows are one group, so that a step
//!    reads the weights of a chosen expert once, and those of the others not at all.
//! 3. As many whole groups as fit the workspace are gathered and multiplied in one call for each projection.
//! 4. The outputs are added to the rows, times the shares, in ascending order of the experts.
//!
//! A row's result does not depend on the other rows: a choice depends on the row's scores alone, products are
//! batch-invariant, and the order of the additions is that of the experts' indices, whatever the rows' order and however
//! the groups are divided.

use super::Decoder;
use super::layer::activate;
use super::router::{Choice, choose};
use super::scratch::Buffer;
use crate::norm;
use kernels::{
    Activations, Isa, MatrixStack, Pool, RowGroup, add_assign, add_scaled, matmul, matmul_groups,
};
use weights::config::{Config, ExpertsConfig, Gate, RouterConfig};
use weights::parameters::Experts;
use weights::parameters::Norm;

/// Workspace of the experts of one layer, allocated once for the largest batch.
pub(crate) struct ExpertScratch {
    used: usize,
    router: RouterConfig,
    gate_kind: Gate,
    /// Scores of the experts (count).
    scores: Buffer,
    /// `(rows, used)`, each row's by expert.
    choices: Vec<Choice>,
    /// Of each choice, `(rows, used)`: its place among the choices sorted by expert.
    places: Vec<u32>,
    /// Of each place: the row.
    sources: Vec<u32>,
    /// The first place of each expert, and the end: `count + 1`.
    starts: Vec<u32>,
    /// Places filled of each expert (count).
    next: Vec<u32>,
    groups: Vec<RowGroup>,
    /// Factors of the up projections of experts without gates (hidden); empty beside gates.
    ones: Vec<f32>,
    /// Of gathered rows (hidden); as many as the batch has rows at most, since an expert has at most one place in a row.
    gate: Buffer,
    up: Buffer,
    /// Outputs of gathered rows (dim).
    outputs: Buffer,
}

impl Decoder {
    /// Lets the rows of `normed` choose their experts.
    pub(super) fn choose_experts(&mut self, experts: &Experts) {
        let (rows, isa) = (self.rows.queries.len(), self.isa.without_amx());
        let (pool, scratch) = (&mut self.pool, &mut self.scratch);
        if let Some(chosen) = &mut self.experts {
            let activations = &mut scratch.activations;
            chosen.choose(isa, pool, experts, activations, &scratch.normed, rows);
        }
    }

    /// Adds the outputs of the chosen experts for the rows of `normed` to `update`, after their norm, if any.
    pub(super) fn add_experts(&mut self, config: &Config, experts: &Experts) {
        let (rows, isa) = (self.rows.queries.len(), self.isa.without_amx());
        let (pool, scratch) = (&mut self.pool, &mut self.scratch);
        let Some(chosen) = &mut self.experts else {
            return;
        };
        let (activations, normed) = (&mut scratch.activations, &scratch.normed);
        let update = scratch.update.head_mut(rows);
        let Some(norms) = &experts.norms else {
            return chosen.add_outputs(isa, pool, experts, activations, normed, update);
        };
        let sum = scratch.sums.head_mut(rows);
        sum.fill(0.0);
        chosen.add_outputs(isa, pool, experts, activations, normed, sum);
        let (dim, eps) = (config.dim, config.norm_eps);
        pool.rows2((update, dim), (sum, dim), |_, update, sum| {
            norm::apply_to_parts(&norms.post, isa, eps, sum, dim);
            add_assign(isa, update, sum);
        });
    }

    /// Normalizes `update`.
    pub(super) fn normalize_update(&mut self, config: &Config, norm: &Norm) {
        let (rows, isa, dim) = (self.rows.queries.len(), self.isa, config.dim);
        let update = self.scratch.update.head_mut(rows);
        self.pool.rows(update, dim, |_, update| {
            norm::apply_to_parts(norm, isa, config.norm_eps, update, dim);
        });
    }

    /// Normalizes the stream into `normed`.
    pub(super) fn read_stream(&mut self, config: &Config, norm: &Norm) {
        let (rows, isa, dim) = (self.rows.queries.len(), self.isa, config.dim);
        let (stream, normed) = (&self.scratch.stream, self.scratch.normed.head_mut(rows));
        self.pool.rows(normed, dim, |row, normed| {
            norm::apply(norm, isa, config.norm_eps, stream.row(row), normed);
        });
    }
}

impl ExpertScratch {
    /// The workspace for experts that are `dim` wide; `is_gated`: with gates.
    pub(crate) fn new(
        experts: &ExpertsConfig,
        (gate_kind, is_gated): (Gate, bool),
        dim: usize,
        rows_max: usize,
    ) -> Self {
        let (gathered, choices) = (rows_max.max(experts.used), rows_max * experts.used);
        Self {
            used: experts.used,
            router: experts.router,
            gate_kind,
            scores: Buffer::new(rows_max, experts.count),
            choices: vec![Choice::default(); choices],
            places: vec![0; choices],
            sources: vec![0; choices],
            starts: vec![0; experts.count + 1],
            next: vec![0; experts.count],
            groups: Vec::with_capacity(experts.count.min(gathered)),
            ones: vec![1.0; if is_gated { 0 } else { experts.hidden }],
            gate: Buffer::new(gathered, if is_gated { experts.hidden } else { 0 }),
            up: Buffer::new(gathered, experts.hidden),
            outputs: Buffer::new(gathered, dim),
        }
    }

    /// Resident bytes.
    pub(crate) fn bytes(&self) -> usize {
        let buffers = [&self.scores, &self.gate, &self.up, &self.outputs];
        let buffers: usize = buffers.iter().map(|buffer| buffer.bytes()).sum();
        let lists = [&self.places, &self.sources, &self.starts, &self.next];
        let lists: usize = lists.iter().map(|list| size_of_val(&list[..])).sum();
        let groups = self.groups.capacity() * size_of::<RowGroup>();
        buffers + lists + groups + size_of_val(&self.choices[..]) + size_of_val(&self.ones[..])
    }

    /// Lets the first `rows` rows of `normed` choose their experts, and sorts the choices.
    pub(crate) fn choose(
        &mut self,
        isa: Isa,
        pool: &mut Pool,
        experts: &Experts,
        activations: &mut Activations,
        normed: &Buffer,
        rows: usize,
    ) {
        let (used, router) = (self.used, self.router);
        let choice_bias = experts.choice_bias.as_deref();
        activations.load(isa, pool, normed.head(rows), rows, normed.cols());
        matmul(
            pool,
            &experts.router,
            activations,
            self.scores.head_mut(rows),
        );
        if let Some(biases) = &experts.biases {
            let bias = &biases.router;
            let scores = self.scores.head_mut(rows);
            pool.rows(scores, bias.len(), |_, row| add_assign(isa, row, bias));
        }
        let scores = &self.scores;
        pool.rows(&mut self.choices[..rows * used], used, |row, choices| {
            let mut copy = [0.0; weights::config::limits::EXPERTS];
            let copy = &mut copy[..scores.cols()];
            copy.copy_from_slice(scores.row(row));
            choose(isa, (&router, choice_bias), copy, choices);
            if let Some(scales) = &experts.scales {
                let choices = choices.iter_mut();
                choices.for_each(|choice| choice.share *= scales[choice.expert as usize]);
            }
        });
        self.sort(rows);
    }

    /// Sorts the choices by expert and row: counts each expert's, then gives out places.
    fn sort(&mut self, rows: usize) {
        let choices = &self.choices[..rows * self.used];
        self.starts.fill(0);
        for choice in choices {
            self.starts[choice.expert as usize + 1] += 1;
        }
        for expert in 0..self.next.len() {
            self.next[expert] = self.starts[expert];
            self.starts[expert + 1] += self.starts[expert];
        }
        for (at, choice) in choices.iter().enumerate() {
            let next = &mut self.next[choice.expert as usize];
            self.places[at] = *next;
            self.sources[*next as usize] = (at / self.used) as u32;
            *next += 1;
        }
    }

    /// Adds the outputs of the chosen experts for the rows of `normed` to `update`, shape `(rows, dim)`.
    pub(crate) fn add_outputs(
        &mut self,
        isa: Isa,
        pool: &mut Pool,
        experts: &Experts,
        activations: &mut Activations,
        normed: &Buffer,
        update: &mut [f32],
    ) {
        let mut first = 0;
        while first < self.next.len() {
            let end = self.whole_groups(first);
            let [start, stop] = [first, end].map(|expert| self.starts[expert] as usize);
            if start < stop {
                let sources = &self.sources[start..stop];
                activations.load_gathered(isa, pool, normed.all(), sources, normed.cols());
                self.multiply(isa, pool, experts, activations, stop - start);
                self.combine(isa, pool, start..stop, update);
            }
            first = end;
        }
    }

    /// Fills `groups` with the groups of the experts from `first` on that fit the workspace together; returns the
    /// first expert beyond them. One group always fits.
    fn whole_groups(&mut self, first: usize) -> usize {
        self.groups.clear();
        let start = self.starts[first] as usize;
        let room = self.outputs.rows();
        for expert in first..self.next.len() {
            let rows = [expert, expert + 1].map(|at| self.starts[at] as usize - start);
            if rows[1] > room {
                return expert;
            }
            if rows[0] < rows[1] {
                self.groups.push(RowGroup {
                    matrix: expert,
                    rows: rows[0]..rows[1],
                });
            }
        }
        self.next.len()
    }

    /// The feed-forward part of gathered rows, from `activations` to `outputs`.
    fn multiply(
        &mut self,
        isa: Isa,
        pool: &mut Pool,
        experts: &Experts,
        activations: &mut Activations,
        rows: usize,
    ) {
        let groups = &self.groups;
        let project =
            |w: &MatrixStack, bias: Option<&[f32]>, x: &_, out: &mut Buffer, pool: &mut Pool| {
                let cols = out.cols();
                let out = out.head_mut(rows);
                matmul_groups(pool, w, groups, x, out);
                if let Some(bias) = bias {
                    pool.rows(out, cols, |row, out| {
                        let group = groups.partition_point(|group| group.rows.end <= row);
                        let expert = groups[group].matrix;
                        add_assign(isa, out, &bias[expert * cols..][..cols]);
                    });
                }
            };
        let biases = experts.biases.as_ref();
        let [gate, up, down] = [
            biases.map(|biases| &biases.gate[..]),
            biases.map(|biases| &biases.up[..]),
            biases.map(|biases| &biases.down[..]),
        ];
        project(&experts.up, up, activations, &mut self.up, pool);
        let (kind, hidden) = (self.gate_kind, self.up.cols());
        let activated = match &experts.gate {
            Some(stack) => {
                project(stack, gate, activations, &mut self.gate, pool);
                let (gate, up) = (self.gate.head_mut(rows), &self.up);
                activate(isa, pool, kind, hidden, gate, |row| up.row(row));
                gate
            }
            None => {
                let (up, ones) = (self.up.head_mut(rows), &self.ones[..]);
                activate(isa, pool, kind, hidden, up, |_| ones);
                up
            }
        };
        activations.load(isa, pool, activated, rows, hidden);
        project(&experts.down, down, activations, &mut self.outputs, pool);
    }

    /// Adds the outputs in these places to their rows.
    fn combine(
        &self,
        isa: Isa,
        pool: &mut Pool,
        places: std::ops::Range<usize>,
        update: &mut [f32],
    ) {
        let used = self.used;
        pool.rows(update, self.outputs.cols(), |row, update| {
            let choices = row * used..(row + 1) * used;
            let of_row = self.choices[choices.clone()]
                .iter()
                .zip(&self.places[choices]);
            for (choice, &place) in of_row {
                let place = place as usize;
                if places.contains(&place) {
                    let output = self.outputs.row(place - places.start);
                    add_scaled(isa, update, output, choice.share);
                }
            }
        });
    }
}
