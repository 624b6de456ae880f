//! Bytes and operations of a test, counted from the model file and independent of the implementation. A speed
//! over these counts can be compared with the machine's limits.

use super::test_plan::SpeedTest;
use cpu::PAGE_TOKENS;
use kernels::{KvKind, KvShape};
use weights::config::{Config, LayerShape};
use weights::gguf::Gguf;

/// Names of tables of which a token reads one row.
const TABLES: [&str; 2] = [EMBEDDING, "per_layer_token_embd.weight"];
/// Name of the token embedding, which is also the output matrix if the file has no other.
const EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";

/// Sizes of a model that determine the work of a test.
#[derive(Clone, Debug)]
pub(super) struct ModelCost {
    config: Config,
    /// Bytes of the key and value of a position that each layer reads.
    position_bytes: Vec<u64>,
    /// Bytes of a KV page, all layers.
    page_bytes: u64,
    /// Bytes of a sequence's state, which a step reads and writes; 0 without recurrent layers.
    state_bytes: u64,
    /// Bytes of all matrices that every step reads once, as stored in the file.
    pub(super) weight_bytes: u64,
    /// Weights of the layers' matrices, multiplied with each token.
    layer_weights: u64,
    /// Bytes of all experts, of which a step reads those that its tokens chose.
    expert_bytes: u64,
    /// Weights of all experts, of which each token is multiplied with those that it chose.
    expert_weights: u64,
    /// Weights of the output matrix, multiplied with each token whose logits are needed.
    output_weights: u64,
    /// Whether most matrices are quantized.
    pub(super) quantized: bool,
}

/// Bytes read and operations of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TestWork {
    pub(super) bytes: f64,
    pub(super) ops: f64,
}

impl ModelCost {
    pub(super) fn of(gguf: &Gguf, config: Config, kv: KvKind) -> Self {
        let separate = gguf.tensor(OUTPUT).is_some();
        let projection = if separate { OUTPUT } else { EMBEDDING };
        let page = config.kv_bytes(1, PAGE_TOKENS, kv);
        let position = |shape: &LayerShape| {
            if !shape.attends() {
                return 0;
            }
            let page = KvShape {
                layers: 1,
                pages: 1,
                page_tokens: PAGE_TOKENS,
                kv_heads: shape.kv_heads,
                head_dim: shape.head_dim,
                kind: kv,
            };
            (page.bytes().unwrap_or(usize::MAX) / PAGE_TOKENS) as u64
        };
        let mut cost = Self {
            position_bytes: config.shapes.iter().map(position).collect(),
            state_bytes: config.state_bytes().unwrap_or(0) as u64,
            config,
            page_bytes: page.unwrap_or(usize::MAX) as u64,
            weight_bytes: 0,
            layer_weights: 0,
            expert_bytes: 0,
            expert_weights: 0,
            output_weights: 0,
            quantized: false,
        };
        let mut quantized_bytes = 0;
        // The biases of experts have two dimensions, and are next to nothing.
        let matrices = |name: &str| name.ends_with(".weight");
        for tensor in gguf
            .tensors()
            .filter(|tensor| tensor.rows() > 1 && matrices(tensor.name))
        {
            let weights = tensor.elements() as u64;
            let bytes = tensor.bytes.len() as u64;
            // Projections of latents have three dimensions, too: one matrix for each head.
            let is_expert = tensor.dims.len() == 3 && !tensor.name.contains(".attn_");
            match tensor.name {
                name if name == projection => cost.output_weights += weights,
                name if TABLES.contains(&name) => continue,
                _ if is_expert => cost.expert_weights += weights,
                _ => cost.layer_weights += weights,
            }
            if is_expert {
                cost.expert_bytes += bytes;
            } else {
                cost.weight_bytes += bytes;
            }
            if tensor
                .format()
                .is_ok_and(|format| format.block_weights() > 1)
            {
                quantized_bytes += bytes;
            }
        }
        cost.quantized = quantized_bytes * 2 > cost.weight_bytes + cost.expert_bytes;
        cost
    }

