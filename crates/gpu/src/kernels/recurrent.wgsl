// Recurrent layers: a convolution over time, and scans of states. A batch reads the states before its spans and writes others.

// section spans
// Of a span: the first row, the number of rows, the state before (or NONE), the number of states to write; then of each of
// these how many rows precede it, and its number.
const SPAN_WORDS: u32 = 12u;

// section convolve
struct P {
  batch: Batch,
  cols: u32,
  kept: u32,        // earlier inputs that an output depends on
  in_at: u32,
  in_row: u32,
  out_at: u32,
  out_row: u32,
  taps: u32,        // (kept + 1, cols), the last for the present
  bias: u32,
  silu: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> record: array<u32>;
@group(0) @binding(2) var<storage, read> input: array<f32>;
@group(0) @binding(3) var<storage, read> states: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let col = block.x * 256u + lid;
  if (col >= p.cols) {
    return;
  }
  let row = block.y;
  let span = p.batch.spans_at + record[p.batch.rows_at + row * ROW_WORDS + 7u] * SPAN_WORDS;
  let first = record[span];
  let before = record[span + 2u];
  var sum = 0.0;
  if (p.bias != NONE) {
    sum = vectors[p.bias + col];
  }
  for (var tap = 0u; tap <= p.kept; tap++) {
    let weight = vectors[p.taps + tap * p.cols + col];
    if (weight == 0.0) {
      continue;
    }
    let at = row - first + tap;
    var x = 0.0;
    if (at >= p.kept) {
      x = input[p.in_at + (first + at - p.kept) * p.in_row + col];
    } else if (before != NONE) {
      x = states[(before * p.kept + at) * p.cols + col];
    }
    sum = fma(weight, x, sum);
  }
  if (p.silu != 0u) {
    sum *= sigmoid(sum);
  }
  out[p.out_at + row * p.out_row + col] = sum;
}

// section keep
// Writes the convolution's part of the states: the last inputs.
struct P {
  batch: Batch,
  cols: u32,
  kept: u32,
  in_at: u32,
  in_row: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> record: array<u32>;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> states: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let col = block.x * 256u + lid;
  let span = p.batch.spans_at + block.y * SPAN_WORDS;
  if (col >= p.cols || block.z >= record[span + 3u]) {
    return;
  }
  let first = record[span];
  let before = record[span + 2u];
  let done = record[span + 4u + 2u * block.z];
  let state = record[span + 5u + 2u * block.z];
  for (var at = 0u; at < p.kept; at++) {
    let from_at = done + at;
    var x = 0.0;
    if (from_at >= p.kept) {
      x = input[p.in_at + (first + from_at - p.kept) * p.in_row + col];
    } else if (before != NONE) {
      x = states[(before * p.kept + from_at) * p.cols + col];
    }
    states[(state * p.kept + at) * p.cols + col] = x;
  }
}

