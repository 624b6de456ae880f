// Norms of rows. Every thread sums its elements in order, then the threads are added as a tree: the order depends on the
// row's length alone.

// section sums
var<workgroup> sums: array<f32, THREADS>;

// The sum over all threads, for all threads.
fn total(value: f32, lid: u32) -> f32 {
  workgroupBarrier();
  sums[lid] = value;
  workgroupBarrier();
  for (var distance = rolled(THREADS / 2u); distance > 0u; distance >>= 1u) {
    if (lid < distance) {
      sums[lid] += sums[lid + distance];
    }
    workgroupBarrier();
  }
  return sums[0];
}

// The sums of a norm: of values, if it is centered, in turn 0, then of squares in turn 1. A loop, since compilers copy `total`
// to each of its calls.
fn with_value(turn: u32, sum: f32, x: f32) -> f32 {
  return select(fma(x, x, sum), sum + x, turn == 0u);
}

// Mean and factor of a row, after the sum of a turn was divided by its elements.
fn after_turn(turn: u32, before: vec2<f32>, average: f32, eps: f32) -> vec2<f32> {
  return select(vec2<f32>(before.x, 1.0 / sqrt(average + eps)), vec2<f32>(average, 0.0), turn == 0u);
}

fn first_turn(centered: u32) -> u32 {
  return select(1u, 0u, centered != 0u);
}

struct Norm {
  weight: u32,      // first element, or NONE
  bias: u32,
  centered: u32,
  eps: f32,
}

fn normalized(norm: Norm, value: f32, mean_and_factor: vec2<f32>, at: u32) -> f32 {
  var x = (value - mean_and_factor.x) * mean_and_factor.y;
  if (norm.weight != NONE) {
    x *= vectors[norm.weight + at];
  }
  if (norm.bias != NONE) {
    x += vectors[norm.bias + at];
  }
  return x;
}

// section norm
struct P {
  batch: Batch,
  cols: u32,
  in_at: u32,
  in_row: u32,
  out_at: u32,
  out_row: u32,
  weight: u32,
  bias: u32,
  centered: u32,
  eps: f32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let norm = Norm(p.weight, p.bias, p.centered, p.eps);
  let from_at = p.in_at + block.y * p.in_row;
  let to_at = p.out_at + block.y * p.out_row;
  var mean_and_factor = vec2<f32>(0.0);
  for (var turn = first_turn(p.centered); turn < rolled(2u); turn += 1u) {
    var sum = 0.0;
    for (var i = lid; i < p.cols; i += THREADS) {
      sum = with_value(turn, sum, input[from_at + i] - mean_and_factor.x);
    }
    mean_and_factor = after_turn(turn, mean_and_factor, total(sum, lid) / f32(p.cols), p.eps);
  }
  for (var i = lid; i < p.cols; i += THREADS) {
    out[to_at + i] = normalized(norm, input[from_at + i], mean_and_factor, i);
  }
}

// section parts
struct P {
  batch: Batch,
  len: u32,
  x_at: u32,
  x_row: u32,
  own_weights: u32,
  weight: u32,
  bias: u32,
  centered: u32,
  eps: f32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let norm = Norm(p.weight, p.bias, p.centered, p.eps);
  let at = p.x_at + block.y * p.x_row + block.x * p.len;
  let weights_at = select(0u, block.x * p.len, p.own_weights != 0u);
  var mean_and_factor = vec2<f32>(0.0);
  for (var turn = first_turn(p.centered); turn < rolled(2u); turn += 1u) {
    var sum = 0.0;
    for (var i = lid; i < p.len; i += THREADS) {
      sum = with_value(turn, sum, x[at + i] - mean_and_factor.x);
    }
    mean_and_factor = after_turn(turn, mean_and_factor, total(sum, lid) / f32(p.len), p.eps);
  }
  for (var i = lid; i < p.len; i += THREADS) {
    x[at + i] = normalized(norm, x[at + i], mean_and_factor, weights_at + i);
  }
}

