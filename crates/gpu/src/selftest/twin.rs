//! Every operation once more in scalar code, over memory of the host: what the kernels' results are compared with.

mod adapters;
pub(super) mod draws;
mod experts;
pub(super) mod pages;
mod recurrent;

use crate::operation::{
    Activation, At, CacheShape, HeadsTo, Norm, Operation, Program, RowSet, Turn, VectorId,
};
use crate::record::{ROW_WORDS, Record};
use kernels::walsh_hadamard;
use model::VECTOR;
use pages::rounded;

/// A program's memory on the host.
pub(crate) struct Twin<'a> {
    program: &'a Program,
    record: &'a Record,
    /// `(rows, cols)`, without padding.
    pub(crate) buffers: Vec<Vec<f32>>,
    /// `(rows, cols)`.
    pub(crate) matrices: Vec<Vec<f32>>,
    /// Keys and values of each layer, `(pages, kv heads, page tokens, stride)`.
    pub(crate) caches: Vec<Vec<[Vec<f32>; 2]>>,
    /// The two parts of the states of each recurrent layer.
    states: Vec<[Vec<f32>; 2]>,
}

/// The softmax of one query head.
struct Attention {
    scale: f32,
    cap: Option<f32>,
    sink: Option<f32>,
}

impl<'a> Twin<'a> {
    /// The memory of a program, zeroed; matrices are given.
    pub(crate) fn new(program: &'a Program, record: &'a Record, matrices: Vec<Vec<f32>>) -> Self {
        let cache = |shape: &CacheShape| {
            let len = (shape.pages * shape.kv_heads * shape.page_tokens * shape.stride()) as usize;
            let layers = 0..shape.layers;
            layers.map(|_| [vec![0.0; len], vec![0.0; len]]).collect()
        };
        let buffers = program.buffers.iter();
        let zeros = buffers.map(|shape| vec![0.0; (shape.rows * shape.cols) as usize]);
        Self {
            program,
            record,
            buffers: zeros.collect(),
            matrices,
            caches: program.caches.iter().map(cache).collect(),
            states: program.states.map_or(Vec::new(), |states| {
                let part = |bytes: u64| vec![0.0; bytes as usize / 4];
                let mut all = vec![states.layer_bytes().map(part); states.layers as usize];
                all.push([part(states.hidden_bytes()), Vec::new()]);
                all
            }),
        }
    }

    /// Runs all operations for the rows of a record.
    pub(crate) fn run(&mut self, record: &'a Record) {
        self.record = record;
        let program = self.program;
        for step in &program.steps {
            match step.operation {
                Operation::Convolve { .. } => self.convolve(&step.operation),
                Operation::Scan { .. } => self.scan(&step.operation),
                _ => {}
            }
            for row in 0..self.record.rows(step.rows) as usize {
                self.row(step.rows, row, &step.operation);
            }
        }
    }

    fn row(&mut self, set: RowSet, row: usize, operation: &Operation) {
        match *operation {
            Operation::Embed { table, factor, out } => {
                let shape = self.program.matrices[table.0 as usize];
                let cols = shape.cols as usize;
                let token = match self.field(set, row, 0) {
                    VECTOR => 0,
                    token => token as usize,
                };
                let weights = &self.matrices[table.0 as usize][token * cols..][..cols];
                let x: Vec<f32> = weights.iter().map(|weight| weight * factor).collect();
                self.write(out, row, &x);
            }
            Operation::Gather { input, cols, out } => {
                let source = self.field(set, row, 5) as usize;
                let x = self.read(input, source, cols);
                self.write(out, row, &x);
            }
            Operation::Norm { .. } | Operation::NormParts { .. } => self.norm(row, operation),
            Operation::Add { .. } => self.add(row, operation),
            Operation::Vectors { .. } => self.vectors(set, row, operation),
            Operation::Matmul { .. } => self.matmul(row, operation),
            Operation::AdaptDown { .. } | Operation::AdaptUp { .. } => {
                self.adapt(set, row, operation);
            }
            Operation::Heads { .. } => self.heads(set, row, operation),
            Operation::Attend { .. } => self.attend(set, row, operation),
            Operation::Activate { .. } => self.activate(row, operation),
            Operation::Finish { .. } => self.finish(row, operation),
            Operation::Route { .. } => self.route(row, operation),
            Operation::ExpertMatmul { .. } => self.expert_matmul(row, operation),
            Operation::Combine { .. } => self.combine(row, operation),
            Operation::ScanGates { .. } => self.scan_gates(row, operation),
            Operation::Share { .. } => self.share(row, operation),
            Operation::AddParts { .. } => self.add_parts(row, operation),
            Operation::CopyParts { .. } => self.copy_parts(row, operation),
            // Run once for all rows.
            Operation::Convolve { .. } | Operation::Scan { .. } => {}
        }
    }

