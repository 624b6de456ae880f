// Products of many rows: a workgroup computes 64 outputs of 32 H rows, 32 inputs at a time in workgroup memory; each thread four
// outputs of four rows in each 32. The inputs are summed in order, whatever H is, which is another order than that of products
// of few rows.

// section common
const TILE_THREADS: u32 = 128u;
const TILE_OUTPUTS: u32 = 64u;
const TILE_ROWS: u32 = 32u * H;
const TILE_UNITS: u32 = 2u;
// Vectors of four inputs of a tile, and between two outputs or rows in workgroup memory: one more, so that threads which read
// those of outputs or rows next to each other meet in no memory bank.
const QUADS: u32 = 8u;
const PITCH: u32 = 9u;

var<workgroup> weight_tile: array<vec4<f32>, TILE_OUTPUTS * PITCH>;
var<workgroup> x_tile: array<vec4<f32>, TILE_ROWS * PITCH>;
// Where the inputs of each row begin.
var<workgroup> begins: array<u32, TILE_ROWS>;

// `first` and `last` are rows of the matrix.
fn load_weights(first: u32, last: u32, first_unit: u32, lid: u32) {
  let output = lid % TILE_OUTPUTS;
  let within = lid / TILE_OUTPUTS;
  let is_inside = first_unit + within < p.units;
  let w = unit(min(first + output, last), min(first_unit + within, p.units - 1u));
  let scale = vec4<f32>(w.scale);
  let shift = vec4<f32>(w.shift);
  let none = vec4<f32>(0.0);
  let at = output * PITCH + within * 4u;
  weight_tile[at] = select(none, fma(w.a, scale, shift), is_inside);
  weight_tile[at + 1u] = select(none, fma(w.b, scale, shift), is_inside);
  weight_tile[at + 2u] = select(none, fma(w.c, scale, shift), is_inside);
  weight_tile[at + 3u] = select(none, fma(w.d, scale, shift), is_inside);
}

// Vectors of four inputs, eight of a row by threads next to each other.
fn load_x(first_unit: u32, lid: u32) {
  let quad = lid % QUADS;
  // each i below LOADS
  let row = lid / QUADS + i * (TILE_THREADS / QUADS);
  let is_inside = first_unit + quad / 4u < p.units;
  let at = begins[row] + select(0u, first_unit * 4u + quad, is_inside);
  x_tile[row * PITCH + quad] = select(vec4<f32>(0.0), x[at], is_inside);
  // end
}

// Sums of a thread: four outputs, 16 apart, of each of its rows, 8 apart.
struct Sums {
  rows: array<vec4<f32>, SUMS>,
}

// The sums of a thread, whose first output and first row these are. `begins` were stored before.
fn tile_sums(first: u32, last: u32, output: u32, row: u32, lid: u32) -> Sums {
  var sums: Sums;
  workgroupBarrier();
  for (var first_unit = 0u; first_unit < p.units; first_unit += TILE_UNITS) {
    load_weights(first, last, first_unit, lid);
    load_x(first_unit, lid);
    workgroupBarrier();
    for (var quad = 0u; quad < rolled(QUADS); quad++) {
      var w: array<vec4<f32>, 4>;
      // every o below 4
      w[o] = weight_tile[(16u * o + output) * PITCH + quad];
      // end
      // every i below SUMS
      let v = x_tile[(8u * i + row) * PITCH + quad];
      var sum = sums.rows[i];
      sum = fma(vec4<f32>(v.x), vec4<f32>(w[0].x, w[1].x, w[2].x, w[3].x), sum);
      sum = fma(vec4<f32>(v.y), vec4<f32>(w[0].y, w[1].y, w[2].y, w[3].y), sum);
      sum = fma(vec4<f32>(v.z), vec4<f32>(w[0].z, w[1].z, w[2].z, w[3].z), sum);
      sums.rows[i] = fma(vec4<f32>(v.w), vec4<f32>(w[0].w, w[1].w, w[2].w, w[3].w), sum);
      // end
    }
    workgroupBarrier();
  }
  return sums;
}

// Stores the sums of 32 rows in place of the weights.
fn store_sums(sums: ptr<function, Sums>, part: u32, output: u32, row: u32) {
  // every o below 4
  weight_tile[(8u * o + row) * 16u + output] = (*sums).rows[4u * part + o];
  // end
}

fn stored_sum(row: u32, output: u32) -> f32 {
  return weight_tile[row * 16u + output % 16u][output / 16u];
}

// section matmul
@compute @workgroup_size(TILE_THREADS)
fn main(@builtin(workgroup_id) own_block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let block = of_dispatch(own_block);
  prepare(lid);
  let first_output = (block.x + block.z * BLOCKS_X) * TILE_OUTPUTS;
  let first_row = block.y * TILE_ROWS;
  if (lid < TILE_ROWS) {
    begins[lid] = p.x_at + min(first_row + lid, p.batch.rows - 1u) * p.x_row;
  }
  var sums = tile_sums(first_output, p.outputs - 1u, lid % 16u, lid / 16u, lid);
  let output = lid % TILE_OUTPUTS;
  // each h below H
  store_sums(&sums, h, lid % 16u, lid / 16u);
  workgroupBarrier();
  for (var row = lid / TILE_OUTPUTS; row < rolled(32u); row += TILE_THREADS / TILE_OUTPUTS) {
    write_output(first_row + 32u * h + row, first_output + output, stored_sum(row, output));
  }
  workgroupBarrier();
  // end
}

