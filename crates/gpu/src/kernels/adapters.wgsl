// Low-rank changes of a projection by the adapters of each row: pairs of one rank, in f32.

// section pairs
@group(0) @binding(0) var<storage, read> weights: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> vectors: array<f32>;
@group(0) @binding(2) var<storage, read> record: array<u32>;

// The number, in this part, of the pair of an adapter of a row; NONE: it has none here.
fn pair_of(row: u32, adapter: u32) -> u32 {
  let number = record[p.batch.adapters_at + (row * ADAPTERS_MAX + adapter) * 2u];
  if (number == NONE) {
    return NONE;
  }
  let pair = vectors[p.numbers + 2u * number];
  if (pair < 0.0 || u32(pair) - p.first >= p.pairs) {
    return NONE;
  }
  return u32(pair) - p.first;
}

// section down
// A workgroup computes 4 elements of one adapter's product, each by 32 lanes.
struct P {
  batch: Batch,
  rank: u32,
  width: u32,       // vectors of four in a row of the matrix
  in_at: u32,       // vectors of four
  in_row: u32,
  low_at: u32,
  low_row: u32,
  low_stride: u32,  // between two adapters
  numbers: u32,
  first: u32,       // the first pair of the part, and their number
  pairs: u32,
}
var<immediate> p: P;

@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> low: array<f32>;

const LANES: u32 = 32u;
var<workgroup> partial: array<f32, 4u * 33u>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let pair = pair_of(block.y, block.z);
  if (pair == NONE) {
    return;
  }
  let lane = lid % LANES;
  let group = lid / LANES;
  let element = block.x * 4u + group;
  let weights_at = (pair * p.rank + min(element, p.rank - 1u)) * p.width;
  let in_at = p.in_at + block.y * p.in_row;
  var v = vec4<f32>(0.0);
  for (var i = lane; i < p.width; i += LANES) {
    v = fma(weights[weights_at + i], x[in_at + i], v);
  }
  partial[group * 33u + lane] = (v.x + v.y) + (v.z + v.w);
  workgroupBarrier();
  if (lane != 0u || element >= p.rank) {
    return;
  }
  var sum = 0.0;
  for (var i = 0u; i < rolled(LANES); i++) {
    sum += partial[group * 33u + i];
  }
  let at = p.batch.adapters_at + (block.y * ADAPTERS_MAX + block.z) * 2u;
  let factor = bitcast<f32>(record[at + 1u]) * vectors[p.numbers + 2u * record[at] + 1u];
  low[p.low_at + block.y * p.low_row + block.z * p.low_stride + element] = sum * factor;
}

// section up
// A thread computes an output.
struct P {
  batch: Batch,
  outputs: u32,
  width: u32,       // vectors of four in a row of the matrix
  low_at: u32,      // vectors of four
  low_row: u32,
  low_stride: u32,
  out_at: u32,
  out_row: u32,
  numbers: u32,
  first: u32,
  pairs: u32,
}
var<immediate> p: P;

@group(0) @binding(3) var<storage, read> low: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let output = block.x * 128u + lid;
  if (output >= p.outputs) {
    return;
  }
  let at = p.out_at + block.y * p.out_row + output;
  for (var adapter = 0u; adapter < rolled(ADAPTERS_MAX); adapter++) {
    let pair = pair_of(block.y, adapter);
    if (pair != NONE) {
      let weights_at = (pair * p.outputs + output) * p.width;
      let low_at = p.low_at + block.y * p.low_row + adapter * p.low_stride;
      var v = vec4<f32>(0.0);
      for (var i = 0u; i < p.width; i++) {
        v = fma(weights[weights_at + i], low[low_at + i], v);
      }
      out[at] += (v.x + v.y) + (v.z + v.w);
    }
  }
}
