// `out = matrix * x + bias` for many rows of x: a workgroup computes 64 outputs of 32 rows, 32 inputs at a time in workgroup
// memory; each thread four outputs of four rows. The inputs are summed in order, which is another order than `matmul` has.

struct P {
  batch: Batch,
  outputs: u32,
  units: u32,
  low_row: u32,     // elements of the planes in a row
  high_row: u32,
  scale_row: u32,
  x_at: u32,        // vectors of four
  x_row: u32,
  out_at: u32,
  out_row: u32,
  bias: u32,        // first element, or NONE
  add: u32,
}
var<immediate> p: P;

@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> vectors: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

const TILE_OUTPUTS: u32 = 64u;
const TILE_ROWS: u32 = 32u;
const TILE_UNITS: u32 = 2u;
const TILE_INPUTS: u32 = 32u;

// By input, then output or row.
var<workgroup> weight_tile: array<vec4<f32>, TILE_INPUTS * TILE_OUTPUTS / 4u>;
var<workgroup> x_tile: array<vec4<f32>, TILE_INPUTS * TILE_ROWS / 4u>;

fn store_weights(input: u32, output: u32, w: vec4<f32>) {
  for (var i = 0u; i < 4u; i++) {
    weight_tile[(input + i) * (TILE_OUTPUTS / 4u) + output / 4u][output % 4u] = w[i];
  }
}

fn store_x(input: u32, row: u32, v: vec4<f32>) {
  for (var i = 0u; i < 4u; i++) {
    x_tile[(input + i) * (TILE_ROWS / 4u) + row / 4u][row % 4u] = v[i];
  }
}

fn load_weights(first: u32, first_unit: u32, lid: u32) {
  let output = lid % TILE_OUTPUTS;
  let within = lid / TILE_OUTPUTS;
  let input = within * 16u;
  if (first_unit + within < p.units) {
    let w = unit(min(first + output, p.outputs - 1u), first_unit + within);
    let scale = vec4<f32>(w.scale);
    let shift = vec4<f32>(w.shift);
    store_weights(input, output, fma(w.a, scale, shift));
    store_weights(input + 4u, output, fma(w.b, scale, shift));
    store_weights(input + 8u, output, fma(w.c, scale, shift));
    store_weights(input + 12u, output, fma(w.d, scale, shift));
  } else {
    for (var i = 0u; i < 16u; i += 4u) {
      store_weights(input + i, output, vec4<f32>(0.0));
    }
  }
}

fn load_x(first: u32, first_unit: u32, lid: u32) {
  let row = lid % TILE_ROWS;
  let within = lid / TILE_ROWS;
  if (within >= TILE_UNITS) {
    return;
  }
  let at = p.x_at + min(first + row, p.batch.rows - 1u) * p.x_row + (first_unit + within) * 4u;
  for (var i = 0u; i < 4u; i++) {
    var v = vec4<f32>(0.0);
    if (first_unit + within < p.units) {
      v = x[at + i];
    }
    store_x(within * 16u + i * 4u, row, v);
  }
}

fn write_row(row: u32, first_output: u32, sums: vec4<f32>) {
  if (row >= p.batch.rows) {
    return;
  }
  for (var i = 0u; i < 4u; i++) {
    let output = first_output + i;
    if (output < p.outputs) {
      var value = sums[i];
      if (p.bias != NONE) {
        value += vectors[p.bias + output];
      }
      let at = p.out_at + row * p.out_row + output;
      if (p.add != 0u) {
        value += out[at];
      }
      out[at] = value;
    }
  }
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  prepare(lid);
  let first_output = (block.x + block.z * BLOCKS_X) * TILE_OUTPUTS;
  let first_row = block.y * TILE_ROWS;
  let outputs = lid % 16u;
  let rows = lid / 16u;
  var sums_a = vec4<f32>(0.0);
  var sums_b = vec4<f32>(0.0);
  var sums_c = vec4<f32>(0.0);
  var sums_d = vec4<f32>(0.0);
  for (var first_unit = 0u; first_unit < p.units; first_unit += TILE_UNITS) {
    load_weights(first_output, first_unit, lid);
    load_x(first_row, first_unit, lid);
    workgroupBarrier();
    for (var input = 0u; input < TILE_INPUTS; input++) {
      let w = weight_tile[input * (TILE_OUTPUTS / 4u) + outputs];
      let v = x_tile[input * (TILE_ROWS / 4u) + rows];
      sums_a = fma(vec4<f32>(v.x), w, sums_a);
      sums_b = fma(vec4<f32>(v.y), w, sums_b);
      sums_c = fma(vec4<f32>(v.z), w, sums_c);
      sums_d = fma(vec4<f32>(v.w), w, sums_d);
    }
    workgroupBarrier();
  }
  let row = first_row + rows * 4u;
  let output = first_output + outputs * 4u;
  write_row(row, output, sums_a);
  write_row(row + 1u, output, sums_b);
  write_row(row + 2u, output, sums_c);
  write_row(row + 3u, output, sums_d);
}
