// Products `out = matrix * x + bias`: what all kernels of them share, and the one of few rows.

// section product
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

// Writes an output of a row with its bias, or adds it to what is there.
fn write_output(row: u32, output: u32, sum: f32) {
  if (row >= p.batch.rows || output >= p.outputs) {
    return;
  }
  var value = sum;
  if (p.bias != NONE) {
    value += vectors[p.bias + output];
  }
  let at = p.out_at + row * p.out_row + output;
  if (p.add != 0u) {
    value += out[at];
  }
  out[at] = value;
}

// section lanes
const LANES: u32 = 32u;
// One float more than the lanes, so that threads which add lanes meet in no memory bank.
const PITCH: u32 = 33u;
var<workgroup> partial: array<f32, VALUES * PITCH>;

// The sum of the lanes of a value, in order.
fn sum_of_lanes(value: u32) -> f32 {
  var sums = vec4<f32>(0.0);
  for (var i = 0u; i < rolled(LANES); i += 4u) {
    let at = value * PITCH + i;
    sums += vec4<f32>(partial[at], partial[at + 1u], partial[at + 2u], partial[at + 3u]);
  }
  return (sums.x + sums.y) + (sums.z + sums.w);
}

// section few
// Up to C rows of x at a time. A workgroup computes 4 R outputs, each by 32 lanes: lane `l` sums the
// units l, l + 32, ..; then the lanes are added in order. So an output's bits depend on its row alone, whatever R and C are.
const VALUES: u32 = 4u * R * C;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) own_block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let block = of_dispatch(own_block);
  prepare(lid);
  let lane = lid % LANES;
  let group = lid / LANES;
  let first_output = (block.x + block.z * BLOCKS_X) * (4u * R);
  // The last z has as many workgroups as the others.
  if (first_output >= p.outputs) {
    return;
  }
  let first_row = block.y * C;
  var units: array<Unit, R>;
  var sums: array<f32, R * C>;
  for (var u = lane; u < p.units; u += LANES) {
    // each r below R
    units[r] = unit(min(first_output + group * R + r, p.outputs - 1u), u);
    // end
    // each c below C
    let x_at = p.x_at + min(first_row + c, p.batch.rows - 1u) * p.x_row + u * 4u;
    var products: array<vec4<f32>, R>;
    var inputs = vec4<f32>(0.0);
    // each q below 4
    let input = x[x_at + q];
    inputs += input;
    // each r below R
    products[r] = fma(quad_of(units[r], q), input, products[r]);
    // end
    // end
    // each r below R
    sums[r * C + c] = with_product(units[r], products[r], inputs, sums[r * C + c]);
    // end
    // end
  }
  // each r below R
  // each c below C
  partial[((group * R + r) * C + c) * PITCH + lane] = sums[r * C + c];
  // end
  // end
  workgroupBarrier();
  if (lid >= VALUES) {
    return;
  }
  let output = first_output + lid / C;
  let row = first_row + lid % C;
  write_output(row, output, sum_of_lanes(lid));
}