    fn norm(&mut self, row: usize, operation: &Operation) {
        match *operation {
            Operation::Norm {
                input,
                cols,
                norm,
                out,
            } => {
                let mut x = self.read(input, row, cols);
                self.normalize(&mut x, &norm, 0);
                self.write(out, row, &x);
            }
            Operation::NormParts {
                x,
                parts,
                len,
                norm,
                own_weights,
            } => {
                let mut all = self.read(x, row, parts * len);
                for (part, x) in all.chunks_exact_mut(len as usize).enumerate() {
                    let first = usize::from(own_weights) * part * len as usize;
                    self.normalize(x, &norm, first);
                }
                self.write(x, row, &all);
            }
            _ => {}
        }
    }

    fn activate(&mut self, row: usize, operation: &Operation) {
        let Operation::Activate {
            activation,
            gate,
            up,
            cols,
            out,
        } = *operation
        else {
            return;
        };
        let gate = self.read(gate, row, cols);
        let up = up.map(|up| self.read(up, row, cols));
        let product = |col: usize| {
            let up = up.as_ref().map_or(1.0, |up| up[col]);
            activated(activation, gate[col], up)
        };
        let products: Vec<f32> = (0..cols as usize).map(product).collect();
        self.write(out, row, &products);
    }

    fn finish(&mut self, row: usize, operation: &Operation) {
        let Operation::Finish {
            logits,
            cols,
            bias,
            factor,
            cap,
        } = *operation
        else {
            return;
        };
        let mut x = self.read(logits, row, cols);
        for (col, x) in x.iter_mut().enumerate() {
            *x += bias.map_or(0.0, |bias| self.vector(bias, col));
            let capped = |x: f32| cap.map_or(x, |cap| cap * (x / cap).tanh());
            *x = if x.is_finite() {
                capped(*x * factor)
            } else {
                f32::NAN
            };
        }
        self.write(logits, row, &x);
    }

    fn add(&mut self, row: usize, operation: &Operation) {
        let Operation::Add {
            update,
            post,
            factor,
            stream,
            stream_factor,
            next,
            cols,
        } = *operation
        else {
            return;
        };
        let mut change = self.read(update, row, cols);
        if let Some(post) = post {
            self.normalize(&mut change, &post, 0);
        }
        let mut sum = self.read(stream, row, cols);
        for (sum, change) in sum.iter_mut().zip(change) {
            *sum = (*sum + change * factor) * stream_factor;
        }
        self.write(stream, row, &sum);
        if let Some((norm, out)) = next {
            self.normalize(&mut sum, &norm, 0);
            self.write(out, row, &sum);
        }
    }

    fn vectors(&mut self, set: RowSet, row: usize, operation: &Operation) {
        let Operation::Vectors {
            vectors,
            add,
            stream,
            next,
            cols,
        } = *operation
        else {
            return;
        };
        let Some(vector) = Some(self.field(set, row, 9)).filter(|vector| *vector != u32::MAX)
        else {
            return;
        };
        let mut sum = self.read(vectors, vector as usize, cols);
        if add {
            let before = self.read(stream, row, cols);
            sum.iter_mut().zip(before).for_each(|(sum, x)| *sum += x);
        }
        self.write(stream, row, &sum);
        if let Some((norm, out)) = next {
            self.normalize(&mut sum, &norm, 0);
            self.write(out, row, &sum);
        }
    }

