// Norm and rotation of one head of one row, on its way to attention: into columns of a buffer, or as f16 into a page.

struct P {
  batch: Batch,
  in_at: u32,
  in_row: u32,
  out_at: u32,      // of rows
  out_row: u32,
  kv_heads: u32,    // of a cache
  page_tokens: u32,
  has: u32,         // 1: norm, 2: its weights are the head's own, 4: it is centered, 8: it comes last, 16: rotation,
                    // 32: of adjacent elements, 64: table b, 128: temperature
  weight: u32,
  bias: u32,
  eps: f32,
  dims: u32,        // elements that turn
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> record: array<u32>;
@group(0) @binding(2) var<storage, read> input: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;

// The nearest f16, of two equally near ones the even one; `pack2x16float` may cut instead.
fn to_half(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let size = bits & 0x7fffffffu;
  let normal = (size + 0xfffu + ((size >> 13u) & 1u) - 0x38000000u) >> 13u;
  let tiny = u32(round(min(abs(x), 1.0) * 16777216.0));
  let huge = select(0x7c00u, 0x7e00u, size > 0x7f800000u);
  let value = select(select(normal, huge, size >= 0x47800000u), tiny, size < 0x38800000u);
  return value | ((bits >> 16u) & 0x8000u);
}

var<workgroup> head: array<f32, STRIDE>;

fn normalize(index: u32, lid: u32) {
  var mean = 0.0;
  if ((p.has & 4u) != 0u) {
    var sum = 0.0;
    for (var i = lid; i < rolled(HEAD_DIM); i += THREADS) {
      sum += head[i];
    }
    mean = total(sum, lid) / f32(HEAD_DIM);
  }
  var squares = 0.0;
  for (var i = lid; i < rolled(HEAD_DIM); i += THREADS) {
    let x = head[i] - mean;
    squares = fma(x, x, squares);
  }
  let factor = 1.0 / sqrt(total(squares, lid) / f32(HEAD_DIM) + p.eps);
  let norm = Norm(p.weight, p.bias, 0u, 0.0);
  let weights_at = select(0u, index * HEAD_DIM, (p.has & 2u) != 0u);
  for (var i = lid; i < rolled(HEAD_DIM); i += THREADS) {
    head[i] = normalized(norm, head[i], vec2<f32>(mean, factor), weights_at + i);
  }
  workgroupBarrier();
}

fn rotate(row: u32, lid: u32) {
  let half_dims = p.dims / 2u;
  let table = select(p.batch.angles_a, p.batch.angles_b, (p.has & 64u) != 0u) + row * p.dims;
  for (var i = lid; i < half_dims; i += THREADS) {
    let cos = bitcast<f32>(record[table + 2u * i]);
    let sin = bitcast<f32>(record[table + 2u * i + 1u]);
    let adjacent = (p.has & 32u) != 0u;
    let first = select(i, 2u * i, adjacent);
    let second = select(i + half_dims, 2u * i + 1u, adjacent);
    let a = head[first];
    let b = head[second];
    head[first] = fma(a, cos, -(b * sin));
    head[second] = fma(a, sin, b * cos);
  }
  workgroupBarrier();
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let index = block.x;
  let row = block.y;
  let row_at = p.batch.rows_at + row * ROW_WORDS;
  let from_at = p.in_at + row * p.in_row + index * HEAD_DIM;
  for (var i = lid; i < rolled(STRIDE); i += THREADS) {
    head[i] = 0.0;
    if (i < HEAD_DIM) {
      head[i] = input[from_at + i];
    }
  }
  workgroupBarrier();
  let norm_first = (p.has & 9u) == 1u;
  if (norm_first) {
    normalize(index, lid);
  }
  if ((p.has & 16u) != 0u) {
    rotate(row, lid);
  }
  if ((p.has & 9u) == 9u) {
    normalize(index, lid);
  }
  var factor = 1.0;
  if ((p.has & 128u) != 0u) {
    factor = bitcast<f32>(record[row_at + 6u]);
  }
  if (!TO_PAGES) {
    let to_at = p.out_at + row * p.out_row + index * HEAD_DIM;
    for (var i = lid; i < rolled(HEAD_DIM); i += THREADS) {
      out[to_at + i] = bitcast<u32>(head[i] * factor);
    }
    return;
  }
  let page = record[row_at + 2u];
  let slot = record[row_at + 3u];
  let to_at = ((page * p.kv_heads + index) * p.page_tokens + slot) * (STRIDE / 2u);
  for (var i = lid; i < rolled(STRIDE / 2u); i += THREADS) {
    out[to_at + i] = to_half(head[2u * i] * factor) | to_half(head[2u * i + 1u] * factor) << 16u;
  }
}
