// Products of many rows: a workgroup computes 64 outputs of 32 H rows, 32 inputs at a time in workgroup memory; each thread four
// outputs of four rows in each 32. The inputs are summed in order, whatever H is, which is another order than that of products
// of few rows. A line with `$h` stands for one line for each value below H.

// section common
const TILE_OUTPUTS: u32 = 64u;
const TILE_ROWS: u32 = 32u * H;
const TILE_UNITS: u32 = 2u;
const TILE_INPUTS: u32 = 32u;

// By input, then output or row.
var<workgroup> weight_tile: array<vec4<f32>, TILE_INPUTS * TILE_OUTPUTS / 4u>;
var<workgroup> x_tile: array<vec4<f32>, TILE_INPUTS * TILE_ROWS / 4u>;

// Four outputs of each of four rows.
struct Sums {
  a: vec4<f32>,
  b: vec4<f32>,
  c: vec4<f32>,
  d: vec4<f32>,
}

struct TileSums {
  part_$h: Sums,
}

fn with_products(sums: Sums, w: vec4<f32>, v: vec4<f32>) -> Sums {
  return Sums(
    fma(vec4<f32>(v.x), w, sums.a),
    fma(vec4<f32>(v.y), w, sums.b),
    fma(vec4<f32>(v.z), w, sums.c),
    fma(vec4<f32>(v.w), w, sums.d),
  );
}

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

// `first` and `last` are rows of the matrix.
fn load_weights(first: u32, last: u32, first_unit: u32, lid: u32) {
  let output = lid % TILE_OUTPUTS;
  let within = lid / TILE_OUTPUTS;
  let input = within * 16u;
  if (first_unit + within < p.units) {
    let w = unit(min(first + output, last), first_unit + within);
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

// `begin` is where the inputs of the thread's row begin: that of number `lid % TILE_ROWS` of the tile.
fn load_x(begin: u32, first_unit: u32, lid: u32) {
  let within = lid / TILE_ROWS;
  if (within >= TILE_UNITS) {
    return;
  }
  let at = begin + (first_unit + within) * 4u;
  for (var i = 0u; i < 4u; i++) {
    var v = vec4<f32>(0.0);
    if (first_unit + within < p.units) {
      v = x[at + i];
    }
    store_x(within * 16u + i * 4u, lid % TILE_ROWS, v);
  }
}

// The sums of a thread, whose outputs, and rows within each 32, begin at four times these numbers.
fn tile_sums(first: u32, last: u32, begin: u32, outputs: u32, rows: u32, lid: u32) -> TileSums {
  let none = Sums(vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0), vec4<f32>(0.0));
  var sums: TileSums;
  sums.part_$h = none;
  for (var first_unit = 0u; first_unit < p.units; first_unit += TILE_UNITS) {
    load_weights(first, last, first_unit, lid);
    load_x(begin, first_unit, lid);
    workgroupBarrier();
    for (var input = 0u; input < TILE_INPUTS; input++) {
      let w = weight_tile[input * (TILE_OUTPUTS / 4u) + outputs];
      let v_$h = x_tile[input * (TILE_ROWS / 4u) + 8u * $hu + rows];
      sums.part_$h = with_products(sums.part_$h, w, v_$h);
    }
    workgroupBarrier();
  }
  return sums;
}

// section matmul
fn write_row(row: u32, first_output: u32, sums: vec4<f32>) {
  for (var i = 0u; i < 4u; i++) {
    write_output(row, first_output + i, sums[i]);
  }
}

fn write_rows(row: u32, first_output: u32, sums: Sums) {
  write_row(row, first_output, sums.a);
  write_row(row + 1u, first_output, sums.b);
  write_row(row + 2u, first_output, sums.c);
  write_row(row + 3u, first_output, sums.d);
}

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) own_block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let block = of_dispatch(own_block);
  prepare(lid);
  let first_output = (block.x + block.z * BLOCKS_X) * TILE_OUTPUTS;
  let first_row = block.y * TILE_ROWS;
  let outputs = lid % 16u;
  let rows = lid / 16u;
  let begin = p.x_at + min(first_row + lid % TILE_ROWS, p.batch.rows - 1u) * p.x_row;
  let sums = tile_sums(first_output, p.outputs - 1u, begin, outputs, rows, lid);
  let row = first_row + rows * 4u;
  let output = first_output + outputs * 4u;
  write_rows(row + 32u * $hu, output, sums.part_$h);
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

fn write_choice(place: u32, end: u32, bias: u32, first_output: u32, sums: vec4<f32>) {
  if (place >= end) {
    return;
  }
  let choice = order[p.sorted_at + place];
  let at = p.out_at + choice / p.used * p.out_row + choice % p.used * p.out_stride;
  for (var i = 0u; i < 4u; i++) {
    let output = first_output + i;
    if (output < p.outputs) {
      var value = sums[i];
      if (bias != NONE) {
        value += vectors[bias + output];
      }
      out[at + output] = value;
    }
  }
}

@compute @workgroup_size(128)
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
  let end = first + order[tile + 2u];
  let first_output = block.x * TILE_OUTPUTS;
  let outputs = lid % 16u;
  let rows = lid / 16u;
  let choice = order[p.sorted_at + min(first + lid % TILE_ROWS, end - 1u)];
  let begin = p.x_at + choice / p.used * p.x_row + choice % p.used * p.x_stride;
  let weights = expert * p.outputs;
  let sums = tile_sums(weights + first_output, weights + p.outputs - 1u, begin, outputs, rows, lid).part_0;
  let bias = select(p.bias + expert * p.outputs, NONE, p.bias == NONE);
  let place = first + rows * 4u;
  let output = first_output + outputs * 4u;
  write_choice(place, end, bias, output, sums.a);
  write_choice(place + 1u, end, bias, output, sums.b);
  write_choice(place + 2u, end, bias, output, sums.c);
  write_choice(place + 3u, end, bias, output, sums.d);
}