    fn matmul(&mut self, row: usize, operation: &Operation) {
        let Operation::Matmul {
            matrix,
            input,
            bias,
            add,
            out,
        } = *operation
        else {
            return;
        };
        let shape = self.program.matrices[matrix.0 as usize];
        let x = self.read(input, row, shape.cols);
        let before = self.read(out, row, shape.rows);
        let weights = self.matrices[matrix.0 as usize].chunks_exact(x.len());
        let sums: Vec<f32> = weights.map(|weights| dot(weights, &x)).collect();
        let biased = |(output, sum): (usize, &f32)| {
            let bias = bias.map_or(0.0, |bias| self.vector(bias, output));
            sum + bias + if add { before[output] } else { 0.0 }
        };
        let sums: Vec<f32> = sums.iter().enumerate().map(biased).collect();
        self.write(out, row, &sums);
    }

    fn heads(&mut self, set: RowSet, row: usize, operation: &Operation) {
        let Operation::Heads {
            input,
            heads,
            head_dim,
            norm,
            own_weights,
            norm_is_last,
            turn,
            tempered,
            transformed,
            to,
        } = *operation
        else {
            return;
        };
        let temperature = f32::from_bits(self.field(set, row, 6));
        let len = head_dim as usize;
        let mut all = self.read(input, row, heads * head_dim);
        for (index, head) in all.chunks_exact_mut(len).enumerate() {
            let first = usize::from(own_weights) * index * len;
            if let (Some(norm), false) = (norm, norm_is_last) {
                self.normalize(head, &norm, first);
            }
            if let Some(turn) = turn {
                self.rotate(set, row, &turn, head);
            }
            if let (Some(norm), true) = (norm, norm_is_last) {
                self.normalize(head, &norm, first);
            }
            if tempered {
                head.iter_mut().for_each(|x| *x *= temperature);
            }
            walsh_hadamard(head, transformed as usize);
        }
        let (cache, layer, part) = match to {
            HeadsTo::Rows(out) => {
                return self.write(out, row, &all);
            }
            HeadsTo::Keys(cache, layer) => (cache.0 as usize, layer as usize, 0),
            HeadsTo::Values(cache, layer) => (cache.0 as usize, layer as usize, 1),
        };
        let shape = self.program.caches[cache];
        let (page, slot) = (self.field(set, row, 2), self.field(set, row, 3));
        for (index, head) in (0..).zip(all.chunks_exact(len)) {
            let first = ((page * heads + index) * shape.page_tokens + slot) * shape.stride();
            let to = &mut self.caches[cache][layer][part][first as usize..];
            let stored = rounded(shape.kind, head);
            to[..len].copy_from_slice(&stored);
        }
    }

    fn attend(&mut self, set: RowSet, row: usize, operation: &Operation) {
        let Operation::Attend {
            query,
            heads,
            cache,
            layer,
            scale,
            cap,
            window,
            blocks,
            sinks,
            out,
        } = *operation
        else {
            return;
        };
        let shape = self.program.caches[cache.0 as usize];
        let len = shape.head_dim as usize;
        let own_end = self.field(set, row, 1) as usize + 1;
        let end = own_end + usize::from(blocks) * self.field(set, row, 8) as usize;
        let start = window.map_or(0, |window| own_end.saturating_sub(window as usize));
        let queries = self.read(query, row, heads * shape.head_dim);
        let mut all = Vec::new();
        for (head, query) in queries.chunks_exact(len).enumerate() {
            let kv_head = head as u32 / (heads / shape.kv_heads);
            let place = |position: usize| {
                let table = self.record.tables_at() + self.field(set, row, 4);
                let page_tokens = shape.page_tokens as usize;
                let entry = table as usize + position / page_tokens;
                let page = self.record.words()[entry] * shape.kv_heads + kv_head;
                (page as usize * page_tokens + position % page_tokens) * shape.stride() as usize
            };
            let [keys, values] = &self.caches[cache.0 as usize][layer as usize];
            let attention = Attention {
                scale,
                cap,
                sink: sinks.map(|sinks| self.vector(sinks, head)),
            };
            let pairs: Vec<_> = (start..end)
                .map(|position| {
                    let at = place(position)..place(position) + len;
                    (&keys[at.clone()], &values[at])
                })
                .collect();
            all.extend(attention.of(query, &pairs));
        }
        self.write(out, row, &all);
    }

