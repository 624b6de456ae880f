// The beginning of every kernel: what changes from batch to batch, and functions of several kernels.
//
// Lines between `// each r below R` and `// end` stand for a block for each value of `r`. A processor's compiler takes long for
// each access to memory that it finds in the text, so for one they are the block of a loop; those after `// every` never are.
// Sums are written as `fma`, so that a compiler has nothing to contract: a sum has the same bits in each variant of a
// kernel.

struct Batch {
  rows: u32,       // of the set
  rows_at: u32,    // words of the record
  angles_a: u32,
  angles_b: u32,
  tables_at: u32,
  parts: u32,      // parts of attention that are computed apart; 0: none
  spans_at: u32,
  spans: u32,
  first_x: u32,    // of a part of a dispatch: its first workgroup
  first_y: u32,
  adapters_at: u32, // 0: no row has adapters
}

const NONE: u32 = 0xffffffffu;
const ROW_WORDS: u32 = 10u;
const ADAPTERS_MAX: u32 = 4u;
// Workgroups in the x dimension, before z counts on.
const BLOCKS_X: u32 = 32768u;

// The workgroup of a dispatch that may be cut into several.
fn of_dispatch(block: vec3<u32>) -> vec3<u32> {
  return block + vec3<u32>(p.batch.first_x, p.batch.first_y, 0u);
}

// A count that the compiler does not know: it would unroll the loop, and take seconds for one with barriers or many heads.
fn rolled(count: u32) -> u32 {
  return count * min(p.batch.rows, 1u);
}

// An f16 in the low half of a word, exact: subnormal numbers, too.
fn half(word: u32) -> f32 {
  let bits = word & 0x7fffu;
  let normal = bitcast<f32>((bits << 13u) + 0x38000000u);
  let tiny = f32(bits) * 5.9604644775390625e-8;
  let huge = bitcast<f32>((bits << 13u) + 0x70000000u);
  let value = select(select(normal, huge, bits >= 0x7c00u), tiny, bits < 0x0400u);
  return select(value, -value, (word & 0x8000u) != 0u);
}

fn is_finite(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

fn is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// tanh without an overflow on the way; NaN stays.
fn bounded_tanh(x: f32) -> f32 {
  return select(tanh(clamp(x, -10.0, 10.0)), x, is_nan(x));
}

fn sigmoid(x: f32) -> f32 {
  return select(1.0 / (1.0 + exp(min(-x, 80.0))), x, is_nan(x));
}
