// Arithmetic on each element of rows.

// section activate
// `out = activation(gate) * up`. A factor in the buffer of `out` is read there.
struct P {
  batch: Batch,
  cols: u32,
  gate_at: u32,
  gate_row: u32,
  up_at: u32,
  up_row: u32,
  out_at: u32,
  out_row: u32,
  kind: u32,
  has: u32,         // 1: another factor; 2: the gate is at `out`; 4: the other factor is at `out`
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> gate: array<f32>;
@group(0) @binding(1) var<storage, read> up: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

const SILU: u32 = 0u;
const GELU: u32 = 1u;
const SQUARED_RELU: u32 = 2u;
const CLAMPED_SWIGLU: u32 = 3u;
const SIGMOID: u32 = 4u;

fn activated(x: f32) -> f32 {
  switch (p.kind) {
    case SILU: { return x * sigmoid(x); }
    case GELU: {
      let u = 0.7978845608028654 * fma(0.044715 * x * x, x, x);
      return x * sigmoid(2.0 * u);
    }
    case SQUARED_RELU: {
      let y = select(x, 0.0, x < 0.0);
      return y * y;
    }
    case CLAMPED_SWIGLU: {
      let y = select(x, 7.0, x > 7.0);
      return y * sigmoid(1.702 * y);
    }
    case SIGMOID: { return sigmoid(x); }
    default: { return x; }
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let col = block.x * 256u + lid;
  if (col >= p.cols) {
    return;
  }
  let at = p.out_at + block.y * p.out_row + col;
  var x = 0.0;
  if ((p.has & 2u) != 0u) {
    x = out[at];
  } else {
    x = gate[p.gate_at + block.y * p.gate_row + col];
  }
  var y = 1.0;
  if ((p.has & 4u) != 0u) {
    y = out[at];
  } else if ((p.has & 1u) != 0u) {
    y = up[p.up_at + block.y * p.up_row + col];
  }
  if (p.kind == CLAMPED_SWIGLU) {
    y = select(clamp(y, -7.0, 7.0), y, is_nan(y)) + 1.0;
  }
  out[at] = activated(x) * y;
}

// section finish
// Bias, factor and cap of logits. What is not finite becomes NaN, which the host looks for.
struct P {
  batch: Batch,
  cols: u32,
  at: u32,
  row: u32,
  bias: u32,
  factor: f32,
  cap: f32,         // 0: none
  nan: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read_write> logits: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let col = block.x * 256u + lid;
  if (col >= p.cols) {
    return;
  }
  let at = p.at + block.y * p.row + col;
  var x = logits[at];
  if (p.bias != NONE) {
    x += vectors[p.bias + col];
  }
  if (!is_finite(x)) {
    logits[at] = bitcast<f32>(p.nan);
    return;
  }
  x *= p.factor;
  if (p.cap != 0.0) {
    x = p.cap * bounded_tanh(x / p.cap);
  }
  logits[at] = x;
}

// section gather
// `out[i] = input[source of row i]`.
struct P {
  batch: Batch,
  cols: u32,
  in_at: u32,
  in_row: u32,
  out_at: u32,
  out_row: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> record: array<u32>;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let col = block.x * 256u + lid;
  if (col >= p.cols) {
    return;
  }
  let row = record[p.batch.rows_at + block.y * ROW_WORDS + 5u];
  out[p.out_at + block.y * p.out_row + col] = input[p.in_at + row * p.in_row + col];
}

// section copy_parts
// `out = input` in parts of rows.
struct P {
  batch: Batch,
  cols: u32,        // of all parts together
  len: u32,         // elements of a part
  in_at: u32,
  in_row: u32,
  in_stride: u32,
  out_at: u32,
  out_row: u32,
  out_stride: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let col = block.x * 256u + lid;
  if (col >= p.cols) {
    return;
  }
  let part = col / p.len;
  let within = col % p.len;
  let value = input[p.in_at + block.y * p.in_row + part * p.in_stride + within];
  out[p.out_at + block.y * p.out_row + part * p.out_stride + within] = value;
}

// section read
// Reads a buffer, 16 bytes by each thread at a time; what is read decides whether anything is written.
struct P {
  batch: Batch,
  vectors: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> input: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) block: vec3<u32>,
  @builtin(num_workgroups) blocks: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {
  var all = vec4<u32>(0u);
  for (var at = block.x * 256u + lid; at < p.vectors; at += blocks.x * 256u) {
    all |= input[at];
  }
  if ((all.x | all.y | all.z | all.w) == 1u) {
    out[0] = 1u;
  }
}

// section add_parts
// `x = x + factor of the part * values`.
struct P {
  batch: Batch,
  cols: u32,
  len: u32,
  x_at: u32,
  x_row: u32,
  values_at: u32,
  values_row: u32,
  factors: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let col = block.x * 256u + lid;
  if (col >= p.cols) {
    return;
  }
  let at = p.x_at + block.y * p.x_row + col;
  let value = values[p.values_at + block.y * p.values_row + col];
  x[at] = fma(vectors[p.factors + col / p.len], value, x[at]);
}
