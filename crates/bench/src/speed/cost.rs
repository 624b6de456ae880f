//! What a test must read and compute, whoever runs it: the useful bytes and operations, counted
//! from the file. A rate over these can be held against the machine's limits.

use super::test::Test;
use kernels::KvKind;
use model::PAGE_TOKENS;
use model::config::Config;
use model::gguf::Gguf;

/// The vocabulary's embedding; also the output matrix if the file has no other.
const EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";

/// What a model costs.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    config: Config,
    /// Of keys and values, all layers.
    page_bytes: u64,
    /// Bytes of all matrices that a step reads once, as they are in the file.
    pub(super) weight_bytes: u64,
    /// Weights of the layers' matrices: multiplied with each row.
    layer_weights: u64,
    /// Weights of the output matrix: multiplied with each row whose logits are wanted.
    output_weights: u64,
    /// Whether the matrices are stored as whole numbers and scales.
    pub(super) quantized: bool,
}

/// Bytes read and operations done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    pub(super) bytes: f64,
    pub(super) ops: f64,
}

impl Cost {
    pub(super) fn of(gguf: &Gguf, config: Config, kv: KvKind) -> Self {
        let separate = gguf.tensor(OUTPUT).is_some();
        let projection = if separate { OUTPUT } else { EMBEDDING };
        let page = config.kv_shape(1, PAGE_TOKENS, kv).bytes();
        let mut cost = Self {
            config,
            page_bytes: page.unwrap_or(usize::MAX) as u64,
            weight_bytes: 0,
            layer_weights: 0,
            output_weights: 0,
            quantized: false,
        };
        let mut quantized_bytes = 0;
        for tensor in gguf.tensors().filter(|tensor| tensor.rows() > 1) {
            let weights = tensor.elements() as u64;
            match tensor.name {
                name if name == projection => cost.output_weights += weights,
                EMBEDDING => continue,
                _ => cost.layer_weights += weights,
            }
            let bytes = tensor.bytes.len() as u64;
            cost.weight_bytes += bytes;
            if tensor
                .format()
                .is_ok_and(|format| format.block_weights() > 1)
            {
                quantized_bytes += bytes;
            }
        }
        cost.quantized = quantized_bytes * 2 > cost.weight_bytes;
        cost
    }

    pub(super) fn context_trained(&self) -> usize {
        self.config.context_trained
    }

    /// Bytes of one page of keys and values.
    pub(super) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// The work of a test: weights read once per step, keys and values once per step and sequence.
    pub(super) fn work(&self, test: Test) -> Work {
        match test {
            Test::Prompt { tokens, context } => {
                let seen = self.seen(context, tokens);
                Work {
                    bytes: (self.weight_bytes + self.kv_bytes(self.seen(context + tokens - 1, 1)))
                        as f64,
                    ops: self.ops(tokens as u64, 1, seen),
                }
            }
            Test::Decode {
                tokens,
                batch,
                context,
            } => {
                let (steps, batch) = (tokens as u64, batch as u64);
                let seen = self.seen(context, tokens) * batch;
                Work {
                    bytes: (self.weight_bytes * steps + self.kv_bytes(seen)) as f64,
                    ops: self.ops(steps * batch, steps * batch, seen),
                }
            }
        }
    }

    fn ops(&self, rows: u64, logit_rows: u64, seen: u64) -> f64 {
        let matmul = 2 * (self.layer_weights * rows + self.output_weights * logit_rows);
        // A product with each key, and one with each value.
        let attention = 4 * self.config.query_cols() as u64 * seen;
        (matmul + attention) as f64
    }

    fn kv_bytes(&self, seen: u64) -> u64 {
        seen * self.page_bytes / (PAGE_TOKENS * self.config.layers) as u64
    }

    /// Positions seen by `rows` rows from position `first` on, summed over rows and layers.
    fn seen(&self, first: usize, rows: usize) -> u64 {
        let of_row = |row: usize| {
            let all = first + row + 1;
            let windows = self.config.windows.iter();
            windows
                .map(|window| window.map_or(all, |window| all.min(window)) as u64)
                .sum::<u64>()
        };
        (0..rows).map(of_row).sum()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use model::synth::{Mix, SynthSpec};

    fn cost(preset: &str, mix: &str) -> (Gguf, Cost) {
        let mut spec = SynthSpec::preset(preset).unwrap();
        spec.mix = Mix::from_name(mix).unwrap();
        let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
        let config = Config::from_gguf(&gguf, None).unwrap();
        let cost = Cost::of(&gguf, config, KvKind::F16);
        (gguf, cost)
    }

    pub(in crate::speed) fn tiny() -> Cost {
        cost("tiny-llama", "F32").1
    }

    /// tiny-llama: two layers of 64, 4 heads of 16 over 2, 128 wide inside, 300 ids, untied.
    const LAYER: u64 = 64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128;

    #[test]
    fn weights_are_counted_where_they_are_read() {
        let tiny = tiny();
        assert_eq!(tiny.layer_weights, 2 * LAYER);
        assert_eq!(tiny.output_weights, 300 * 64);
        assert_eq!(tiny.weight_bytes, 4 * (2 * LAYER + 300 * 64));
        assert!(!tiny.quantized);
        let (_, tied) = cost("tiny-qwen3", "Q8_0");
        assert_eq!(tied.output_weights, 300 * 64);
        assert!(tied.quantized);
    }

    #[test]
    fn steps_read_weights_once_and_rows_multiply_each() {
        let tiny = tiny();
        let weights = (tiny.weight_bytes, 2 * LAYER, 300 * 64);
        // Keys and values of two heads of 16, two bytes each, in two layers.
        let position = 2 * 2 * 32 * 2u64;
        let decode = tiny.work(Test::Decode {
            tokens: 2,
            batch: 3,
            context: 10,
        });
        let seen = 3 * (11 + 12);
        assert_eq!(decode.bytes, (2 * weights.0 + seen * position) as f64);
        assert_eq!(
            decode.ops,
            (6 * 2 * (weights.1 + weights.2) + 4 * 64 * 2 * seen) as f64
        );
        let prompt = tiny.work(Test::Prompt {
            tokens: 4,
            context: 0,
        });
        assert_eq!(prompt.bytes, (weights.0 + 4 * position) as f64);
        let seen = 1 + 2 + 3 + 4;
        assert_eq!(
            prompt.ops,
            (2 * (4 * weights.1 + weights.2) + 4 * 64 * 2 * seen) as f64
        );
    }

    #[test]
    fn windows_bound_what_is_seen() {
        let (_, gemma) = cost("tiny-gemma2", "F32");
        // Two layers of four see sixteen positions.
        assert_eq!(gemma.seen(99, 1), 2 * 16 + 2 * 100);
    }
}
