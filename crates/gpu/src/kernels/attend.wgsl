// Attention of up to Q query heads of one row, which share keys and values. The positions of a sequence are cut into parts of
// PART, counted from position 0; the softmax of a part is computed alone, and parts are merged in ascending order. With
// few rows each part has a workgroup of its own (`batch.parts` is not 0), whose results `merge` puts together; else one
// workgroup runs through all. Both ways compute the same bits.

// section common
const PART: u32 = 256u;
const THREADS: u32 = HEAD_THREADS;
// Below each score that is seen.
const LOWEST: f32 = -3.0e38;
// Floats of a part's result: maximum, sum, two that are not used, and the sums of values.
const PART_FLOATS: u32 = STRIDE + 4u;

// Factors of what was merged so far, and of the next part; and the new maximum.
fn merge_factors(before: f32, next: f32) -> vec3<f32> {
  let most = max(before, next);
  return vec3<f32>(exp(before - most), exp(next - most), most);
}

// section operation
struct P {
  batch: Batch,
  query_at: u32,
  query_row: u32,
  out_at: u32,
  out_row: u32,
  kv_heads: u32,
  heads: u32,
  chunks: u32,      // workgroups for the heads of one key head
  scale: f32,
  cap: f32,         // 0: none
  window: u32,      // 0: all positions
  sinks: u32,
  tiled: u32,       // rows of a span from which on its rows are computed by tiles; 0: none are
  blocks: u32,      // 1: rows of a block see its later rows
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> record: array<u32>;
@group(0) @binding(2) var<storage, read> queries: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
@group(0) @binding(6) var<storage, read_write> parts: array<f32>;

// Threads that hold four elements of a head each.
const COLUMNS: u32 = STRIDE / 4u;

fn finished(product: f32) -> f32 {
  let score = product * p.scale;
  if (p.cap != 0.0) {
    return p.cap * bounded_tanh(score / p.cap);
  }
  return score;
}

// The first words of a position's elements and of their scales.
struct Place {
  row: u32,
  scales: u32,
}

// Consecutive elements.
struct Eight {
  a: vec4<f32>,
  b: vec4<f32>,
}

// The first four, or the last.
fn half_of(eight: Eight, number: u32) -> vec4<f32> {
  return select(eight.a, eight.b, number == 1u);
}

fn place_of(table: u32, kv_head: u32, position: u32) -> Place {
  let page = record[table + position / PAGE_TOKENS];
  let slot = position % PAGE_TOKENS;
  let block = (page * p.kv_heads + kv_head) * (PAGE_TOKENS * (KV_ROW + KV_SCALES));
  return Place(block + slot * KV_ROW, block + PAGE_TOKENS * KV_ROW + slot * KV_SCALES);
}

// The scale of a group, of which the word has two.
fn scale_of(word: u32, group: u32) -> f32 {
  return half(word >> (group % 2u * 16u));
}

fn write_four(at: u32, first: u32, x: vec4<f32>) {
  for (var i = 0u; i < rolled(4u); i++) {
    if (first + i < HEAD_DIM) {
      out[at + first + i] = x[i];
    }
  }
}

// section attend
// Positions whose values are added at a time.
const SLICES: u32 = THREADS / COLUMNS;

var<workgroup> query: array<vec4<f32>, Q * STRIDE / 4u>;
var<workgroup> scores: array<f32, Q * PART>;
var<workgroup> maxima: array<f32, THREADS>;
var<workgroup> partial_sums: array<f32, THREADS>;
var<workgroup> slices: array<vec4<f32>, THREADS>;
// Of each head: the part's maximum and sum; those of all parts so far, and the factors with which the sums of values are merged.
var<workgroup> part_max: array<f32, Q>;
var<workgroup> part_sum: array<f32, Q>;
var<workgroup> merged_max: array<f32, Q>;
var<workgroup> merged_sum: array<f32, Q>;
var<workgroup> factor_before: array<f32, Q>;
var<workgroup> factor_next: array<f32, Q>;

fn load_queries(row: u32, first_head: u32, last_head: u32, lid: u32) {
  for (var i = lid; i < rolled(Q * STRIDE); i += THREADS) {
    let head = min(first_head + i / STRIDE, last_head);
    let within = i % STRIDE;
    var x = 0.0;
    if (within < HEAD_DIM) {
      x = queries[p.query_at + row * p.query_row + head * HEAD_DIM + within];
    }
    query[i / 4u][i % 4u] = x;
  }
}

fn score_part(table: u32, kv_head: u32, part: u32, start: u32, end: u32, lid: u32) {
  for (var i = lid; i < rolled(PART); i += THREADS) {
    let position = part * PART + i;
    let is_seen = position >= start && position < end;
    var sums: array<vec4<f32>, Q>;
    if (is_seen) {
      let place = place_of(table, kv_head, position);
      for (var d = 0u; d < rolled(STRIDE / 8u); d++) {
        let key = key_eight(place, d);
        // each q below Q
        // each h below 2
        sums[q] = fma(query[q * COLUMNS + 2u * d + h], half_of(key, h), sums[q]);
        // end
        // end
      }
    }
    // each q below Q
    scores[q * PART + i] = (sums[q].x + sums[q].y) + (sums[q].z + sums[q].w);
    // end
    for (var head = 0u; head < rolled(Q); head++) {
      let at = head * PART + i;
      scores[at] = select(LOWEST, finished(scores[at]), is_seen);
    }
  }
}

// Turns scores into weights; maximum, sum and factors of each head.
fn weigh_part(lid: u32) {
  let head = lid / 16u;
  let lane = lid % 16u;
  if (head < Q) {
    var most = LOWEST;
    for (var i = lane; i < rolled(PART); i += 16u) {
      most = max(most, scores[head * PART + i]);
    }
    maxima[lid] = most;
  }
  workgroupBarrier();
  if (head < Q) {
    var most = LOWEST;
    for (var i = 0u; i < rolled(16u); i++) {
      most = max(most, maxima[head * 16u + i]);
    }
    var sum = 0.0;
    for (var i = lane; i < rolled(PART); i += 16u) {
      let weight = exp(scores[head * PART + i] - most);
      scores[head * PART + i] = weight;
      sum += weight;
    }
    partial_sums[lid] = sum;
  }
  workgroupBarrier();
  if (lid < Q) {
    var most = LOWEST;
    var sum = 0.0;
    for (var i = 0u; i < rolled(16u); i++) {
      most = max(most, maxima[lid * 16u + i]);
      sum += partial_sums[lid * 16u + i];
    }
    part_max[lid] = most;
    part_sum[lid] = sum;
    let factors = merge_factors(merged_max[lid], most);
    merged_sum[lid] = fma(merged_sum[lid], factors.x, sum * factors.y);
    merged_max[lid] = factors.z;
    factor_before[lid] = factors.x;
    factor_next[lid] = factors.y;
  }
}

// The sum of a column over all slices, for the threads that hold a column.
fn sum_of_slices(lid: u32) -> vec4<f32> {
  var sum = vec4<f32>(0.0);
  if (lid < COLUMNS) {
    for (var slice = 0u; slice < rolled(SLICES); slice++) {
      sum += slices[slice * COLUMNS + lid];
    }
  }
  return sum;
}

fn write_part(head: u32, row: u32, part: u32, index: u32, sums: vec4<f32>, lid: u32) {
  let at = ((row * p.heads + head) * p.batch.parts + part) * PART_FLOATS;
  if (lid < 2u) {
    parts[at + lid] = select(part_max[index], part_sum[index], lid == 1u);
  }
  if (lid < COLUMNS) {
    for (var i = 0u; i < rolled(4u); i++) {
      parts[at + 4u + lid * 4u + i] = sums[i];
    }
  }
}

// The factor of a head's sums of values, and what they are divided by, for the threads of heads.
fn weigh_sinks(first_head: u32, last_head: u32, lid: u32) {
  if (lid < Q) {
    factor_before[lid] = 1.0;
    if (p.sinks != NONE) {
      let factors = merge_factors(merged_max[lid], vectors[p.sinks + min(first_head + lid, last_head)]);
      factor_before[lid] = factors.x;
      merged_sum[lid] = fma(merged_sum[lid], factors.x, factors.y);
    }
  }
}

fn write_merged(head: u32, row: u32, index: u32, sums: vec4<f32>, lid: u32) {
  if (lid < COLUMNS) {
    let at = p.out_at + row * p.out_row + head * HEAD_DIM;
    write_four(at, lid * 4u, sums * factor_before[index] / merged_sum[index]);
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) own_block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let block = of_dispatch(own_block);
  let kv_head = block.x / p.chunks;
  let row = block.y;
  let group = p.heads / p.kv_heads;
  let first_head = kv_head * group + block.x % p.chunks * Q;
  let last_head = kv_head * group + group - 1u;
  let row_at = p.batch.rows_at + row * ROW_WORDS;
  if (p.tiled != 0u && record[p.batch.spans_at + record[row_at + 7u] * SPAN_WORDS + 1u] >= p.tiled) {
    return;
  }
  let own_end = record[row_at + 1u] + 1u;
  let end = own_end + record[row_at + 8u] * p.blocks;
  let table = p.batch.tables_at + record[row_at + 4u];
  let start = select(0u, own_end - min(own_end, p.window), p.window != 0u);
  var first_part = start / PART;
  var end_part = (end - 1u) / PART + 1u;
  let split = p.batch.parts != 0u;
  if (split) {
    end_part = min(end_part, block.z + 1u);
    first_part = select(end_part, block.z, block.z >= first_part && block.z < end_part);
  }
  load_queries(row, first_head, last_head, lid);
  let column = lid % COLUMNS;
  let slice = lid / COLUMNS;
  if (lid < Q) {
    merged_max[lid] = LOWEST;
    merged_sum[lid] = 0.0;
  }
  var totals: array<vec4<f32>, Q>;
  for (var part = first_part; part < end_part; part++) {
    workgroupBarrier();
    score_part(table, kv_head, part, start, end, lid);
    workgroupBarrier();
    weigh_part(lid);
    var of_slice: array<vec4<f32>, Q>;
    if (slice < SLICES) {
      for (var i = slice; i < min(PART, end - part * PART); i += SLICES) {
        let position = part * PART + i;
        if (position >= start) {
          let value = value_four(place_of(table, kv_head, position), column);
          // each q below Q
          of_slice[q] = fma(vec4<f32>(scores[q * PART + i]), value, of_slice[q]);
          // end
        }
      }
    }
    // each q below Q
    workgroupBarrier();
    slices[lid] = of_slice[q];
    workgroupBarrier();
    let sums = sum_of_slices(lid);
    if (!split) {
      totals[q] = fma(totals[q], vec4<f32>(factor_before[q]), sums * factor_next[q]);
    } else if (first_head + q <= last_head) {
      write_part(first_head + q, row, part, q, sums, lid);
    }
    // end
  }
  if (split) {
    return;
  }
  workgroupBarrier();
  weigh_sinks(first_head, last_head, lid);
  workgroupBarrier();
  // each q below Q
  if (first_head + q <= last_head) {
    write_merged(first_head + q, row, q, totals[q], lid);
  }
  // end
}

// section merge
// Parts of one head of one row, put together.
struct P {
  batch: Batch,
  out_at: u32,
  out_row: u32,
  heads: u32,
  window: u32,
  sinks: u32,
  blocks: u32,
}
var<immediate> p: P;

@group(0) @binding(0) var<storage, read> vectors: array<f32>;
@group(0) @binding(1) var<storage, read> record: array<u32>;
@group(0) @binding(2) var<storage, read> parts: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) block: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let head = block.x;
  let row = block.y;
  let row_at = p.batch.rows_at + row * ROW_WORDS;
  let own_end = record[row_at + 1u] + 1u;
  let end = own_end + record[row_at + 8u] * p.blocks;
  let start = select(0u, own_end - min(own_end, p.window), p.window != 0u);
  for (var i = lid; i < HEAD_DIM; i += THREADS) {
    var most = LOWEST;
    var sum = 0.0;
    var total = 0.0;
    for (var part = start / PART; part <= (end - 1u) / PART; part++) {
      let at = ((row * p.heads + head) * p.batch.parts + part) * PART_FLOATS;
      let factors = merge_factors(most, parts[at]);
      sum = fma(sum, factors.x, parts[at + 1u] * factors.y);
      total = fma(total, factors.x, parts[at + 4u + i] * factors.y);
      most = factors.z;
    }
    var factor = 1.0;
    var weights = sum;
    if (p.sinks != NONE) {
      let factors = merge_factors(most, vectors[p.sinks + head]);
      factor = factors.x;
      weights = fma(sum, factors.x, factors.y);
    }
    out[p.out_at + row * p.out_row + head * HEAD_DIM + i] = total * factor / weights;
  }
}