// section gates
// Of each head the factor of the state, and the share of a correction (delta rule) or of a value.
struct P {
  batch: Batch,
  heads: u32,
  decay_at: u32,
  decay_row: u32,
  rate_at: u32,
  rate_row: u32,
  out_at: u32,
  out_row: u32,
  bias: u32,
  factor: u32,
  has_rate: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> decay: array<f32>;
@group(0) @binding(2) var<storage, read> rate: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

// ln(1 + e^x). Near 1, where `log` has few bits, by the series of the inverse hyperbolic tangent.
fn softplus(x: f32) -> f32 {
  let e = exp(min(x, 20.0));
  let z = e / (2.0 + e);
  let s = z * z;
  let series = 2.0 * z * fma(s, fma(s, fma(s, fma(s, 0.11111111, 0.14285715), 0.2), 0.33333334), 1.0);
  let value = select(log(1.0 + e), series, e < 0.5);
  return select(value, x, x > 20.0 || is_nan(x));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let head = block.x * 64u + lid;
  if (head >= p.heads) {
    return;
  }
  let row = block.y;
  let speed = softplus(decay[p.decay_at + row * p.decay_row + head] + vectors[p.bias + head]);
  let at = p.out_at + row * p.out_row + 2u * head;
  out[at] = exp(speed * vectors[p.factor + head]);
  if (p.has_rate != 0u) {
    out[at + 1u] = sigmoid(rate[p.rate_at + row * p.rate_row + head]);
  } else {
    out[at + 1u] = speed;
  }
}

// section scan
// The rows of a span one after the other, for 16 columns of one head's state: each thread has the entries of one column whose
// keys are 8 apart, in registers.
struct P {
  batch: Batch,
  mixed_at: u32,
  mixed_row: u32,
  gates_at: u32,
  gates_row: u32,
  out_at: u32,
  out_row: u32,
  key_heads: u32,
  value_heads: u32,
  grouped: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> record: array<u32>;
@group(0) @binding(1) var<storage, read> mixed: array<f32>;
@group(0) @binding(2) var<storage, read> gates: array<f32>;
@group(0) @binding(3) var<storage, read_write> states: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

const COLUMNS: u32 = 16u;
const GROUPS: u32 = 8u;
const THREADS: u32 = 128u;
const EACH: u32 = (KEY_DIM + 7u) / 8u;

var<workgroup> keys: array<f32, EACH * 8u>;
var<workgroup> queries: array<f32, EACH * 8u>;
var<workgroup> known_parts: array<f32, THREADS>;
var<workgroup> out_parts: array<f32, THREADS>;

// The first entry of a thread's column in a state.
fn entry(state: u32, head: u32, column: u32) -> u32 {
  return (state * p.value_heads + head) * (KEY_DIM * VALUE_DIM) + column;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let blocks = VALUE_DIM / COLUMNS;
  let head = block.x / blocks;
  let within = lid % COLUMNS;
  let column = block.x % blocks * COLUMNS + within;
  let group = lid / COLUMNS;
  let span = p.batch.spans_at + block.y * SPAN_WORDS;
  let first = record[span];
  let rows = record[span + 1u];
  let before = record[span + 2u];
  let writes = record[span + 3u];
  let key_head = select(head % p.key_heads, head / (p.value_heads / p.key_heads), p.grouped != 0u);
  let all_keys = p.key_heads * KEY_DIM;
  let all_values = p.value_heads * VALUE_DIM;
  // The delta rule has queries, keys, values in a row; the other values, keys, queries.
  let query_at = select(all_values + all_keys, 0u, DELTA) + key_head * KEY_DIM;
  let key_at = select(all_values, all_keys, DELTA) + key_head * KEY_DIM;
  let value_at = select(0u, 2u * all_keys, DELTA) + head * VALUE_DIM + column;
  var state: array<f32, EACH>;
  for (var i = 0u; i < EACH; i++) {
    let key = i * GROUPS + group;
    state[i] = 0.0;
    if (before != NONE && key < KEY_DIM) {
      state[i] = states[entry(before, head, column) + key * VALUE_DIM];
    }
  }
  var write = 0u;
  for (var done = 0u; done < rows; done++) {
    let row = first + done;
    let at = p.mixed_at + row * p.mixed_row;
    workgroupBarrier();
    for (var i = lid; i < EACH * 8u; i += THREADS) {
      keys[i] = 0.0;
      queries[i] = 0.0;
      if (i < KEY_DIM) {
        keys[i] = mixed[at + key_at + i];
        queries[i] = mixed[at + query_at + i];
      }
    }
    workgroupBarrier();
    let gate = p.gates_at + row * p.gates_row + 2u * head;
    let decay = gates[gate];
    let rate = gates[gate + 1u];
    let value = mixed[at + value_at];
    var part = 0.0;
    for (var i = 0u; i < EACH; i++) {
      state[i] *= decay;
      part = fma(state[i], keys[i * GROUPS + group], part);
    }
    known_parts[lid] = part;
    workgroupBarrier();
    var change = value * rate;
    if (DELTA) {
      var known = 0.0;
      for (var i = 0u; i < GROUPS; i++) {
        known += known_parts[i * COLUMNS + within];
      }
      change = (value - known) * rate;
    }
    part = 0.0;
    for (var i = 0u; i < EACH; i++) {
      let at_key = i * GROUPS + group;
      state[i] = fma(keys[at_key], change, state[i]);
      part = fma(state[i], queries[at_key], part);
    }
    out_parts[lid] = part;
    workgroupBarrier();
    if (group == 0u) {
      var sum = 0.0;
      for (var i = 0u; i < GROUPS; i++) {
        sum += out_parts[i * COLUMNS + within];
      }
      out[p.out_at + row * p.out_row + head * VALUE_DIM + column] = sum;
    }
    if (write < writes) {
      if (record[span + 4u + 2u * write] == done + 1u) {
        let to = entry(record[span + 5u + 2u * write], head, column);
        for (var i = 0u; i < EACH; i++) {
          let key = i * GROUPS + group;
          if (key < KEY_DIM) {
            states[to + key * VALUE_DIM] = state[i];
          }
        }
        write += 1u;
      }
    }
  }
}
