// Products of many rows on matrix units: a workgroup of four subgroups computes 64 outputs of as many rows as BLOCK_ROWS says,
// 32 inputs at a time in workgroup memory, as f16; sums are f32. Two subgroups share outputs, and two share rows. A line with
// `$m` and `$n` stands for one line for each pair of values below M and N: squares of SIZE rows and outputs of a subgroup.
//
// Inputs are divided by SHRUNK, so that none that a model has is larger than f16 can be; small ones lose less than their
// products' sum has as an error anyway.

const THREADS: u32 = 4u * LANES;
const BLOCK_OUTPUTS: u32 = 64u;
const BLOCK_ROWS: u32 = 2u * M * SIZE;
const INPUTS: u32 = 32u;
const UNITS: u32 = 2u;
// f16 between two rows in workgroup memory: whole 16 bytes, and no multiple of all banks.
const STRIDE: u32 = 40u;
const SHRUNK: f32 = 64.0;
const LARGEST: f32 = 65504.0;

// By output, and by row.
var<workgroup> weight_tile: array<f16, BLOCK_OUTPUTS * STRIDE>;
var<workgroup> x_tile: array<f16, BLOCK_ROWS * STRIDE>;
// A square of each subgroup.
var<workgroup> squares: array<f32, 4u * SIZE * SIZE>;

fn store_weights(at: u32, w: vec4<f32>) {
  for (var i = 0u; i < 4u; i++) {
    weight_tile[at + i] = f16(clamp(w[i], -LARGEST, LARGEST));
  }
}

fn load_weights(first: u32, last: u32, first_unit: u32, lid: u32) {
  for (var i = lid; i < BLOCK_OUTPUTS * UNITS; i += THREADS) {
    let output = i % BLOCK_OUTPUTS;
    let within = i / BLOCK_OUTPUTS;
    let at = output * STRIDE + within * 16u;
    if (first_unit + within < p.units) {
      let w = unit(min(first + output, last), first_unit + within);
      let scale = vec4<f32>(w.scale);
      let shift = vec4<f32>(w.shift);
      store_weights(at, fma(w.a, scale, shift));
      store_weights(at + 4u, fma(w.b, scale, shift));
      store_weights(at + 8u, fma(w.c, scale, shift));
      store_weights(at + 12u, fma(w.d, scale, shift));
    } else {
      for (var j = 0u; j < 16u; j += 4u) {
        store_weights(at + j, vec4<f32>(0.0));
      }
    }
  }
}

fn load_x(first_row: u32, first_unit: u32, lid: u32) {
  for (var i = lid; i < BLOCK_ROWS * 8u; i += THREADS) {
    let row = first_row + i / 8u;
    let within = i % 8u;
    var v = vec4<f32>(0.0);
    if (row < p.batch.rows && first_unit + within / 4u < p.units) {
      v = x[p.x_at + row * p.x_row + first_unit * 4u + within] / SHRUNK;
    }
    let at = i / 8u * STRIDE + within * 4u;
    for (var j = 0u; j < 4u; j++) {
      // NaN stays.
      x_tile[at + j] = f16(select(clamp(v[j], -LARGEST, LARGEST), v[j], is_nan(v[j])));
    }
  }
}

fn write_square(square: u32, first_row: u32, first_output: u32, lane: u32) {
  for (var i = lane; i < SIZE * SIZE; i += LANES) {
    let sum = squares[square * SIZE * SIZE + i] * SHRUNK;
    write_output(first_row + i / SIZE, first_output + i % SIZE, sum);
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) own_block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let block = of_dispatch(own_block);
  prepare(lid);
  let first_output = (block.x + block.z * BLOCKS_X) * BLOCK_OUTPUTS;
  let first_row = block.y * BLOCK_ROWS;
  let subgroup = lid / LANES;
  let outputs_at = subgroup % 2u * N * SIZE;
  let rows_at = subgroup / 2u * M * SIZE;
  var sums_$m_$n: Sums;
  for (var first_unit = 0u; first_unit < p.units; first_unit += UNITS) {
    load_weights(first_output, p.outputs - 1u, first_unit, lid);
    load_x(first_row, first_unit, lid);
    workgroupBarrier();
    for (var input = 0u; input < INPUTS; input += SIZE) {
      let x_$m_at = (rows_at + $mu * SIZE) * STRIDE + input;
      let x_$m = coopLoadT<Rows>(&x_tile[x_$m_at], STRIDE);
      let w_$n_at = (outputs_at + $nu * SIZE) * STRIDE + input;
      let w_$n = coopLoad<Weights>(&weight_tile[w_$n_at], STRIDE);
      sums_$m_$n = coopMultiplyAdd(x_$m, w_$n, sums_$m_$n);
    }
    workgroupBarrier();
  }
  let square_at = subgroup * SIZE * SIZE;
  let lane = lid % LANES;
  let row = first_row + rows_at;
  let output = first_output + outputs_at;
  coopStoreT(sums_$m_$n, &squares[square_at], SIZE); workgroupBarrier(); write_square(subgroup, row + $mu * SIZE, output + $nu * SIZE, lane); workgroupBarrier();
}
