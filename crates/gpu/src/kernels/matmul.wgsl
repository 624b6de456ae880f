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

// section few
// Up to C rows of x at a time. A workgroup computes 4 R outputs, each by 32 lanes: lane `l` sums the
// units l, l + 32, ..; then the lanes are added in order. So an output's bits depend on its row alone, whatever R and C are.
const LANES: u32 = 32u;
const VALUES: u32 = 4u * R * C;
// One float more than the lanes, so that threads which add lanes meet in no memory bank.
const PITCH: u32 = 33u;
var<workgroup> partial: array<f32, 4u * R * C * 33u>;

fn product(w: Unit, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, sum: f32) -> f32 {
  let v = fma(w.d, d, fma(w.c, c, fma(w.b, b, w.a * a)));
  let scaled = fma(w.scale, (v.x + v.y) + (v.z + v.w), sum);
  if (!HAS_SHIFT) {
    return scaled;
  }
  let s = (a + b) + (c + d);
  return fma(w.shift, (s.x + s.y) + (s.z + s.w), scaled);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) own_block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let block = of_dispatch(own_block);
  prepare(lid);
  let lane = lid % LANES;
  let group = lid / LANES;
  let first_output = (block.x + block.z * BLOCKS_X) * (4u * R);
  let first_row = block.y * C;
  let w_$r = min(first_output + group * R + $ru, p.outputs - 1u);
  let x_$c = p.x_at + min(first_row + $cu, p.batch.rows - 1u) * p.x_row;
  var sum_$r_$c = 0.0;
  for (var u = lane; u < p.units; u += LANES) {
    let a_$c = x[x_$c + u * 4u];
    let b_$c = x[x_$c + u * 4u + 1u];
    let c_$c = x[x_$c + u * 4u + 2u];
    let d_$c = x[x_$c + u * 4u + 3u];
    let unit_$r = unit(w_$r, u);
    sum_$r_$c = product(unit_$r, a_$c, b_$c, c_$c, d_$c, sum_$r_$c);
  }
  partial[((group * R + $ru) * C + $cu) * PITCH + lane] = sum_$r_$c;
  workgroupBarrier();
  if (lid >= VALUES) {
    return;
  }
  let output = first_output + lid / C;
  let row = first_row + lid % C;
  var sums = vec4<f32>(0.0);
  for (var i = 0u; i < rolled(LANES); i += 4u) {
    let at = lid * PITCH + i;
    sums += vec4<f32>(partial[at], partial[at + 1u], partial[at + 2u], partial[at + 3u]);
  }
  write_output(row, output, (sums.x + sums.y) + (sums.z + sums.w));
}
