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
  var mean = 0.0;
  if (p.centered != 0u) {
    var sum = 0.0;
    for (var i = lid; i < p.cols; i += THREADS) {
      sum += input[from_at + i];
    }
    mean = total(sum, lid) / f32(p.cols);
  }
  var squares = 0.0;
  for (var i = lid; i < p.cols; i += THREADS) {
    let x = input[from_at + i] - mean;
    squares = fma(x, x, squares);
  }
  let factor = 1.0 / sqrt(total(squares, lid) / f32(p.cols) + p.eps);
  for (var i = lid; i < p.cols; i += THREADS) {
    out[to_at + i] = normalized(norm, input[from_at + i], vec2<f32>(mean, factor), i);
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
  var mean = 0.0;
  if (p.centered != 0u) {
    var sum = 0.0;
    for (var i = lid; i < p.len; i += THREADS) {
      sum += x[at + i];
    }
    mean = total(sum, lid) / f32(p.len);
  }
  var squares = 0.0;
  for (var i = lid; i < p.len; i += THREADS) {
    let value = x[at + i] - mean;
    squares = fma(value, value, squares);
  }
  let factor = 1.0 / sqrt(total(squares, lid) / f32(p.len) + p.eps);
  for (var i = lid; i < p.len; i += THREADS) {
    x[at + i] = normalized(norm, x[at + i], vec2<f32>(mean, factor), weights_at + i);
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

fn mean_and_factor_of_update(at: u32, lid: u32) -> vec2<f32> {
  var mean = 0.0;
  if (p.post_centered != 0u) {
    var sum = 0.0;
    for (var i = lid; i < p.cols; i += THREADS) {
      sum += change[at + i];
    }
    mean = total(sum, lid) / f32(p.cols);
  }
  var squares = 0.0;
  for (var i = lid; i < p.cols; i += THREADS) {
    let x = change[at + i] - mean;
    squares = fma(x, x, squares);
  }
  return vec2<f32>(mean, 1.0 / sqrt(total(squares, lid) / f32(p.cols) + p.post_eps));
}

fn mean_and_factor_of_stream(at: u32, lid: u32) -> vec2<f32> {
  var mean = 0.0;
  if (p.centered != 0u) {
    var sum = 0.0;
    for (var i = lid; i < p.cols; i += THREADS) {
      sum += stream[at + i];
    }
    mean = total(sum, lid) / f32(p.cols);
  }
  var squares = 0.0;
  for (var i = lid; i < p.cols; i += THREADS) {
    let x = stream[at + i] - mean;
    squares = fma(x, x, squares);
  }
  return vec2<f32>(mean, 1.0 / sqrt(total(squares, lid) / f32(p.cols) + p.eps));
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let post = Norm(p.post_weight, p.post_bias, p.post_centered, p.post_eps);
  let next = Norm(p.weight, p.bias, p.centered, p.eps);
  let update_at = p.update_at + block.y * p.update_row;
  let stream_at = p.stream_at + block.y * p.stream_row;
  let normed_at = p.normed_at + block.y * p.normed_row;
  var of_update = vec2<f32>(0.0, 1.0);
  if ((p.has & 1u) != 0u) {
    of_update = mean_and_factor_of_update(update_at, lid);
  }
  for (var i = lid; i < p.cols; i += THREADS) {
    var x = change[update_at + i];
    if ((p.has & 1u) != 0u) {
      x = normalized(post, x, of_update, i);
    }
    stream[stream_at + i] = (stream[stream_at + i] + x * p.factor) * p.stream_factor;
  }
  if ((p.has & 2u) == 0u) {
    return;
  }
  // Every thread reads what it wrote itself.
  let of_stream = mean_and_factor_of_stream(stream_at, lid);
  for (var i = lid; i < p.cols; i += THREADS) {
    normed[normed_at + i] = normalized(next, stream[stream_at + i], of_stream, i);
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
  var mean = 0.0;
  if (p.centered != 0u) {
    var sum = 0.0;
    for (var i = lid; i < p.cols; i += THREADS) {
      sum += stream[stream_at + i];
    }
    mean = total(sum, lid) / f32(p.cols);
  }
  var squares = 0.0;
  for (var i = lid; i < p.cols; i += THREADS) {
    let x = stream[stream_at + i] - mean;
    squares = fma(x, x, squares);
  }
  let factor = 1.0 / sqrt(total(squares, lid) / f32(p.cols) + p.eps);
  for (var i = lid; i < p.cols; i += THREADS) {
    normed[normed_at + i] = normalized(next, stream[stream_at + i], vec2<f32>(mean, factor), i);
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