    pub(super) fn architecture(&self) -> &'static str {
        self.config.architecture.name()
    }

    pub(super) fn context_trained(&self) -> usize {
        self.config.context_trained
    }

    /// Bytes of a KV page.
    pub(super) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Work of a test: weights are read once per step, keys and values once per step and sequence.
    pub(super) fn test_work(&self, test: SpeedTest) -> TestWork {
        match test {
            SpeedTest::Prompt { tokens, context } => {
                let products = self.attention_products(context, tokens);
                TestWork {
                    bytes: (self.step_bytes(tokens)
                        + self.kv_bytes(context + tokens - 1, 1)
                        + 2 * self.state_bytes) as f64,
                    ops: self.operations(tokens as u64, 1, products),
                }
            }
            SpeedTest::Decode {
                tokens,
                batch,
                context,
                ..
            } => {
                let (steps, batch) = (tokens as u64, batch as u64);
                let products = self.attention_products(context, tokens) * batch;
                let kv = self.kv_bytes(context, tokens) * batch;
                let states = 2 * self.state_bytes * steps * batch;
                TestWork {
                    bytes: (self.step_bytes(batch as usize) * steps + kv + states) as f64,
                    ops: self.operations(steps * batch, steps * batch, products),
                }
            }
        }
    }

    /// Bytes of weights that a step of `rows` tokens reads, if each token chooses among all experts at random.
    fn step_bytes(&self, rows: usize) -> u64 {
        let unused = 1.0 - self.used_share();
        let read = 1.0 - unused.powi(i32::try_from(rows).unwrap_or(i32::MAX));
        self.weight_bytes + (self.expert_bytes as f64 * read).round() as u64
    }

    /// The part of the experts that a token uses.
    fn used_share(&self) -> f64 {
        let experts = self.config.experts;
        experts.map_or(0.0, |experts| experts.used as f64 / experts.count as f64)
    }

    fn operations(&self, rows: u64, logit_rows: u64, attention_products: u64) -> f64 {
        let chosen = (self.expert_weights as f64 * self.used_share()).round() as u64;
        let layers = self.layer_weights + chosen;
        let matmul = 2 * (layers * rows + self.output_weights * logit_rows);
        (matmul + 2 * attention_products) as f64
    }

    /// Multiplications of queries with keys, and of weights with values.
    fn attention_products(&self, first: usize, rows: usize) -> u64 {
        let heads = self.config.heads;
        self.sum_visible(first, rows, |layer| {
            let shape = &self.config.shapes[layer];
            if shape.attends() {
                2 * (heads * shape.head_dim) as u64
            } else {
                0
            }
        })
    }

    /// Bytes of the keys and values visible to `rows` tokens from position `first` on.
    fn kv_bytes(&self, first: usize, rows: usize) -> u64 {
        self.sum_visible(first, rows, |layer| self.position_bytes[layer])
    }

    /// The sum of `each` layer's number over the positions visible to `rows` tokens from position `first` on.
    fn sum_visible(&self, first: usize, rows: usize, each: impl Fn(usize) -> u64) -> u64 {
        let of_row = |row: usize| {
            let all = first + row + 1;
            let windows = self.config.windows.iter().enumerate();
            let of_layer = |(layer, window): (usize, &Option<usize>)| {
                let visible = window.map_or(all, |window| all.min(window));
                visible as u64 * each(layer)
            };
            windows.map(of_layer).sum::<u64>()
        };
        (0..rows).map(of_row).sum()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use synth::{Mix, SynthSpec};

    fn cost(preset: &str, mix: &str) -> (Gguf, ModelCost) {
        let mut spec = SynthSpec::preset(preset).unwrap();
        spec.mix = Mix::from_name(mix).unwrap();
        let gguf = Gguf::from_bytes(spec.to_bytes().unwrap()).unwrap();
        let config = Config::from_gguf(&gguf, None).unwrap();
        let cost = ModelCost::of(&gguf, config, KvKind::F16);
        (gguf, cost)
    }

    pub(in crate::speed) fn tiny() -> ModelCost {
        cost("tiny-llama", "F32").1
    }

    /// Weights of a layer of tiny-llama: two layers of 64, 4 heads of 16 over 2, 128 wide inside, 300 ids,
    /// untied.
    const LAYER: u64 = 64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128;

    #[test]
    fn weights_are_counted_once_per_use() {
        let tiny = tiny();
        assert_eq!(tiny.layer_weights, 2 * LAYER);
        assert_eq!(tiny.output_weights, 300 * 64);
        assert_eq!(tiny.weight_bytes, 4 * (2 * LAYER + 300 * 64));
        assert!(!tiny.quantized);
        let (_, gpt_oss) = cost("tiny-gpt-oss", "F32");
        // Four heads of 32 over 2, a router of 8 experts; experts of 64 in four layers.
        let attention = 64 * 128 * 2 + 2 * 64 * 64 + 8 * 64;
        assert_eq!(gpt_oss.layer_weights, 4 * attention);
        assert_eq!(gpt_oss.expert_weights, 4 * 8 * 3 * 64 * 64);
        let (_, latent) = cost("tiny-deepseek2", "F32");
        // Queries in two parts, a latent of 64 beside 16, and four heads: key and value projections of 32, and the output.
        let attention = 64 * (64 + 192 + 80) + 4 * 64 * (32 + 32) + 64 * 128;
        // One layer without experts, and two with one for all rows and a router of 8.
        let feed_forward = 3 * 3 * 64 * 128 + 2 * 8 * 64;
        assert_eq!(latent.layer_weights, 3 * attention + feed_forward);
        assert_eq!(latent.expert_weights, 2 * 8 * 3 * 64 * 64);
        let (_, tied) = cost("tiny-qwen3", "Q8_0");
        assert_eq!(tied.output_weights, 300 * 64);
        assert!(tied.quantized);
    }

    #[test]
    fn weights_are_read_per_step_and_multiplied_per_token() {
        let tiny = tiny();
        let weights = (tiny.weight_bytes, 2 * LAYER, 300 * 64);
        // Keys and values of two heads of 16, two bytes each, in two layers.
        let position = 2 * 2 * 32 * 2u64;
        let decode = tiny.test_work(SpeedTest::Decode {
            tokens: 2,
            batch: 3,
            context: 10,
            ahead: false,
        });
        let visible = 3 * (11 + 12);
        assert_eq!(decode.bytes, (2 * weights.0 + visible * position) as f64);
        assert_eq!(
            decode.ops,
            (6 * 2 * (weights.1 + weights.2) + 4 * 64 * 2 * visible) as f64
        );
        let prompt = tiny.test_work(SpeedTest::Prompt {
            tokens: 4,
            context: 0,
        });
        assert_eq!(prompt.bytes, (weights.0 + 4 * position) as f64);
        let visible = 1 + 2 + 3 + 4;
        assert_eq!(
            prompt.ops,
            (2 * (4 * weights.1 + weights.2) + 4 * 64 * 2 * visible) as f64
        );
    }

    #[test]
    fn experts_are_counted_as_far_as_they_are_chosen() {
        let (_, moe) = cost("tiny-qwen3moe", "F32");
        // Three of eight experts of three matrices of 64 times 64, in two layers.
        let expert = 2 * 3 * 64 * 64;
        assert_eq!(
            (moe.expert_weights, moe.expert_bytes),
            (8 * expert, 32 * expert)
        );
        assert_eq!(moe.step_bytes(1), moe.weight_bytes + 3 * 4 * expert);
        let two = moe.weight_bytes as f64 + 32.0 * expert as f64 * (1.0 - 25.0 / 64.0);
        assert_eq!(moe.step_bytes(2) as f64, two.round());
        let wanted = 2 * (moe.layer_weights + 3 * expert + moe.output_weights);
        assert_eq!(moe.operations(1, 1, 0), wanted as f64);
    }

    #[test]
    fn states_are_read_and_written_once_per_step_and_sequence() {
        let (_, hybrid) = cost("tiny-qwen35", "F32");
        // Three of four layers: three inputs of 128 columns, and four heads of 16 times 16.
        let state = 3 * 4 * (3 * 128 + 4 * 16 * 16);
        assert_eq!(hybrid.state_bytes, state);
        let position = 2 * 2 * 32 * 2;
        assert_eq!(hybrid.kv_bytes(99, 1), 100 * position);
        let decode = hybrid.test_work(SpeedTest::Decode {
            tokens: 1,
            batch: 3,
            context: 0,
            ahead: true,
        });
        let wanted = hybrid.weight_bytes + 3 * (position + 2 * state);
        assert_eq!(decode.bytes, wanted as f64);
    }

    #[test]
    fn windows_limit_visible_positions() {
        let (_, gemma) = cost("tiny-gemma2", "F32");
        // Two of four layers have a window of sixteen positions.
        assert_eq!(gemma.sum_visible(99, 1, |_| 1), 2 * 16 + 2 * 100);
    }

    #[test]
    fn layers_are_counted_with_their_own_heads() {
        let (file, gemma) = cost("tiny-gemma4", "F32");
        let table = file.tensor(TABLES[1]).unwrap();
        assert!(gemma.weight_bytes < table.bytes.len() as u64 + 4 * gemma.layer_weights);
        // Windowed layers have two KV heads of 16, the others one of 32; two bytes an element.
        let (windowed, whole) = (2 * 2 * 16 * 2, 2 * 32 * 2);
        let count = |windowed: bool| {
            let windows = gemma.config.windows.iter();
            windows.filter(|w| w.is_some() == windowed).count() as u64
        };
        let wanted = count(true) * 16 * windowed + count(false) * 100 * whole;
        assert_eq!(gemma.kv_bytes(99, 1), wanted);
    }
}
