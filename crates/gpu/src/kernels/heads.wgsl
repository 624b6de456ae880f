// Norm, rotation and transform of one head of one row, on its way to attention: into columns of a buffer, or into a page.

// section heads
struct P {
  batch: Batch,
  in_at: u32,
  in_row: u32,
  out_at: u32,      // of rows
  out_row: u32,
  kv_heads: u32,    // of a cache
  page_tokens: u32,
  has: u32,         // 1: norm, 2: its weights are the head's own, 4: it is centered, 8: it comes last, 16: rotation,
                    // 32: of adjacent elements, 64: table b, 128: temperature, 256: to pages
  weight: u32,
  bias: u32,
  eps: f32,
  dims: u32,        // elements that turn
  transformed: u32, // elements that are transformed together; 1: none
  transform: f32,   // factor of what is transformed
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
  var mean_and_factor = vec2<f32>(0.0);
  for (var turn = first_turn(p.has & 4u); turn < rolled(2u); turn += 1u) {
    var sum = 0.0;
    for (var i = lid; i < rolled(HEAD_DIM); i += THREADS) {
      sum = with_value(turn, sum, head[i] - mean_and_factor.x);
    }
    mean_and_factor = after_turn(turn, mean_and_factor, total(sum, lid) / f32(HEAD_DIM), p.eps);
  }
  let norm = Norm(p.weight, p.bias, 0u, 0.0);
  let weights_at = select(0u, index * HEAD_DIM, (p.has & 2u) != 0u);
  for (var i = lid; i < rolled(HEAD_DIM); i += THREADS) {
    head[i] = normalized(norm, head[i], mean_and_factor, weights_at + i);
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

// The Walsh-Hadamard transform of parts of the head.
fn transform(lid: u32) {
  for (var distance = 1u; distance < rolled(p.transformed); distance <<= 1u) {
    for (var i = lid; i < HEAD_DIM / 2u; i += THREADS) {
      let low = i / distance * 2u * distance + i % distance;
      let a = head[low];
      let b = head[low + distance];
      head[low] = a + b;
      head[low + distance] = a - b;
    }
    workgroupBarrier();
  }
  for (var i = lid; i < rolled(HEAD_DIM); i += THREADS) {
    head[i] *= p.transform;
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
  // The norm comes first or last.
  for (var step = 0u; step < rolled(2u); step += 1u) {
    if ((p.has & 1u) != 0u && ((p.has >> 3u) & 1u) == step) {
      normalize(index, lid);
    }
    if (step == 0u && (p.has & 16u) != 0u) {
      rotate(row, lid);
    }
  }
  if ((p.has & 128u) != 0u) {
    let factor = bitcast<f32>(record[row_at + 6u]);
    for (var i = lid; i < rolled(HEAD_DIM); i += THREADS) {
      head[i] *= factor;
    }
    workgroupBarrier();
  }
  if (p.transformed > 1u) {
    transform(lid);
  }
  if ((p.has & 256u) == 0u) {
    let to_at = p.out_at + row * p.out_row + index * HEAD_DIM;
    for (var i = lid; i < rolled(HEAD_DIM); i += THREADS) {
      out[to_at + i] = bitcast<u32>(head[i]);
    }
    return;
  }
  let block_words = p.page_tokens * (KV_ROW + KV_SCALES);
  store((record[row_at + 2u] * p.kv_heads + index) * block_words, record[row_at + 3u], lid);
}

// section f16
// Writes the head to a slot of a block of a page.
fn store(block: u32, slot: u32, lid: u32) {
  for (var i = lid; i < rolled(STRIDE / 2u); i += THREADS) {
    out[block + slot * KV_ROW + i] = to_half(head[2u * i]) | to_half(head[2u * i + 1u]) << 16u;
  }
}

// section quants
// A thread for each group of elements that share a scale.
const GROUPS: u32 = STRIDE / SCALE_GROUP;
// One more, so that they are whole words.
var<workgroup> group_scales: array<u32, GROUPS + 1u>;

// Writes the head to a slot of a block of a page.
fn store(block: u32, slot: u32, lid: u32) {
  if (lid <= GROUPS) {
    group_scales[lid] = 0u;
  }
  if (lid < GROUPS) {
    store_group(block + slot * KV_ROW + lid * (KV_ROW / GROUPS), lid);
  }
  workgroupBarrier();
  for (var i = lid; i < KV_SCALES; i += THREADS) {
    let at = block + p.page_tokens * KV_ROW + slot * KV_SCALES + i;
    out[at] = group_scales[2u * i] | group_scales[2u * i + 1u] << 16u;
  }
}

// section q8_0
// The nearest of -127 to 127 times the group's scale. One NaN makes the scale NaN.
fn store_group(to_at: u32, group: u32) {
  var most = 0.0;
  var has_nan = false;
  for (var i = 0u; i < rolled(SCALE_GROUP); i++) {
    let x = head[group * SCALE_GROUP + i];
    has_nan = has_nan || is_nan(x);
    most = max(most, abs(x));
  }
  most = min(most, 65504.0 * 127.0);
  let bits = to_half(most / 127.0);
  let step = half(bits);
  let inverse = select(0.0, 1.0 / step, step > 0.0 && !has_nan);
  group_scales[group] = select(bits, 0x7e00u, has_nan);
  for (var i = 0u; i < rolled(SCALE_GROUP / 4u); i++) {
    var word = 0u;
    for (var j = 0u; j < 4u; j++) {
      let x = clamp(head[group * SCALE_GROUP + 4u * i + j], -most, most) * inverse;
      let quant = i32(round(select(clamp(x, -127.0, 127.0), 0.0, has_nan)));
      word |= (bitcast<u32>(quant) & 0xffu) << (8u * j);
    }
    out[to_at + i] = word;
  }
}

// section q4_0
const LIMIT: f32 = 65504.0 * 7.0;
// The nearest of -8 to 7 times the group's scale, which has the sign of the largest value, and of three sizes the one with the
// least squared error. One NaN makes the scale NaN.
fn store_group(to_at: u32, group: u32) {
  var most = 0.0;
  var has_nan = false;
  for (var i = 0u; i < rolled(SCALE_GROUP); i++) {
    let x = head[group * SCALE_GROUP + i];
    has_nan = has_nan || is_nan(x);
    let bounded = clamp(x, -LIMIT, LIMIT);
    most = select(most, bounded, abs(bounded) > abs(most));
  }
  var least = 3.0e38;
  var scale = 0u;
  var best = vec4<u32>(0u);
  for (var size = 0u; size < rolled(3u); size++) {
    let bits = to_half(most / (0.5 * f32(size) - 8.0));
    let step = half(bits);
    let inverse = select(0.0, 1.0 / step, step != 0.0);
    var error = 0.0;
    var words = vec4<u32>(0u);
    for (var i = 0u; i < rolled(SCALE_GROUP); i++) {
      let x = clamp(head[group * SCALE_GROUP + i], -LIMIT, LIMIT);
      let quant = round(clamp(x * inverse, -8.0, 7.0));
      let off = quant * step - x;
      error += off * off;
      words[i / 8u] |= (bitcast<u32>(i32(quant)) & 0xfu) << (4u * (i % 8u));
    }
    if (error < least) {
      least = error;
      scale = bits;
      best = words;
    }
  }
  group_scales[group] = select(scale, 0x7e00u, has_nan);
  best = select(best, vec4<u32>(0u), has_nan);
  for (var i = 0u; i < 4u; i++) {
    out[to_at + i] = best[i];
  }
}