    fn rotate(&self, set: RowSet, row: usize, turn: &Turn, head: &mut [f32]) {
        let dims = turn.dims as usize;
        let first = self.record.place(set).angles_at[turn.table as usize] as usize + row * dims;
        let table = &self.record.words()[first..first + dims];
        for (pair, angle) in table.as_chunks::<2>().0.iter().enumerate() {
            let [cos, sin] = angle.map(f32::from_bits);
            let (a, b) = if turn.adjacent {
                (2 * pair, 2 * pair + 1)
            } else {
                (pair, pair + dims / 2)
            };
            let (x, y) = (head[a], head[b]);
            head[a] = x * cos - y * sin;
            head[b] = x * sin + y * cos;
        }
    }

    fn normalize(&self, x: &mut [f32], norm: &Norm, first: usize) {
        let count = x.len() as f64;
        let mean = if norm.centered {
            x.iter().copied().map(f64::from).sum::<f64>() / count
        } else {
            0.0
        };
        let squares = x.iter().map(|x| (f64::from(*x) - mean).powi(2));
        let factor = 1.0 / (squares.sum::<f64>() / count + f64::from(norm.eps)).sqrt();
        for (index, x) in x.iter_mut().enumerate() {
            let of = |vector: Option<VectorId>, none| {
                vector.map_or(none, |vector| self.vector(vector, first + index))
            };
            let normal = ((f64::from(*x) - mean) * factor) as f32;
            *x = normal * of(norm.weight, 1.0) + of(norm.bias, 0.0);
        }
    }

    fn vector(&self, vector: VectorId, index: usize) -> f32 {
        self.program.vectors[vector.0 as usize + index]
    }

    /// A word of a row.
    fn field(&self, set: RowSet, row: usize, field: usize) -> u32 {
        let at = self.record.place(set).rows_at as usize + row * ROW_WORDS + field;
        self.record.words()[at]
    }

    fn at(&mut self, at: At, row: usize, cols: usize) -> &mut [f32] {
        let index = at.buffer.0 as usize;
        let first = row * self.program.buffers[index].cols as usize + at.column as usize;
        &mut self.buffers[index][first..first + cols]
    }

    fn write(&mut self, at: At, row: usize, x: &[f32]) {
        self.at(at, row, x.len()).copy_from_slice(x);
    }

    fn read(&self, at: At, row: usize, cols: u32) -> Vec<f32> {
        let index = at.buffer.0 as usize;
        let first = row * self.program.buffers[index].cols as usize + at.column as usize;
        self.buffers[index][first..first + cols as usize].to_vec()
    }
}

impl Attention {
    /// The weighted sum of the values of these keys and values.
    fn of(&self, query: &[f32], pairs: &[(&[f32], &[f32])]) -> Vec<f32> {
        let score = |key: &[f32]| {
            let score = dot(query, key) * self.scale;
            self.cap.map_or(score, |cap| cap * (score / cap).tanh())
        };
        let scores: Vec<f64> = pairs.iter().map(|(key, _)| score(key).into()).collect();
        let most = scores.iter().copied().chain(self.sink.map(f64::from));
        let most = most.fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
        let sink = self.sink.map_or(0.0, |sink| (f64::from(sink) - most).exp());
        let all = weights.iter().sum::<f64>() + sink;
        let element = |index: usize| {
            let values = weights.iter().zip(pairs);
            let sum: f64 = values.map(|(w, (_, v))| w * f64::from(v[index])).sum();
            (sum / all) as f32
        };
        (0..query.len()).map(element).collect()
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let products = a.iter().zip(b);
    products
        .map(|(a, b)| f64::from(*a) * f64::from(*b))
        .sum::<f64>() as f32
}

/// A product of an activation.
fn activated(activation: Activation, gate: f32, up: f32) -> f32 {
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    match activation {
        Activation::Silu => gate * sigmoid(gate) * up,
        Activation::Gelu => {
            let u = 0.797_884_6 * (gate + 0.044_715 * gate * gate * gate);
            gate * sigmoid(2.0 * u) * up
        }
        Activation::SquaredRelu => gate.max(0.0).powi(2) * up,
        Activation::ClampedSwiglu => {
            let gate = gate.min(7.0);
            gate * sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1.0)
        }
        Activation::Sigmoid => sigmoid(gate) * up,
        Activation::Identity => gate * up,
    }
}