// section add
// `stream = (stream + factor * post(update)) * stream_factor`, `normed = next(stream)`.
struct P {
  batch: Batch,
  cols: u32,
  update_at: u32,
  update_row: u32,
  stream_at: u32,
  stream_row: u32,
  normed_at: u32,
  normed_row: u32,
  has: u32,         // 1: a norm of the update, 2: a next norm
  factor: f32,
  stream_factor: f32,
  post_weight: u32,
  post_bias: u32,
  post_centered: u32,
  post_eps: f32,
  weight: u32,
  bias: u32,
  centered: u32,
  eps: f32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> change: array<f32>;
@group(0) @binding(2) var<storage, read_write> stream: array<f32>;
@group(0) @binding(3) var<storage, read_write> normed: array<f32>;

// Mean and factor of the stream, or of the update.
fn mean_and_factor_of(stream_is_next: bool, norm: Norm, at: u32, lid: u32) -> vec2<f32> {
  var mean_and_factor = vec2<f32>(0.0);
  for (var turn = first_turn(norm.centered); turn < rolled(2u); turn += 1u) {
    var sum = 0.0;
    for (var i = lid; i < p.cols; i += THREADS) {
      var x = 0.0;
      if (stream_is_next) {
        x = stream[at + i];
      } else {
        x = change[at + i];
      }
      sum = with_value(turn, sum, x - mean_and_factor.x);
    }
    mean_and_factor = after_turn(turn, mean_and_factor, total(sum, lid) / f32(p.cols), norm.eps);
  }
  return mean_and_factor;
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let update_at = p.update_at + block.y * p.update_row;
  let stream_at = p.stream_at + block.y * p.stream_row;
  let normed_at = p.normed_at + block.y * p.normed_row;
  // The update, then the next norm, for which every thread reads what it wrote itself.
  for (var step = 0u; step < rolled(1u + ((p.has >> 1u) & 1u)); step += 1u) {
    let is_next = step == 1u;
    var norm = Norm(p.post_weight, p.post_bias, p.post_centered, p.post_eps);
    if (is_next) {
      norm = Norm(p.weight, p.bias, p.centered, p.eps);
    }
    let at = select(update_at, stream_at, is_next);
    let has_norm = is_next || (p.has & 1u) != 0u;
    var of_row = vec2<f32>(0.0, 1.0);
    if (has_norm) {
      of_row = mean_and_factor_of(is_next, norm, at, lid);
    }
    for (var i = lid; i < p.cols; i += THREADS) {
      let before = stream[stream_at + i];
      var x = before;
      if (!is_next) {
        x = change[update_at + i];
      }
      if (has_norm) {
        x = normalized(norm, x, of_row, i);
      }
      if (is_next) {
        normed[normed_at + i] = x;
      } else {
        stream[stream_at + i] = (before + x * p.factor) * p.stream_factor;
      }
    }
  }
}

// section vectors
// Rows that are vectors: `stream = vector`, or added to it, and `normed = next(stream)`.
struct P {
  batch: Batch,
  cols: u32,
  vectors_at: u32,
  vectors_row: u32,
  stream_at: u32,
  stream_row: u32,
  normed_at: u32,
  normed_row: u32,
  has: u32,         // 1: the vector is added, 2: a next norm
  weight: u32,
  bias: u32,
  centered: u32,
  eps: f32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> record: array<u32>;
@group(0) @binding(2) var<storage, read> rows: array<f32>;
@group(0) @binding(3) var<storage, read_write> stream: array<f32>;
@group(0) @binding(4) var<storage, read_write> normed: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let vector = record[p.batch.rows_at + block.y * ROW_WORDS + 9u];
  if (vector == NONE) {
    return;
  }
  let next = Norm(p.weight, p.bias, p.centered, p.eps);
  let from_at = p.vectors_at + vector * p.vectors_row;
  let stream_at = p.stream_at + block.y * p.stream_row;
  let normed_at = p.normed_at + block.y * p.normed_row;
  for (var i = lid; i < p.cols; i += THREADS) {
    var x = rows[from_at + i];
    if ((p.has & 1u) != 0u) {
      x += stream[stream_at + i];
    }
    stream[stream_at + i] = x;
  }
  if ((p.has & 2u) == 0u) {
    return;
  }
  // Every thread reads what it wrote itself.
  var mean_and_factor = vec2<f32>(0.0);
  for (var turn = first_turn(p.centered); turn < rolled(2u); turn += 1u) {
    var sum = 0.0;
    for (var i = lid; i < p.cols; i += THREADS) {
      sum = with_value(turn, sum, stream[stream_at + i] - mean_and_factor.x);
    }
    mean_and_factor = after_turn(turn, mean_and_factor, total(sum, lid) / f32(p.cols), p.eps);
  }
  for (var i = lid; i < p.cols; i += THREADS) {
    normed[normed_at + i] = normalized(next, stream[stream_at + i], mean_and_factor, i);
  }
}

// section share
// `x = x * sigmoid(input . weights)`.
struct P {
  batch: Batch,
  cols: u32,
  x_at: u32,
  x_row: u32,
  input_cols: u32,
  in_at: u32,
  in_row: u32,
  weights: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let from_at = p.in_at + block.y * p.in_row;
  let at = p.x_at + block.y * p.x_row;
  var sum = 0.0;
  for (var i = lid; i < p.input_cols; i += THREADS) {
    sum = fma(vectors[p.weights + i], input[from_at + i], sum);
  }
  let factor = sigmoid(total(sum, lid));
  for (var i = lid; i < p.cols; i += THREADS) {
    x[at + i] *= factor;
  }
}
