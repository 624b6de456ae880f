// `out = factor * table[token]`: a workgroup for each row, a unit for each thread at a time. The table may be in parts.

struct P {
  batch: Batch,
  first: u32,       // token of the part's first row
  count: u32,       // rows of the part
  units: u32,
  low_row: u32,
  high_row: u32,
  scale_row: u32,
  cols: u32,
  out_at: u32,
  out_row: u32,
  factor: f32,
}
var<immediate> p: P;

@group(0) @binding(3) var<storage, read> record: array<u32>;
@group(0) @binding(4) var<storage, read> tokens: array<u32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

// A token that draw `i` of the batch before gave is `DRAWN | i`.
const DRAWN: u32 = 0x80000000u;
// A row that is a vector.
const VECTOR: u32 = 0xffffffffu;

fn write_four(at: u32, col: u32, values: vec4<f32>) {
  for (var i = 0u; i < rolled(4u); i++) {
    if (col + i < p.cols) {
      out[at + col + i] = values[i] * p.factor;
    }
  }
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  prepare(lid);
  let row = block.y;
  var known = record[p.batch.rows_at + row * ROW_WORDS];
  if (known == VECTOR) {
    known = 0u;
  } else if ((known & DRAWN) != 0u) {
    known = tokens[known & ~DRAWN];
  }
  let token = known - p.first;
  if (token >= p.count) {
    return;
  }
  let at = p.out_at + row * p.out_row;
  for (var u = lid; u < p.units; u += 64u) {
    let w = unit(token, u);
    // each q below 4
    write_four(at, u * 16u + 4u * q, fma(quad_of(w, q), vec4<f32>(w.scale), vec4<f32>(w.shift)));
    // end
  }
}