// section sort
// The choices of all rows, sorted by expert, and cut into tiles. Where a choice is among those of its expert does not matter:
// no result depends on the other rows of its tile.
struct P {
  batch: Batch,
  count: u32,       // experts
  used: u32,
  choices_at: u32,
  choices_row: u32,
  sorted_at: u32,   // words of `order` before the sorted choices
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> choices: array<f32>;
// The number of tiles; from word 4 on of each tile its expert, its first place and the number of its rows, in four words; then
// the choices, as row * used + number.
@group(0) @binding(1) var<storage, read_write> order: array<u32>;

const THREADS: u32 = 256u;
const EXPERTS_MAX: u32 = 1024u;
const EACH: u32 = EXPERTS_MAX / THREADS;
const SORT_ROWS: u32 = 32u;

var<workgroup> counts: array<atomic<u32>, EXPERTS_MAX>;
// Of each thread's experts: choices, and tiles; then those of all threads up to it.
var<workgroup> totals: array<vec2<u32>, THREADS>;

fn expert_of(choice: u32) -> u32 {
  let at = p.choices_at + choice / p.used * p.choices_row + 2u * (choice % p.used);
  return min(u32(choices[at]), p.count - 1u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(local_invocation_index) lid: u32) {
  for (var i = 0u; i < EACH; i++) {
    atomicStore(&counts[lid * EACH + i], 0u);
  }
  workgroupBarrier();
  let all = p.batch.rows * p.used;
  for (var choice = lid; choice < all; choice += THREADS) {
    atomicAdd(&counts[expert_of(choice)], 1u);
  }
  workgroupBarrier();
  var own = vec2<u32>(0u);
  for (var i = 0u; i < EACH; i++) {
    let rows = atomicLoad(&counts[lid * EACH + i]);
    own += vec2<u32>(rows, (rows + SORT_ROWS - 1u) / SORT_ROWS);
  }
  totals[lid] = own;
  workgroupBarrier();
  for (var distance = 1u; distance < THREADS; distance <<= 1u) {
    var before = vec2<u32>(0u);
    if (lid >= distance) {
      before = totals[lid - distance];
    }
    workgroupBarrier();
    totals[lid] += before;
    workgroupBarrier();
  }
  var place = totals[lid] - own;
  for (var i = 0u; i < EACH; i++) {
    let expert = lid * EACH + i;
    let rows = atomicLoad(&counts[expert]);
    for (var done = 0u; done < rows; done += SORT_ROWS) {
      let tile = 4u + 4u * place.y;
      order[tile] = expert;
      order[tile + 1u] = place.x + done;
      order[tile + 2u] = min(rows - done, SORT_ROWS);
      place.y += 1u;
    }
    atomicStore(&counts[expert], place.x);
    place.x += rows;
  }
  if (lid == THREADS - 1u) {
    order[0] = totals[lid].y;
  }
  workgroupBarrier();
  for (var choice = lid; choice < all; choice += THREADS) {
    let to = atomicAdd(&counts[expert_of(choice)], 1u);
    order[p.sorted_at + to] = choice;
  }
}

// section experts
// The products of a tile of choices with their expert; H is 1.
struct P {
  batch: Batch,
  outputs: u32,     // of one expert
  units: u32,
  low_row: u32,
  high_row: u32,
  scale_row: u32,
  x_at: u32,        // vectors of four
  x_row: u32,
  x_stride: u32,    // between the inputs of two choices; 0: they have one input
  out_at: u32,
  out_row: u32,
  out_stride: u32,
  used: u32,
  sorted_at: u32,
  first: u32,       // the first expert of the part, and their number
  experts: u32,
  bias: u32,        // of the first expert, or NONE
}
var<immediate> p: P;

@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> vectors: array<f32>;
@group(0) @binding(5) var<storage, read> order: array<u32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

fn write_choice(place: u32, bias: u32, output: u32, sum: f32) {
  let choice = order[p.sorted_at + place];
  let at = p.out_at + choice / p.used * p.out_row + choice % p.used * p.out_stride;
  var value = sum;
  if (bias != NONE) {
    value += vectors[bias + output];
  }
  out[at + output] = value;
}

@compute @workgroup_size(TILE_THREADS)
fn main(@builtin(workgroup_id) own_block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let block = of_dispatch(own_block);
  prepare(lid);
  if (block.y >= order[0]) {
    return;
  }
  let tile = 4u + 4u * block.y;
  let expert = order[tile] - p.first;
  if (expert >= p.experts) {
    return;
  }
  let first = order[tile + 1u];
  let rows = order[tile + 2u];
  let first_output = block.x * TILE_OUTPUTS;
  if (lid < TILE_ROWS) {
    let choice = order[p.sorted_at + first + min(lid, rows - 1u)];
    begins[lid] = p.x_at + choice / p.used * p.x_row + choice % p.used * p.x_stride;
  }
  let weights = expert * p.outputs;
  var sums = tile_sums(weights + first_output, weights + p.outputs - 1u, lid % 16u, lid / 16u, lid);
  let bias = select(p.bias + expert * p.outputs, NONE, p.bias == NONE);
  store_sums(&sums, 0u, lid % 16u, lid / 16u);
  workgroupBarrier();
  let output = lid % TILE_OUTPUTS;
  if (first_output + output >= p.outputs) {
    return;
  }
  for (var row = lid / TILE_OUTPUTS; row < min(rows, TILE_ROWS); row += TILE_THREADS / TILE_OUTPUTS) {
    write_choice(first + row, bias, first_output + output, stored_sum(row, output));
  }
}
