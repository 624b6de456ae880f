//! The definition of what recurrent layers compute.

use super::Twin;
use crate::operation::{Operation, ScanHeads};
use crate::record::{SPAN_WORDS, Span};

impl Twin<'_> {
    /// The spans of the record.
    fn spans(&self) -> Vec<Span> {
        let [first, count] = self.record.span_place().map(|word| word as usize);
        let words = self.record.words()[first..].chunks_exact(SPAN_WORDS);
        let span = |words: &[u32]| {
            let mut span = Span {
                first: words[0],
                rows: words[1],
                before: (words[2] != u32::MAX).then_some(words[2]),
                ..Span::default()
            };
            for (index, write) in span.writes[..words[3] as usize].iter_mut().enumerate() {
                *write = Some((words[4 + 2 * index], words[5 + 2 * index]));
            }
            span
        };
        words.take(count).map(span).collect()
    }

    pub(super) fn convolve(&mut self, operation: &Operation) {
        let (
            Operation::Convolve {
                input,
                layer,
                taps,
                bias,
                silu,
                out,
            },
            Some(shape),
        ) = (*operation, self.program.states)
        else {
            return;
        };
        let [kept, cols] = shape.convolution(layer).map(|size| size as usize);
        for span in self.spans() {
            let state = |states: &[f32], state: u32| {
                states[state as usize * kept * cols..][..kept * cols].to_vec()
            };
            let states = &self.states[layer as usize][0];
            let mut inputs = match span.before {
                Some(before) => state(states, before),
                None => vec![0.0; kept * cols],
            };
            for row in span.first..span.first + span.rows {
                inputs.extend(self.read(input, row as usize, cols as u32));
            }
            for row in 0..span.rows as usize {
                let element = |col: usize| {
                    let products = (0..=kept).map(|tap| {
                        let weight = self.vector(taps, tap * cols + col);
                        weight * inputs[(row + tap) * cols + col]
                    });
                    let bias = bias.map_or(0.0, |bias| self.vector(bias, col));
                    let sum = products.sum::<f32>() + bias;
                    if silu {
                        sum / (1.0 + (-sum).exp())
                    } else {
                        sum
                    }
                };
                let mixed: Vec<f32> = (0..cols).map(element).collect();
                self.at(out, span.first as usize + row, cols)
                    .copy_from_slice(&mixed);
            }
            for (done, state) in span.writes.into_iter().flatten() {
                let last = &inputs[done as usize * cols..][..kept * cols];
                let to = &mut self.states[layer as usize][0][state as usize * kept * cols..];
                to[..kept * cols].copy_from_slice(last);
            }
        }
    }

    pub(super) fn scan_gates(&mut self, row: usize, operation: &Operation) {
        let Operation::ScanGates {
            decay,
            rate,
            heads,
            bias,
            factor,
            out,
        } = *operation
        else {
            return;
        };
        let decays = self.read(decay, row, heads);
        let rates = rate.map(|rate| self.read(rate, row, heads));
        let mut gates = Vec::new();
        for (head, decay) in decays.iter().enumerate() {
            let x = f64::from(decay + self.vector(bias, head));
            let speed = if x > 20.0 { x } else { x.exp().ln_1p() };
            let rate = rates.as_ref().map(|rates| f64::from(rates[head]));
            let rate = rate.map_or(speed, |rate| 1.0 / (1.0 + (-rate).exp()));
            gates.push((speed * f64::from(self.vector(factor, head))).exp() as f32);
            gates.push(rate as f32);
        }
        self.write(out, row, &gates);
    }

    pub(super) fn scan(&mut self, operation: &Operation) {
        let scan = self.program.states.and_then(|states| states.scan);
        let Some(heads) = scan else { return };
        for span in self.spans() {
            for head in 0..heads.value_heads as usize {
                self.scan_head(operation, &heads, &span, head);
            }
        }
    }

    /// One head of one span.
    fn scan_head(&mut self, operation: &Operation, heads: &ScanHeads, span: &Span, head: usize) {
        let Operation::Scan {
            mixed,
            gates,
            layer,
            out,
        } = *operation
        else {
            return;
        };
        let (key_dim, value_dim) = (heads.key_dim as usize, heads.value_dim as usize);
        let keys = heads.key_heads as usize * key_dim;
        let values = heads.value_heads as usize * value_dim;
        let len = key_dim * value_dim;
        let place = |state: u32| state as usize * heads.value_heads as usize * len + head * len;
        let mut state = match span.before {
            Some(before) => self.states[layer as usize][1][place(before)..][..len].to_vec(),
            None => vec![0.0; len],
        };
        let key_head = if heads.grouped {
            head / (heads.value_heads / heads.key_heads) as usize
        } else {
            head % heads.key_heads as usize
        };
        let [query, key, value] = if heads.delta {
            [0, keys, 2 * keys]
        } else {
            [values + keys, values, 0]
        };
        for done in 1..=span.rows {
            let row = (span.first + done) as usize - 1;
            let all = self.read(mixed, row, (2 * keys + values) as u32);
            let gate = self.read(gates, row, 2 * heads.value_heads);
            let vectors = [
                &all[query + key_head * key_dim..][..key_dim],
                &all[key + key_head * key_dim..][..key_dim],
                &all[value + head * value_dim..][..value_dim],
            ];
            let gate = [gate[2 * head], gate[2 * head + 1]];
            let result = step(&mut state, vectors, gate, heads.delta);
            let to = &mut self.at(out, row, values)[head * value_dim..][..value_dim];
            to.copy_from_slice(&result);
            let written = span.writes.into_iter().flatten();
            for (_, to) in written.filter(|(rows, _)| *rows == done) {
                let states = &mut self.states[layer as usize][1];
                states[place(to)..][..len].copy_from_slice(&state);
            }
        }
    }

    pub(super) fn add_parts(&mut self, row: usize, operation: &Operation) {
        let Operation::AddParts {
            x,
            parts,
            len,
            values,
            factors,
        } = *operation
        else {
            return;
        };
        let mut sums = self.read(x, row, parts * len);
        let values = self.read(values, row, parts * len);
        for (col, (sum, value)) in sums.iter_mut().zip(values).enumerate() {
            *sum += self.vector(factors, col / len as usize) * value;
        }
        self.write(x, row, &sums);
    }

    pub(super) fn share(&mut self, row: usize, operation: &Operation) {
        let Operation::Share {
            x,
            cols,
            input,
            input_cols,
            weights,
        } = *operation
        else {
            return;
        };
        let inputs = self.read(input, row, input_cols);
        let products = inputs
            .iter()
            .enumerate()
            .map(|(index, input)| f64::from(*input) * f64::from(self.vector(weights, index)));
        let factor = (1.0 / (1.0 + (-products.sum::<f64>()).exp())) as f32;
        let row = self.at(x, row, cols as usize);
        row.iter_mut().for_each(|x| *x *= factor);
    }
}

/// One row of one head; `state` is `(key_dim, value_dim)`.
fn step(
    state: &mut [f32],
    [query, key, value]: [&[f32]; 3],
    [decay, rate]: [f32; 2],
    delta: bool,
) -> Vec<f32> {
    let columns = value.len();
    state.iter_mut().for_each(|entry| *entry *= decay);
    let says = |state: &[f32], of: &[f32], column: usize| {
        let rows = state.chunks_exact(columns).zip(of);
        let products = rows.map(|(row, of)| f64::from(row[column]) * f64::from(*of));
        products.sum::<f64>() as f32
    };
    let mut result = Vec::new();
    for (column, value) in value.iter().enumerate() {
        let known = if delta { says(state, key, column) } else { 0.0 };
        let change = (value - known) * rate;
        for (row, key) in state.chunks_exact_mut(columns).zip(key) {
            row[column] += key * change;
        }
        result.push(says(state, query, column));
    }
    result
}
